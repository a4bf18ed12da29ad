// Causes by which pages of keys are read from another place of the same sequence, or of another
// one.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

// A page of keys in whose place another page is read: of the same sequence, or of another one in
// the same pool. Keys have no place of their own, so that a page may stand anywhere.
class Pages {
 public:
  explicit Pages(Causes* causes) : causes_(*causes), problem_(causes->problem()) {
    const AttentionCase& c = causes->c();
    std::set<int64_t> asked;
    for (const SeenRow& row : causes->rows()) asked.insert(row.query.batch);
    // The sequence of the rows is one: pages of several would be other ones in each.
    if (asked.size() != 1) return;
    own_ = *asked.begin();
    sources_.push_back(own_);
    for (int64_t by = 1; by < c.batch && std::ssize(sources_) < 4; ++by) {
      sources_.push_back((own_ + by) % c.batch);
    }
  }

  void Run() {
    if (sources_.empty()) return;
    Score();
    for (const int64_t page : {16, 32, 64, 128, 256}) {
      if (page >= problem_.kv_len) break;
      Find(page);
    }
    FindColumns();
  }

 private:
  static constexpr int64_t kPiece = 16;  // keys whose sums are kept

  struct Place {
    int64_t source = 0;  // index into sources_
    int64_t first = 0;   // key
  };

  // Weights that the keys of another batch row would have.
  std::vector<double> WeightsOf(const SeenRow& row, int64_t batch, int64_t from, int64_t to) const {
    const AttentionCase& c = causes_.c();
    const auto head = problem_.asked.head(batch, row.kv_head);
    const double cap = c.softcap.value_or(0);
    std::vector<double> weights;
    for (int64_t j = from; j < to; ++j) {
      const double* k = &head->k.hi[static_cast<size_t>(j * c.k_dim)];
      double dot = 0;
      for (size_t i = 0; i < row.q.size(); ++i) dot += row.q[i] * k[i];
      double s = dot * c.scale;
      if (cap > 0) s = cap * std::tanh(s / cap);
      const double weight = std::exp(s - row.max) / row.denominator;
      weights.push_back(std::isfinite(weight) ? weight : 0);
    }
    return weights;
  }

  void AddPlace(const SeenRow& row, Place place, int64_t count, double times,
                Mixture* mixture) const {
    const int64_t to = std::min(place.first + count, problem_.kv_len);
    const int64_t batch = sources_[static_cast<size_t>(place.source)];
    if (batch == own_) {
      for (int64_t j = place.first; j < to; ++j) AddKey(row, j, times, mixture);
      return;
    }
    const std::vector<double> weights = WeightsOf(row, batch, place.first, to);
    const auto head = problem_.asked.head(batch, row.kv_head);
    for (int64_t j = place.first; j < to; ++j) {
      const double weight = times * weights[static_cast<size_t>(j - place.first)];
      const double* v = &head->v.hi[static_cast<size_t>(j) * problem_.channels];
      for (size_t c = 0; c < problem_.channels; ++c) mixture->sum[c] += weight * v[c];
      mixture->share += weight;
    }
  }

  // Of pieces of kPiece keys, over some rows: sum of e.G / s^2 and of G^2 / s^2 with G = sum w (v -
  // o); `lost` of the visible keys, the others of whatever is there.
  void Score() {
    const int64_t pieces = (problem_.kv_len + kPiece - 1) / kPiece;
    const size_t count = static_cast<size_t>(pieces);
    along_.assign(sources_.size() + 1, std::vector<double>(count, 0));
    square_ = along_;
    constexpr int64_t kMostKeys = 1 << 17;
    const std::vector<size_t>& screen = problem_.screen;
    const auto used = std::min<size_t>(
        screen.size(), static_cast<size_t>(std::max<int64_t>(2, kMostKeys / problem_.kv_len)));
    for (size_t i = 0; i < used; ++i) {
      const SeenRow& row = causes_.rows()[screen[i]];
      for (size_t s = 0; s <= sources_.size(); ++s) {
        const bool is_lost = s == sources_.size();
        for (int64_t piece = 0; piece < pieces; ++piece) {
          Mixture mixture = {std::vector<double>(problem_.channels, 0), 0};
          if (is_lost) {
            AddRange(problem_, row, piece * kPiece, (piece + 1) * kPiece, KeySet::kVisible, 1,
                     &mixture);
          } else {
            AddPlace(row, {static_cast<int64_t>(s), piece * kPiece}, kPiece, 1, &mixture);
          }
          for (size_t c = 0; c < problem_.channels; ++c) {
            const double g = mixture.sum[c] - mixture.share * row.o[c];
            along_[s][static_cast<size_t>(piece)] += g * row.precision[c] * row.error[c];
            square_[s][static_cast<size_t>(piece)] += g * row.precision[c] * g;
          }
        }
      }
    }
  }

  // The pages of a source by z times sign, strongest first.
  std::vector<Place> Strongest(size_t source, int64_t page, double sign, size_t most) const {
    std::vector<std::pair<double, int64_t>> found;
    const int64_t pieces = std::ssize(along_[source]);
    const int64_t by = page / kPiece;
    for (int64_t first = 0; first < pieces; first += by) {
      double along = 0, square = 0;
      for (int64_t piece = first; piece < std::min(first + by, pieces); ++piece) {
        along += along_[source][static_cast<size_t>(piece)];
        square += square_[source][static_cast<size_t>(piece)];
      }
      if (square > 0 && sign * along > 0) {
        found.push_back({sign * along / std::sqrt(square), first * kPiece});
      }
    }
    std::sort(found.begin(), found.end(), std::greater<>());
    std::vector<Place> places;
    for (size_t i = 0; i < std::min(most, found.size()); ++i) {
      places.push_back({static_cast<int64_t>(source), found[i].second});
    }
    return places;
  }

  void Find(int64_t page) {
    std::vector<Place> present;
    for (size_t s = 0; s < sources_.size(); ++s) {
      for (const Place& place : Strongest(s, page, 1, 2)) present.push_back(place);
    }
    double least = HUGE_VAL;
    Place best_lost, best_read;
    for (const Place& lost : Strongest(sources_.size(), page, -1, 3)) {
      for (const Place& read : present) {
        const double misfit = causes_.Misfit(problem_.screen, [&](const SeenRow& row, size_t) {
          return Replaced(row, lost.first, read, page);
        });
        if (misfit < least) least = misfit, best_lost = lost, best_read = read;
      }
    }
    if (!(least < HUGE_VAL)) return;
    const int64_t batch = sources_[static_cast<size_t>(best_read.source)];
    const std::string of =
        batch == own_ ? fmt::format("page {} of the same sequence", best_read.first / page)
                      : fmt::format("page {} of batch row {}", best_read.first / page, batch);
    const auto pages = static_cast<double>(problem_.kv_len) / static_cast<double>(page);
    causes_.Add({"page replaced",
                 fmt::format("page {} (pages of {}: keys {} to {}) is read from {}",
                             best_lost.first / page, page, best_lost.first,
                             std::min(best_lost.first + page, problem_.kv_len) - 1, of),
                 // One that is read twice may be one that is lost.
                 batch == own_ ? 3 : 1, 0, pages * pages * static_cast<double>(sources_.size())},
                [&](const SeenRow& row, size_t) {
                  return Replaced(row, best_lost.first, best_read, page);
                });
  }

  std::optional<Mixture> Replaced(const SeenRow& row, int64_t lost, Place read,
                                  int64_t page) const {
    Mixture mixture = row.Right();
    AddRange(problem_, row, lost, lost + page, KeySet::kVisible, -1, &mixture);
    // No more keys are read than the page shows.
    int64_t shown = std::min(lost + page, problem_.kv_len) - lost;
    while (shown > 0 && row.is_visible[static_cast<size_t>(lost + shown - 1)] == 0) --shown;
    AddPlace(row, read, shown, 1, &mixture);
    return mixture;
  }

  // From a column on, or up to it, the keys of another batch row.
  void FindColumns() {
    const int64_t n = problem_.kv_len;
    constexpr int64_t kMostKeys = 1 << 17;
    const auto used = std::min<int64_t>(std::ssize(problem_.screen), 4);
    if (n * used > kMostKeys) return;
    const std::vector<size_t> few(problem_.screen.begin(), problem_.screen.begin() + used);
    for (size_t s = 1; s < sources_.size(); ++s) {
      // The sums of a row before every column: over its own keys, and over the keys of the other.
      std::map<size_t, std::vector<Mixture>> own, other;
      const std::vector<int64_t> edges = ColumnEdges();
      for (const size_t r : few) {
        const SeenRow& row = causes_.rows()[r];
        Mixture of_own = {std::vector<double>(problem_.channels, 0), 0};
        Mixture of_other = of_own;
        for (size_t e = 0; e < edges.size(); ++e) {
          if (e > 0) {
            AddRange(problem_, row, edges[e - 1], edges[e], KeySet::kVisible, 1, &of_own);
            const int64_t to = std::min(edges[e], row.last + 1);
            if (edges[e - 1] < to) {
              AddPlace(row, {static_cast<int64_t>(s), edges[e - 1]}, to - edges[e - 1], 1,
                       &of_other);
            }
          }
          own[r].push_back(of_own);
          other[r].push_back(of_other);
        }
      }
      for (const bool is_prefix : {false, true}) {
        const auto at_edge = [&](size_t e) {
          return [&, e](const SeenRow& row, size_t r) -> std::optional<Mixture> {
            const size_t from = is_prefix ? 0 : e;
            const size_t to = is_prefix ? e : edges.size() - 1;
            Mixture mixture = row.Right();
            const auto change = [&](const std::vector<Mixture>& sums, double times) {
              for (size_t c = 0; c < problem_.channels; ++c) {
                mixture.sum[c] += times * (sums[to].sum[c] - sums[from].sum[c]);
              }
              mixture.share += times * (sums[to].share - sums[from].share);
            };
            change(own.at(r), -1);
            change(other.at(r), 1);
            return mixture;
          };
        };
        int64_t best = 0;
        double least = HUGE_VAL;
        for (size_t e = 1; e + 1 < edges.size(); ++e) {
          const double misfit = causes_.Misfit(few, at_edge(e));
          if (misfit < least) least = misfit, best = edges[e];
        }
        if (best == 0 || least > 0.5 * causes_.Misfit(few, [](const SeenRow&, size_t) {
              return std::optional<Mixture>();
            })) {
          continue;
        }
        AddColumns(s, is_prefix, best, few);
      }
    }
  }

  std::vector<int64_t> ColumnEdges() const {
    const int64_t step = problem_.kv_len <= 256 ? 1 : kPiece;
    std::vector<int64_t> edges;
    for (int64_t at = 0; at < problem_.kv_len; at += step) edges.push_back(at);
    edges.push_back(problem_.kv_len);
    return edges;
  }

  void AddColumns(size_t source, bool is_prefix, int64_t at, const std::vector<size_t>& few) {
    const auto predict = [&](int64_t column) {
      return
          [this, source, column, is_prefix](const SeenRow& row, size_t) -> std::optional<Mixture> {
            const int64_t from = is_prefix ? 0 : column;
            const int64_t to = std::min(is_prefix ? column : problem_.kv_len, row.last + 1);
            if (from >= to) return std::nullopt;
            Mixture mixture = row.Right();
            AddRange(problem_, row, from, to, KeySet::kVisible, -1, &mixture);
            AddPlace(row, {static_cast<int64_t>(source), from}, to - from, 1, &mixture);
            return mixture;
          };
    };
    double least = causes_.Misfit(few, predict(at));
    for (int64_t by = kPiece / 2; by > 0; by /= 2) {
      for (const int64_t column : {at - by, at + by}) {
        if (column < 1 || column >= problem_.kv_len) continue;
        const double misfit = causes_.Misfit(few, predict(column));
        if (misfit < least) least = misfit, at = column;
      }
    }
    causes_.AddIfLikely(
        {"keys of another batch row",
         fmt::format("keys {} are those of batch row {}",
                     is_prefix ? fmt::format("below {}", at) : fmt::format("from {} on", at),
                     sources_[source]),
         2, 0, static_cast<double>(problem_.kv_len) * static_cast<double>(sources_.size())},
        predict(at));
  }

  Causes& causes_;
  const SeenProblem& problem_;
  int64_t own_ = 0;
  std::vector<int64_t> sources_;                     // batch rows, the own one first
  std::vector<std::vector<double>> along_, square_;  // by source, the last: of what is lost
};

}  // namespace

void AddCausesOfPages(Causes* causes) { Pages(causes).Run(); }

}  // namespace kvcheck
