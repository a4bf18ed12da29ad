// Causes that change which keys take part: an edge of what a query sees (window, causal mask,
// padding, tiles), a range of keys that is lost, counted twice or seen though hidden, single pairs
// of query and key, and other rows of the mask.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

std::vector<size_t> AllRows(const Causes& causes) {
  std::vector<size_t> all(causes.rows().size());
  for (size_t r = 0; r < all.size(); ++r) all[r] = r;
  return all;
}

std::string Count(int64_t n, const std::string& one) {
  return n == 1 ? "one " + one : fmt::format("{} {}s", n, one);
}

// By how many keys the edges of what a row sees move: positive is outward.
struct EdgeShift {
  int64_t older = 0;
  int64_t later = 0;
};

std::optional<Mixture> Shifted(const SeenProblem& problem, const SeenRow& row, EdgeShift shift) {
  Mixture mixture = row.Right();
  if (shift.older > 0) {
    AddRange(problem, row, row.first - shift.older, row.first, KeySet::kHidden, 1, &mixture);
  } else if (shift.older < 0) {
    const int64_t to = std::min(row.first - shift.older, row.last);
    AddRange(problem, row, row.first, to, KeySet::kVisible, -1, &mixture);
  }
  if (shift.later > 0) {
    AddRange(problem, row, row.last + 1, row.last + 1 + shift.later, KeySet::kHidden, 1, &mixture);
  } else if (shift.later < 0) {
    const int64_t from = std::max(row.last + 1 + shift.later, row.first + 1);
    AddRange(problem, row, from, row.last + 1, KeySet::kVisible, -1, &mixture);
  }
  if (mixture.share == 1) return std::nullopt;
  return mixture;
}

// The edges of the visible keys, moved by one number of keys in all rows.
class Edges : public std::enable_shared_from_this<Edges> {
 public:
  explicit Edges(Causes* causes) : causes_(*causes), problem_(causes->problem()) {
    for (const SeenRow& row : causes->rows()) {
      most_older_ = std::max(most_older_, row.first);
      most_later_ = std::max(most_later_, problem_.kv_len - 1 - row.last);
      most_seen_ = std::max(most_seen_, row.last - row.first);
      last_varies_ = last_varies_ || row.last != causes->rows()[0].last;
      first_varies_ = first_varies_ || row.first != causes->rows()[0].first;
    }
  }

  void Run() {
    Search(
        most_older_, [](int64_t n) { return EdgeShift{n, 0}; },
        [this](int64_t n) { return OlderSeen(n); });
    Search(
        most_seen_, [](int64_t n) { return EdgeShift{-n, 0}; },
        [this](int64_t n) { return FirstLost(n); });
    Search(
        most_later_, [](int64_t n) { return EdgeShift{0, n}; },
        [this](int64_t n) { return LaterSeen(n); });
    Search(
        most_seen_, [](int64_t n) { return EdgeShift{0, -n}; },
        [this](int64_t n) { return LastLost(n); });
    if (most_older_ > 0 || most_later_ > 0) {
      Search(
          most_seen_, [](int64_t n) { return EdgeShift{-n, n}; },
          [](int64_t n) { return Moved("later", n); });
      Search(
          most_seen_, [](int64_t n) { return EdgeShift{n, -n}; },
          [](int64_t n) { return Moved("earlier", n); });
    }
    AddTiles();
  }

 private:
  static CauseText Moved(const std::string& to, int64_t n) {
    return {"position off",
            fmt::format("what each query sees lies {} too far to the {} keys", Count(n, "key"), to),
            3};
  }

  bool IsAlignment(int64_t n, CausalAlignment asked) const {
    return causes_.c().mask.causal == asked && n == problem_.kv_len - causes_.c().query_len;
  }

  CauseText OlderSeen(int64_t n) const {
    const MaskSpec& mask = causes_.c().mask;
    const bool all = n >= most_older_;
    if (mask.window && all) return {"window ignored", "the window is not applied", 0};
    if (mask.window) {
      return {n == 1 ? "one older key visible" : "window off",
              fmt::format("the window is {} too long: {} in place of {}", Count(n, "key"),
                          *mask.window + n, *mask.window),
              1};
    }
    if (n == 1) {
      return {"one older key visible",
              "the key before the first visible one takes part: a window of one key too many, or "
              "padding leaks",
              1};
    }
    if (!mask.left_padding.empty() && all) {
      return {"padding ignored", "left padding takes part", 0};
    }
    return {"older keys visible",
            fmt::format("the {} before the first visible one take part", Count(n, "key")), 1};
  }

  CauseText FirstLost(int64_t n) const {
    const MaskSpec& mask = causes_.c().mask;
    if (mask.window && *mask.window > n && most_older_ > 0) {
      return {n == 1 ? "first key missing" : "window off",
              fmt::format("the window is {} too short: {} in place of {}", Count(n, "key"),
                          *mask.window - n, *mask.window),
              1};
    }
    if (n == 1) {
      return {"first key missing",
              "the first visible key is left out: window, padding or sink off by one", 1};
    }
    return {"first keys missing",
            fmt::format("the first {} that a query sees are left out", Count(n, "key")),
            first_varies_ ? 1 : 3};
  }

  CauseText LaterSeen(int64_t n) const {
    if (IsAlignment(n, CausalAlignment::kTopLeft)) {
      return {"causal alignment", "the causal mask is bottom-right in place of top-left", 0};
    }
    if (causes_.c().mask.causal != CausalAlignment::kNone && n >= most_later_ && n > 1) {
      return {"causal mask ignored", "the causal mask is not applied", 0};
    }
    if (n == 1) {
      return {"next key visible",
              "the key after the last visible one takes part: future or padding leaks", 1};
    }
    return {"later keys visible",
            fmt::format("the {} after the last visible one take part: future or padding leaks",
                        Count(n, "key")),
            1};
  }

  CauseText LastLost(int64_t n) const {
    if (IsAlignment(n, CausalAlignment::kBottomRight)) {
      return {"causal alignment", "the causal mask is top-left in place of bottom-right", 0};
    }
    if (n == 1) {
      return {"last key missing",
              "the last visible key is left out: causal mask or length off by one", 0};
    }
    return {"last keys missing",
            fmt::format("the last {} that a query sees are left out", Count(n, "key")),
            last_varies_ ? 1 : 3};
  }

  template <typename Shift, typename Text>
  void Search(int64_t most, const Shift& shift, const Text& text) {
    if (most < 1) return;
    const auto predict = [&](int64_t n) {
      return [this, shift = shift(n)](const SeenRow& row, size_t) {
        return Shifted(problem_, row, shift);
      };
    };
    std::set<int64_t> tried;
    for (int64_t n = 1; n < most; n = n < 64 ? n + 1 : n + n / 5) tried.insert(n);
    tried.insert(most);
    const int64_t alignment = problem_.kv_len - causes_.c().query_len;
    if (alignment > 0 && alignment < most) tried.insert(alignment);
    std::vector<std::pair<double, int64_t>> found;
    for (const int64_t n : tried) found.push_back({causes_.Misfit(problem_.screen, predict(n)), n});
    std::sort(found.begin(), found.end());
    const std::vector<size_t> all = AllRows(causes_);
    std::set<int64_t> added;
    for (size_t i = 0; i < std::min<size_t>(2, found.size()); ++i) {
      int64_t n = found[i].second;
      double misfit = causes_.Misfit(all, predict(n));
      for (int64_t by = n < 64 ? 1 : n / 4; by > 0; by /= 2) {
        for (bool moved = true; moved;) {
          moved = false;
          for (const int64_t other : {n - by, n + by}) {
            if (other < 1 || other > most) continue;
            const double misfit_of_other = causes_.Misfit(all, predict(other));
            if (!(misfit_of_other < misfit)) continue;
            n = other, misfit = misfit_of_other, moved = true;
            break;
          }
        }
      }
      if (!added.insert(n).second) continue;
      CauseText what = text(n);
      what.choices = static_cast<double>(most);
      Candidate* candidate = causes_.Add(std::move(what), predict(n));
      if (candidate == nullptr) continue;
      candidate->doubt = [self = shared_from_this(), all, n, most, misfit, shift](double least) {
        int64_t off = 0;
        for (int64_t by = 1; by <= 64; by *= 2) {
          bool is_open = false;
          for (const int64_t other : {n - by, n + by}) {
            if (other < 1 || other > most) continue;
            const auto moved = [&self, of = shift(other)](const SeenRow& row, size_t) {
              return Shifted(self->problem_, row, of);
            };
            is_open = is_open || self->causes_.Misfit(all, moved) - misfit < least;
          }
          if (!is_open) break;
          off = by;
        }
        return off == 0 || n >= most ? "" : fmt::format(" (known to within {})", Count(off, "key"));
      };
    }
  }

  // Tiles of keys, and of queries, to whose ends a mask is rounded.
  void AddTiles() {
    const bool is_own = first_varies_ || last_varies_;
    for (const int64_t tile : {8, 16, 32, 64, 128, 256}) {
      if (tile > 2 * problem_.kv_len) break;
      const auto add = [&](std::string name, std::string text, const auto& shift_of) {
        causes_.Add(
            {std::move(name), std::move(text), is_own ? 1 : 4, 0, 12},
            [&](const SeenRow& row, size_t) { return Shifted(problem_, row, shift_of(row)); });
      };
      add("tile without its mask",
          fmt::format("the mask is not applied inside the tile of {} keys on the diagonal", tile),
          [&](const SeenRow& row) { return EdgeShift{0, tile - 1 - row.last % tile}; });
      add("tile without its mask",
          fmt::format("queries see the keys of the last query of their tile of {}", tile),
          [&](const SeenRow& row) {
            const int64_t last =
                std::min(causes_.c().query_len, (row.query.query / tile + 1) * tile) - 1;
            return EdgeShift{0, last - row.query.query};
          });
      add("tile without its mask",
          fmt::format("the window is not applied inside its first tile of {} keys", tile),
          [&](const SeenRow& row) { return EdgeShift{row.first % tile, 0}; });
      add("tile left out", fmt::format("the tile of {} keys on the diagonal is left out", tile),
          [&](const SeenRow& row) { return EdgeShift{0, -(row.last % tile + 1)}; });
      add("tile left out", fmt::format("the window's first tile of {} keys is left out", tile),
          [&](const SeenRow& row) {
            return EdgeShift{row.first % tile == 0 ? 0 : row.first % tile - tile, 0};
          });
    }
  }

  Causes& causes_;
  const SeenProblem& problem_;
  int64_t most_older_ = 0, most_later_ = 0, most_seen_ = 0;
  // Where an edge is the same in all rows, what moves it is a range of keys as well.
  bool first_varies_ = false, last_varies_ = false;
};

enum class RangeFault { kLost, kTwice, kSeen, kNoValues };

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
    Find(RangeFault::kLost), Find(RangeFault::kTwice), Find(RangeFault::kNoValues);
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
    return fault == RangeFault::kLost || fault == RangeFault::kNoValues;
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
    const std::vector<size_t> all = AllRows(causes_);
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
    const std::vector<size_t> all = AllRows(causes_);
    int64_t off = 0;
    for (int64_t by = 1; by <= 64; by *= 2) {
      bool is_open = false;
      for (const auto& [from, to] :
           {std::pair(range.from - by, range.to), std::pair(range.from + by, range.to),
            std::pair(range.from, range.to - by), std::pair(range.from, range.to + by)}) {
        if (from < 0 || to > problem_.kv_len || from >= to) continue;
        is_open = is_open || MisfitOver(all, fault, from, to) - range.misfit < least;
      }
      if (!is_open) break;
      off = by;
    }
    return off == 0 ? "" : fmt::format(" (the edges are known to within {})", Count(off, "key"));
  }

  Causes& causes_;
  const SeenProblem& problem_;
  int64_t first_hidden_ = INT64_MAX, last_hidden_ = -1;
};

// Single pairs of query and key, over heads: what a mask of the kernel's own shows or hides.
class Pairs {
 public:
  explicit Pairs(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    constexpr double kMostSums = 1 << 22;
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      const QueryIndex& query = causes_.rows()[r].query;
      groups_[{query.batch, query.query}].push_back(r);
    }
    const auto n = static_cast<double>(problem_.kv_len);
    const double pairs = n * static_cast<double>(groups_.size());
    if (pairs > kMostSums) return;
    const double limit = std::sqrt(2 * std::log(2e3 * pairs));
    std::vector<Pair> found;
    for (const auto& [index, rows] : groups_) {
      for (int64_t j = 0; j < problem_.kv_len; ++j) {
        const auto at = static_cast<size_t>(j);
        const bool is_visible = causes_.rows()[rows[0]].is_visible[at] != 0;
        double a = 0, d = 0, left = 1;
        for (const size_t r : rows) {
          if ((causes_.rows()[r].is_visible[at] != 0) != is_visible) continue;
          a += causes_.sums()[r].a[at];
          d += causes_.sums()[r].d[at];
          left = std::min(left, 1 - causes_.rows()[r].weight[at]);
        }
        const double z = d > 0 ? a / std::sqrt(d) : 0;
        if (!(is_visible ? -z > limit : z > limit)) continue;
        found.push_back({std::fabs(z), index, j, is_visible});
      }
    }
    if (found.empty()) return;
    std::sort(found.begin(), found.end(), [](const Pair& x, const Pair& y) {
      return std::tie(y.z, x.key, x.query) < std::tie(x.z, y.key, y.query);
    });
    found.resize(std::min(found.size(), 4 * kMostPairs));
    Take(found, pairs);
  }

 private:
  static constexpr size_t kMostPairs = 32;
  using Query = std::pair<int64_t, int64_t>;  // batch row and query
  struct Pair {
    double z = 0;
    Query query;
    int64_t key = 0;
    bool is_visible = false;
  };

  // The strongest first, as long as each makes it better by more than its choice costs.
  void Take(const std::vector<Pair>& found, double pairs) {
    std::vector<Mixture> mixtures;
    std::vector<double> misfits;
    for (const SeenRow& row : causes_.rows()) {
      mixtures.push_back(row.Right());
      misfits.push_back(MisfitOf(row, row.o));
    }
    std::vector<Pair> taken;
    const double price = 2 * std::log(pairs) + 20;
    for (const Pair& pair : found) {
      const std::vector<size_t>& rows = groups_.at(pair.query);
      std::vector<Mixture> changed;
      std::vector<double> left;
      double gain = 0;
      for (const size_t r : rows) {
        changed.push_back(mixtures[r]);
        AddKey(causes_.rows()[r], pair.key, pair.is_visible ? -1 : 1, &changed.back());
        left.push_back(MisfitOf(causes_.rows()[r], changed.back()));
        gain += misfits[r] - left.back();
      }
      if (!(gain > price)) continue;
      for (size_t i = 0; i < rows.size(); ++i) {
        mixtures[rows[i]] = std::move(changed[i]);
        misfits[rows[i]] = left[i];
      }
      taken.push_back(pair);
    }
    // A list of more says less than that nothing explains them.
    if (taken.empty() || taken.size() > kMostPairs) return;
    std::sort(taken.begin(), taken.end(), [](const Pair& x, const Pair& y) {
      return std::tie(x.query, x.key) < std::tie(y.query, y.key);
    });
    causes_.Add(
        {NameOf(taken), TextOf(taken), 2, 0, std::pow(pairs, static_cast<double>(taken.size()))},
        [&](const SeenRow&, size_t r) -> std::optional<Mixture> {
          if (r >= mixtures.size()) return std::nullopt;
          return mixtures[r];
        });
  }

  static std::string NameOf(const std::vector<Pair>& pairs) {
    const bool seen =
        std::any_of(pairs.begin(), pairs.end(), [](const Pair& pair) { return !pair.is_visible; });
    const bool lost =
        std::any_of(pairs.begin(), pairs.end(), [](const Pair& pair) { return pair.is_visible; });
    return seen && lost ? "pairs exchanged" : seen ? "hidden pairs visible" : "visible pairs lost";
  }

  // The keys of these pairs, where every query has all of them; else empty.
  std::vector<int64_t> KeysOfAll(const std::vector<Pair>& pairs, bool lost) const {
    std::map<Query, std::vector<int64_t>> of;
    for (const Pair& pair : pairs) {
      if (pair.is_visible == lost) of[pair.query].push_back(pair.key);
    }
    const bool has_others = groups_.size() > 1 || causes_.c().query_len == 1;
    if (of.size() != groups_.size() || !has_others) return {};
    for (const auto& [query, keys] : of) {
      if (keys != of.begin()->second) return {};
    }
    return of.begin()->second;
  }

  std::string TextOf(const std::vector<Pair>& pairs) const {
    std::string text;
    for (const bool lost : {false, true}) {
      constexpr size_t kShown = 8;
      std::vector<std::string> each;
      std::string one = "pair";
      if (const std::vector<int64_t> keys = KeysOfAll(pairs, lost); !keys.empty()) {
        one = "key";
        for (const int64_t key : keys) each.push_back(std::to_string(key));
      } else {
        for (const Pair& pair : pairs) {
          if (pair.is_visible != lost) continue;
          const std::string of =
              causes_.c().batch > 1 ? fmt::format("batch row {}, ", pair.query.first) : "";
          each.push_back(fmt::format("{}query {} key {}{}", of, pair.query.second, pair.key,
                                     each.size() < kShown ? Relation(pair) : ""));
        }
      }
      if (each.empty()) continue;
      const size_t count = each.size();
      const std::string what = fmt::format("that the mask {} {} {}", lost ? "shows" : "hides",
                                           count == 1 ? "is" : "are", lost ? "lost" : "seen");
      each.resize(std::min(count, kShown));
      text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ",
                          Count(static_cast<int64_t>(count), one), what,
                          fmt::join(each, one == "key" ? ", " : "; "));
      if (count > kShown) text += fmt::format(" and {} more", count - kShown);
    }
    return text;
  }

  // In a token tree a key is a sibling if its own query sees the same keys, and itself.
  std::string Relation(const Pair& pair) const {
    const AttentionCase& c = causes_.c();
    const int64_t own = pair.key - (c.kv_len - c.query_len);
    if (pair.is_visible || own < 0 || own == pair.query.second) return "";
    const auto keys = [&](int64_t query) {
      VisibleSet set = problem_.asked.mask.Visible({pair.query.first, 0, query});
      std::set<int32_t> of(set.keys.begin(), set.keys.end());
      of.erase(static_cast<int32_t>(c.kv_len - c.query_len + query));
      return of;
    };
    return keys(own) == keys(pair.query.second) ? " (a sibling)" : "";
  }

  Causes& causes_;
  const SeenProblem& problem_;
  std::map<Query, std::vector<size_t>> groups_;
};

// What another row of the mask would show, or another mask.
class Masks {
 public:
  explicit Masks(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    const AttentionCase& c = causes_.c();
    if (c.mask.array == MaskArrayKind::kNone) return;
    const MaskAxes axes = c.mask.axes;
    AttentionCase without = c;
    without.mask.array = MaskArrayKind::kNone;
    const MaskReader none(without, problem_.asked.profile, problem_.asked.inputs);
    Add({"mask array ignored", "the mask array is not applied", 0},
        [&](const QueryIndex& query) { return none.Visible(query); });
    if (c.mask.array == MaskArrayKind::kBoolean) {
      Add({"boolean mask inverted", "the boolean mask is inverted: true for hidden", 0},
          [&](const QueryIndex& query) {
            VisibleSet set = none.Visible(query);
            const std::vector<int32_t> own = problem_.asked.mask.Visible(query).keys;
            KeepOthers(own, &set);
            return set;
          });
    }
    const auto of = [&](const std::string& name, const std::string& text, const auto& other) {
      Add({name, text, 0, 0, 8},
          [&](const QueryIndex& query) { return problem_.asked.mask.Visible(other(query)); });
    };
    if (axes == MaskAxes::kBHLT && c.query_heads > 1) {
      for (const int64_t by : {int64_t{1}, c.query_heads - 1}) {
        of("mask of another head",
           fmt::format("the mask is that of the {} head", by == 1 ? "next" : "previous"),
           [&](QueryIndex q) {
             q.query_head = (q.query_head + by) % c.query_heads;
             return q;
           });
      }
      of("mask of another head", "the mask of head 0 is applied to all heads", [](QueryIndex q) {
        q.query_head = 0;
        return q;
      });
    }
    if (axes != MaskAxes::kT && axes != MaskAxes::kB11T && c.query_len > 1) {
      for (const int64_t by : {int64_t{1}, c.query_len - 1}) {
        of("mask of another query",
           fmt::format("the mask is that of the {} query", by == 1 ? "next" : "previous"),
           [&](QueryIndex q) {
             q.query = (q.query + by) % c.query_len;
             return q;
           });
      }
      of("mask of another query", "the mask of query 0 is applied to all queries",
         [](QueryIndex q) {
           q.query = 0;
           return q;
         });
    }
    if (axes != MaskAxes::kT && axes != MaskAxes::kLT && c.batch > 1) AddBatchRows();
  }

 private:
  // The keys that are visible without the mask array, and hidden by it.
  static void KeepOthers(const std::vector<int32_t>& own, VisibleSet* set) {
    size_t kept = 0;
    for (size_t i = 0; i < set->keys.size(); ++i) {
      if (std::binary_search(own.begin(), own.end(), set->keys[i])) continue;
      set->keys[kept] = set->keys[i];
      if (!set->bias.empty()) set->bias[kept] = set->bias[i];
      ++kept;
    }
    set->keys.resize(kept);
    if (!set->bias.empty()) set->bias.resize(kept);
  }

  // Each head of each batch row may have the mask of another one.
  void AddBatchRows() {
    const AttentionCase& c = causes_.c();
    constexpr int64_t kMostBatches = 64;
    const int64_t batches = std::min(c.batch, kMostBatches);
    std::map<std::pair<int64_t, int64_t>, std::vector<double>> misfits;
    std::vector<std::vector<std::optional<Mixture>>> under(causes_.rows().size());
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      const SeenRow& row = causes_.rows()[r];
      auto& of = misfits[{row.query.batch, row.query.query_head}];
      of.resize(static_cast<size_t>(batches), 0);
      for (int64_t b = 0; b < batches; ++b) {
        QueryIndex other = row.query;
        other.batch = b;
        under[r].push_back(Under(row, problem_.asked.mask.Visible(other)));
        of[static_cast<size_t>(b)] +=
            under[r].back() ? MisfitOf(row, *under[r].back()) : MisfitOf(row, row.o);
      }
    }
    std::map<std::pair<int64_t, int64_t>, size_t> chosen;
    std::vector<std::string> shown;
    for (const auto& [index, of] : misfits) {
      const auto best = static_cast<size_t>(std::min_element(of.begin(), of.end()) - of.begin());
      chosen[index] = best;
      shown.push_back(fmt::format("b={} hq={}: that of {}", index.first, index.second, best));
    }
    std::string text = "the mask is that of another batch row: ";
    const size_t count = shown.size();
    shown.resize(std::min<size_t>(count, 8));
    text += fmt::format("{}", fmt::join(shown, "; "));
    if (count > 8) text += fmt::format(" and {} more", count - 8);
    causes_.Add({"mask of another batch row", text, 0, 0,
                 std::pow(static_cast<double>(batches), static_cast<double>(count))},
                [&](const SeenRow& row, size_t r) -> std::optional<Mixture> {
                  if (r >= under.size()) return std::nullopt;
                  return under[r][chosen.at({row.query.batch, row.query.query_head})];
                });
  }

  // The row over other keys, with their bias.
  std::optional<Mixture> Under(const SeenRow& row, const VisibleSet& set) const {
    Mixture mixture = {std::vector<double>(problem_.channels, 0), row.sink_weight};
    if (set.keys.empty()) {
      if (problem_.asked.profile.masked_row != MaskedRow::kZero) return std::nullopt;
      mixture.share = 1;
      return mixture;
    }
    for (size_t i = 0; i < set.keys.size(); ++i) {
      const auto at = static_cast<size_t>(set.keys[i]);
      const double own = row.bias.empty() ? 0 : row.bias[at];
      const double bias = set.bias.empty() ? 0 : set.bias[i];
      AddKey(row, set.keys[i], bias == own ? 1 : std::exp(bias - own), &mixture);
    }
    return mixture;
  }

  template <typename Visible>
  void Add(CauseText what, const Visible& visible) {
    causes_.AddIfLikely(std::move(what),
                        [&](const SeenRow& row, size_t) { return Under(row, visible(row.query)); });
  }

  Causes& causes_;
  const SeenProblem& problem_;
};

// The key with the largest weight of each row, whichever it is.
void AddHeaviest(Causes* causes) {
  causes->Add({"heaviest key missing", "the key with the largest weight is left out", 3},
              [](const SeenRow& row, size_t) -> std::optional<Mixture> {
                int64_t heaviest = -1;
                double largest = 0;
                for (int64_t j = row.first; j <= row.last; ++j) {
                  const auto at = static_cast<size_t>(j);
                  if (row.is_visible[at] == 0 || !(row.weight[at] > largest)) continue;
                  heaviest = j, largest = row.weight[at];
                }
                if (heaviest < 0 || row.first == row.last) return std::nullopt;
                Mixture mixture = row.Right();
                AddKey(row, heaviest, -1, &mixture);
                return mixture;
              });
}

}  // namespace

void AddCausesOfKeys(Causes* causes) {
  std::make_shared<Edges>(causes)->Run();
  std::make_shared<Ranges>(causes)->Run();
  Pairs(causes).Run();
  Masks(causes).Run();
  AddHeaviest(causes);
}

}  // namespace kvcheck
