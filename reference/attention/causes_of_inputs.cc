// Causes by which a query reads other rows of K and V: those of another head or batch row, other
// pages, V out of K, rows that are stale.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

// K, V or both of another head, or of another batch row.
class OtherHeads {
 public:
  explicit OtherHeads(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    const AttentionCase& c = causes_.c();
    if (c.kv_heads > 1) {
      const int64_t heads = c.kv_heads;
      AddHead("h mod Hkv in place of h / (Hq / Hkv)",
              [heads](const SeenRow& row) { return row.query.query_head % heads; });
      AddHead("the next one", [heads](const SeenRow& row) { return (row.kv_head + 1) % heads; });
      AddHead("the previous one",
              [heads](const SeenRow& row) { return (row.kv_head + heads - 1) % heads; });
      AddHead("head 0 for all", [](const SeenRow&) { return int64_t{0}; });
      AddHead("in reversed order", [heads](const SeenRow& row) { return heads - 1 - row.kv_head; });
    }
    if (c.batch > 1) {
      const int64_t batches = c.batch;
      AddBatch("the next one",
               [batches](const SeenRow& row) { return (row.query.batch + 1) % batches; });
      AddBatch("the previous one",
               [batches](const SeenRow& row) { return (row.query.batch + batches - 1) % batches; });
      AddBatch("batch row 0", [](const SeenRow&) { return int64_t{0}; });
    }
  }

 private:
  template <typename Head>
  void AddHead(const std::string& which, const Head& head) {
    Add("other key/value head", "another key/value head is read: " + which, true, true, head,
        [](const SeenRow& row) { return row.query.batch; });
    Add("wrong K head", "K alone is read from another key/value head: " + which, true, false, head,
        [](const SeenRow& row) { return row.query.batch; });
    Add("wrong V head", "V alone is read from another key/value head: " + which, false, true, head,
        [](const SeenRow& row) { return row.query.batch; });
  }

  template <typename Batch>
  void AddBatch(const std::string& which, const Batch& batch) {
    const auto own = [](const SeenRow& row) { return row.kv_head; };
    Add("keys of another batch row", "K and V are those of another batch row: " + which, true, true,
        own, batch);
    Add("keys of another batch row", "K alone is that of another batch row: " + which, true, false,
        own, batch);
    Add("keys of another batch row", "V alone is that of another batch row: " + which, false, true,
        own, batch);
  }

  template <typename Head, typename Batch>
  void Add(std::string name, std::string text, bool k, bool v, const Head& head,
           const Batch& batch) {
    std::vector<int64_t> read = {k ? 1 : 0, v ? 1 : 0};
    for (const SeenRow& row : causes_.rows()) {
      read.push_back(batch(row) * causes_.c().kv_heads + head(row));
    }
    if (!tried_.insert(std::move(read)).second) return;
    causes_.AddIfLikely({std::move(name), std::move(text), 0, 0, 16},
                        [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                          const int64_t of_batch = batch(row), of_head = head(row);
                          if (of_batch == row.query.batch && of_head == row.kv_head) {
                            return std::nullopt;
                          }
                          const auto other = problem_.asked.head(of_batch, of_head);
                          Rescored change;
                          if (k) change.k = &other->k.hi;
                          if (v) change.v = &other->v.hi;
                          return Rescore(problem_, row, change);
                        });
  }

  Causes& causes_;
  const SeenProblem& problem_;
  std::set<std::vector<int64_t>> tried_;  // what is read, and from where
};

// The weights as they are over other values: of(row, key) -> values of the key.
template <typename Values>
std::optional<Mixture> Weighted(const SeenProblem& problem, const SeenRow& row,
                                const Values& values) {
  Mixture mixture = {std::vector<double>(problem.channels, 0), 1};
  for (int64_t j = row.first; j <= row.last; ++j) {
    const auto at = static_cast<size_t>(j);
    if (row.is_visible[at] == 0 || row.weight[at] == 0) continue;
    const double* v = values(row, j);
    for (size_t c = 0; c < problem.channels; ++c) mixture.sum[c] += row.weight[at] * v[c];
  }
  return mixture;
}

void AddOtherValues(Causes* causes) {
  const SeenProblem& problem = causes->problem();
  const AttentionCase& c = causes->c();
  const auto over = [&](const auto& values) {
    return
        [&problem, values](const SeenRow& row, size_t) { return Weighted(problem, row, values); };
  };
  if (c.k_dim >= c.v_dim) {
    causes->AddIfLikely({"V read from K", "V is read from K", 0},
                        over([dim = c.k_dim](const SeenRow& row, int64_t key) {
                          return &row.head->k.hi[static_cast<size_t>(key * dim)];
                        }));
  }
  if (c.k_dim == c.v_dim) {
    causes->AddIfLikely({"K read from V", "K is read from V", 0},
                        [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                          return Rescore(problem, row, {.cap = {}, .k = &row.head->v.hi});
                        });
  }
  for (const int64_t by : {1, -1}) {
    causes->AddIfLikely({"V rows shifted",
                         fmt::format("the row of V {} each key is read in place of its own",
                                     by == 1 ? "after" : "before"),
                         0, 0, 2},
                        over([by, n = problem.kv_len](const SeenRow& row, int64_t key) {
                          return row.Values(std::clamp<int64_t>(key + by, 0, n - 1));
                        }));
  }
  causes->Add({"last values swapped", "the V rows of the last two keys are exchanged", 1},
              [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                int64_t before = row.last - 1;
                while (before >= row.first && row.is_visible[static_cast<size_t>(before)] == 0) {
                  --before;
                }
                if (before < row.first) return std::nullopt;
                const double gap = row.weight[static_cast<size_t>(before)] -
                                   row.weight[static_cast<size_t>(row.last)];
                Mixture mixture = row.Right();
                const double* a = row.Values(before);
                const double* b = row.Values(row.last);
                for (size_t i = 0; i < problem.channels; ++i) mixture.sum[i] += gap * (b[i] - a[i]);
                return mixture;
              });
}

// A row of V that holds something else, per batch row and key/value head; a row of K that does,
// whose weight is then wrong by another factor in each row.
class StaleRows {
 public:
  explicit StaleRows(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      const SeenRow& row = causes_.rows()[r];
      groups_[{row.query.batch, row.kv_head}].push_back(r);
    }
    if (causes_.rows().size() < 2) return;
    AddK();
    AddV();
  }

 private:
  void AddK() {
    const auto n = static_cast<size_t>(problem_.kv_len);
    std::vector<double> gain(n, 0);
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      const KeySums& sums = causes_.sums()[r];
      for (size_t j = 0; j < n; ++j) {
        if (causes_.rows()[r].is_visible[j] != 0 && sums.d[j] > 0) {
          gain[j] += sums.a[j] * sums.a[j] / sums.d[j];
        }
      }
    }
    const auto key = std::max_element(gain.begin(), gain.end()) - gain.begin();
    causes_.Add(
        {"weight of a key wrong",
         fmt::format("the weight of key {} is wrong, in each row by another factor: its row "
                     "of K is not what it should be",
                     key),
         4, static_cast<double>(causes_.rows().size()), static_cast<double>(n)},
        [&](const SeenRow& row, size_t r) -> std::optional<Mixture> {
          const auto at = static_cast<size_t>(key);
          const double d = causes_.sums()[r].d[at];
          if (row.is_visible[at] == 0 || !(d > 0)) return std::nullopt;
          const double change = causes_.sums()[r].a[at] / d * row.weight[at];
          Mixture mixture = row.Right();
          const double* v = row.Values(key);
          for (size_t c = 0; c < problem_.channels; ++c) {
            mixture.sum[c] += change * (v[c] - row.o[c]);
          }
          return mixture;
        });
  }

  // What the values of a key would have to differ by, of one group, and the gain of it.
  double Differences(const std::vector<size_t>& group, int64_t key,
                     std::vector<double>* differences) const {
    std::vector<double> square(problem_.channels, 0);
    differences->assign(problem_.channels, 0);
    for (const size_t r : group) {
      const SeenRow& row = causes_.rows()[r];
      const auto at = static_cast<size_t>(key);
      if (row.is_visible[at] == 0) continue;
      const double weight = row.weight[at];
      for (size_t c = 0; c < problem_.channels; ++c) {
        (*differences)[c] += weight * row.precision[c] * row.error[c];
        square[c] += weight * weight * row.precision[c];
      }
    }
    double gain = 0;
    for (size_t c = 0; c < problem_.channels; ++c) {
      if (!(square[c] > 0)) {
        (*differences)[c] = 0;
        continue;
      }
      gain += (*differences)[c] * (*differences)[c] / square[c];
      (*differences)[c] /= square[c];
    }
    return gain;
  }

  void AddV() {
    int64_t best = 0;
    double most = 0, second = 0;
    std::vector<double> differences;
    for (int64_t key = 0; key < problem_.kv_len; ++key) {
      double gain = 0;
      for (const auto& [index, group] : groups_) {
        if (group.size() > 1) gain += Differences(group, key, &differences);
      }
      if (gain > most) {
        second = most, most = gain, best = key;
      } else {
        second = std::max(second, gain);
      }
    }
    // Few rows do not tell keys apart, whose weights need only be in the right proportion.
    if (!(most - second > 0.01 * most)) return;
    if (most == 0) return;
    std::map<std::pair<int64_t, int64_t>, std::vector<double>> of;
    for (const auto& [index, group] : groups_) Differences(group, best, &of[index]);
    causes_.Add({"V row wrong",
                 fmt::format("row {} of V is not what it should be (stale, or overwritten)", best),
                 4, static_cast<double>(groups_.size() * problem_.channels),
                 static_cast<double>(problem_.kv_len)},
                [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                  const auto at = static_cast<size_t>(best);
                  if (row.is_visible[at] == 0) return std::nullopt;
                  Mixture mixture = row.Right();
                  const auto group = of.find({row.query.batch, row.kv_head});
                  if (group == of.end()) return std::nullopt;
                  const std::vector<double>& change = group->second;
                  for (size_t c = 0; c < problem_.channels; ++c) {
                    mixture.sum[c] += row.weight[at] * change[c];
                  }
                  return mixture;
                });
  }

  Causes& causes_;
  const SeenProblem& problem_;
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> groups_;  // batch row, kv head
};

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

void AddCausesOfInputs(Causes* causes) {
  OtherHeads(causes).Run();
  AddOtherValues(causes);
  StaleRows(causes).Run();
  Pages(causes).Run();
}

}  // namespace kvcheck
