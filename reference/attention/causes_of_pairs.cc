// Causes that concern single keys of a query, over heads: pairs of query and key that a mask of the
// kernel's own shows or hides, and the heaviest key of each row.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

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
    causes_.Add({NameOf(taken), TextOf(taken), 3, 0,
                 std::pow(pairs, static_cast<double>(taken.size())), true},
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
                          CountText(static_cast<int64_t>(count), one), what,
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

void AddCausesOfPairs(Causes* causes) {
  Pairs(causes).Run();
  AddHeaviest(causes);
}

}  // namespace kvcheck
