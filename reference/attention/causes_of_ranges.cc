// Causes by which all rows have one range of keys wrong: it is lost, counted twice, seen though
// hidden, or its values are.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <tuple>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

enum class RangeFault { kLost, kTwice, kSeen, kNoValues, kZeros };

// A range of columns that all rows have wrong in the same way.
class Ranges : public std::enable_shared_from_this<Ranges> {
 public:
  explicit Ranges(Causes* causes) : causes_(*causes), problem_(causes->problem()) {
    for (const SeenRow& row : causes->rows()) {
      for (int64_t j = 0; j < problem_.kv_len; ++j) {
        if (row.is_visible[static_cast<size_t>(j)] != 0) continue;
        first_hidden_ = std::min(first_hidden_, j);
        last_hidden_ = std::max(last_hidden_, j);
      }
    }
  }

  void Run() {
    const bool hides = last_hidden_ >= first_hidden_;
    for (const RangeFault fault :
         {RangeFault::kLost, RangeFault::kTwice, RangeFault::kNoValues, RangeFault::kZeros}) {
      Find(fault);
    }
    if (hides) Find(RangeFault::kSeen);
  }

 private:
  struct Range {
    int64_t from = 0, to = 0;
    double misfit = 0;
  };

  std::optional<Mixture> Predict(const SeenRow& row, RangeFault fault, int64_t from,
                                 int64_t to) const {
    Mixture mixture = row.Right();
    switch (fault) {
      case RangeFault::kLost:
        AddRange(problem_, row, from, to, KeySet::kVisible, -1, &mixture);
        break;
      case RangeFault::kTwice:
        AddRange(problem_, row, from, to, KeySet::kVisible, 1, &mixture);
        break;
      case RangeFault::kSeen:
        AddRange(problem_, row, from, to, KeySet::kHidden, 1, &mixture);
        break;
      case RangeFault::kNoValues: {
        AddRange(problem_, row, from, to, KeySet::kVisible, -1, &mixture);
        mixture.share = 1;
        return mixture;
      }
      case RangeFault::kZeros: {
        AddRange(problem_, row, from, to, KeySet::kVisible, -1, &mixture);
        const double weight = std::exp(-row.max) / row.denominator;
        for (int64_t j = from; j < to; ++j) {
          const auto at = static_cast<size_t>(j);
          if (row.is_visible[at] == 0) continue;
          mixture.share += row.bias.empty() ? weight : weight * std::exp(row.bias[at]);
        }
        break;
      }
    }
    if (mixture.share == 1) return std::nullopt;
    return mixture;
  }

  double MisfitOver(const std::vector<size_t>& of, RangeFault fault, int64_t from,
                    int64_t to) const {
    return causes_.Misfit(
        of, [&](const SeenRow& row, size_t) { return Predict(row, fault, from, to); });
  }

  static bool IsLoss(RangeFault fault) {
    return fault == RangeFault::kLost || fault == RangeFault::kNoValues ||
           fault == RangeFault::kZeros;
  }

  // Pairs of block edges by the gain of the change that fits best, of the sign of the fault.
  void AddByBlocks(RangeFault fault, std::vector<Range>* starts) const {
    const int64_t n = problem_.kv_len;
    int64_t block = 1;
    while (n / block > 256) block *= 2;
    const auto edges = static_cast<size_t>((n + block - 1) / block + 1);
    const size_t channels = problem_.channels;
    const size_t width = problem_.screen.size() * channels;
    // Sums of p (v - o) from the first column on, in units of the noise.
    std::vector<double> sums(edges * width, 0), along(edges, 0), square(edges, 0);
    const KeySet set = fault == RangeFault::kSeen ? KeySet::kHidden : KeySet::kVisible;
    for (size_t i = 0; i < problem_.screen.size(); ++i) {
      const SeenRow& row = causes_.rows()[problem_.screen[i]];
      Mixture mixture = {std::vector<double>(channels, 0), 0};
      for (size_t e = 1; e < edges; ++e) {
        const auto from = static_cast<int64_t>(e - 1) * block;
        AddRange(problem_, row, from, from + block, set, 1, &mixture);
        double* to = &sums[e * width + i * channels];
        for (size_t c = 0; c < channels; ++c) {
          const double centre = fault == RangeFault::kNoValues ? 0 : mixture.share * row.o[c];
          const double g = (mixture.sum[c] - centre) * std::sqrt(row.precision[c]);
          to[c] = g;
          along[e] += g * std::sqrt(row.precision[c]) * row.error[c];
          square[e] += g * g;
        }
      }
    }
    const double sign = IsLoss(fault) ? -1 : 1;
    std::vector<std::tuple<double, size_t, size_t>> best;
    const double least = 1e-12 * *std::max_element(square.begin(), square.end());
    for (size_t a = 0; a + 1 < edges; ++a) {
      for (size_t b = a + 1; b < edges; ++b) {
        const double product = sign * (along[b] - along[a]);
        if (!(product > 0)) continue;
        double gram = 0;
        const double* x = &sums[a * width];
        const double* y = &sums[b * width];
        for (size_t c = 0; c < width; ++c) gram += (y[c] - x[c]) * (y[c] - x[c]);
        if (!(gram > least)) continue;
        best.emplace_back(product * product / gram, a, b);
      }
    }
    const size_t kept = std::min<size_t>(best.size(), 200);
    std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(kept), best.end(),
                      std::greater<>());
    std::vector<std::pair<size_t, size_t>> taken;
    const auto near = [](size_t x, size_t y) { return x < y + 3 && y < x + 3; };
    for (size_t i = 0; i < kept && taken.size() < 3; ++i) {
      const auto [gain, a, b] = best[i];
      if (std::any_of(taken.begin(), taken.end(), [&](const auto& other) {
            return near(other.first, a) && near(other.second, b);
          })) {
        continue;
      }
      taken.push_back({a, b});
      starts->push_back(
          {static_cast<int64_t>(a) * block, std::min(n, static_cast<int64_t>(b) * block)});
    }
  }

  // Single keys and aligned pages by the sums of their keys.
  void AddByKeys(RangeFault fault, std::vector<Range>* starts) const {
    const auto n = static_cast<size_t>(problem_.kv_len);
    std::vector<double> a(n + 1, 0), d(n + 1, 0);  // before each column
    const uint8_t wanted = fault == RangeFault::kSeen ? 0 : 1;
    for (size_t j = 0; j < n; ++j) {
      a[j + 1] = a[j], d[j + 1] = d[j];
      for (size_t r = 0; r < causes_.rows().size(); ++r) {
        if (causes_.rows()[r].is_visible[j] != wanted) continue;
        a[j + 1] += causes_.sums()[r].a[j];
        d[j + 1] += causes_.sums()[r].d[j];
      }
    }
    const double sign = IsLoss(fault) ? -1 : 1;
    for (const size_t page : {1, 16, 32, 64, 128, 256}) {
      if (page > 1 && page >= n) break;
      std::vector<std::pair<double, size_t>> best;
      for (size_t from = 0; from < n; from += page) {
        const size_t to = std::min(n, from + page);
        const double size = d[to] - d[from];
        const double z = size > 0 ? sign * (a[to] - a[from]) / std::sqrt(size) : 0;
        if (z > 0) best.push_back({z, from});
      }
      const size_t kept = std::min<size_t>(best.size(), page == 1 ? 3 : 1);
      std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(kept), best.end(),
                        std::greater<>());
      for (size_t i = 0; i < kept; ++i) {
        starts->push_back({static_cast<int64_t>(best[i].second),
                           static_cast<int64_t>(std::min(n, best[i].second + page))});
      }
    }
  }

  // Moves the edges as long as it gets better, by ever smaller steps.
  Range Refined(const std::vector<size_t>& of, RangeFault fault, Range range, int64_t by) const {
    range.misfit = MisfitOver(of, fault, range.from, range.to);
    for (; by > 0; by /= 2) {
      for (bool moved = true; moved;) {
        moved = false;
        static constexpr std::array<std::pair<int, int>, 8> kMoves = {
            {{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {-1, -1}, {1, 1}, {-1, 1}, {1, -1}}};
        for (const auto& [first, second] : kMoves) {
          Range other = {std::max<int64_t>(range.from + first * by, 0),
                         std::min(range.to + second * by, problem_.kv_len)};
          if (other.from >= other.to || (other.from == range.from && other.to == range.to)) {
            continue;
          }
          other.misfit = MisfitOver(of, fault, other.from, other.to);
          if (!(other.misfit < range.misfit)) continue;
          range = other;
          moved = true;
        }
      }
    }
    return range;
  }

  void Find(RangeFault fault) {
    std::vector<Range> starts;
    AddByBlocks(fault, &starts);
    AddByKeys(fault, &starts);
    const int64_t by = std::max<int64_t>(16, problem_.kv_len / 256);
    // Where no start makes it better, nor will what lies beside it.
    constexpr size_t kMostStarts = 6;
    const auto by_misfit = [](const Range& x, const Range& y) { return x.misfit < y.misfit; };
    for (Range& start : starts) {
      start.misfit = MisfitOver(problem_.screen, fault, start.from, start.to);
    }
    const double right = causes_.Misfit(
        problem_.screen, [](const SeenRow&, size_t) { return std::optional<Mixture>(); });
    std::erase_if(starts, [&](const Range& start) { return !(start.misfit < right); });
    std::sort(starts.begin(), starts.end(), by_misfit);
    starts.resize(std::min(starts.size(), kMostStarts));
    for (Range& start : starts) start = Refined(problem_.screen, fault, start, by);
    std::sort(starts.begin(), starts.end(), by_misfit);
    const std::vector<size_t> all = causes_.AllRows();
    std::set<std::pair<int64_t, int64_t>> seen, added;
    for (const Range& start : starts) {
      if (seen.size() == 3) break;
      if (!seen.insert({start.from, start.to}).second) continue;
      const Range range = Refined(all, fault, start, 4);
      if (!added.insert({range.from, range.to}).second) continue;
      Propose(fault, range);
    }
  }

  void Propose(RangeFault fault, const Range& range) {
    const int64_t n = problem_.kv_len;
    CauseText what;
    what.rank = 2;
    what.choices = 0.5 * static_cast<double>(n) * static_cast<double>(n) + 1;
    const bool is_one = range.to - range.from == 1;
    const std::string keys = KeysText(range.from, range.to, n);
    const std::string are = is_one ? "is" : "are";
    switch (fault) {
      case RangeFault::kLost:
        what.name = is_one ? "key missing" : "keys missing";
        what.text = fmt::format("{} {} left out", keys, are);
        break;
      case RangeFault::kTwice:
        what.name = is_one ? "key counted twice" : "keys counted twice";
        what.text = fmt::format("{} {} counted twice", keys, are);
        break;
      case RangeFault::kSeen: {
        what.name = is_one ? "hidden key visible" : "hidden keys visible";
        what.text =
            fmt::format("{}, which the mask hides, {} part", keys, is_one ? "takes" : "take");
        const bool from_first = range.from <= first_hidden_;
        const bool to_last = range.to > last_hidden_;
        if (from_first && to_last) {
          what.name = "mask ignored";
          what.text = "the mask is not applied";
        } else if (from_first && !is_one) {
          what.name = "mask ignored in columns";
          what.text = fmt::format("the mask is not applied to columns below {}", range.to);
        } else if (to_last && !is_one) {
          what.name = "mask ignored in columns";
          what.text = fmt::format("the mask is not applied to columns from {} on", range.from);
        }
        break;
      }
      case RangeFault::kNoValues:
        what.name = "values lost";
        what.text = fmt::format("V of {} is read as zeros", keys);
        break;
      case RangeFault::kZeros:
        what.name = "keys are zeros";
        what.text = fmt::format("K and V of {} are read as zeros (never written)", keys);
        break;
    }
    Candidate* candidate = causes_.Add(std::move(what), [&](const SeenRow& row, size_t) {
      return Predict(row, fault, range.from, range.to);
    });
    if (candidate == nullptr) return;
    candidate->doubt = [self = shared_from_this(), fault, range](double least) {
      return self->Doubt(fault, range, least);
    };
  }

  std::string Doubt(RangeFault fault, const Range& range, double least) const {
    const std::vector<size_t> all = causes_.AllRows();
    return EdgeDoubt(range.from, range.to, problem_.kv_len, [&](int64_t from, int64_t to) {
      return MisfitOver(all, fault, from, to) - range.misfit < least;
    });
  }

  Causes& causes_;
  const SeenProblem& problem_;
  int64_t first_hidden_ = INT64_MAX, last_hidden_ = -1;
};

}  // namespace

void AddCausesOfRanges(Causes* causes) { std::make_shared<Ranges>(causes)->Run(); }

}  // namespace kvcheck
