// Causes by which other rows of the mask array, or none, are applied.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

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

}  // namespace

void AddCausesOfMasks(Causes* causes) { Masks(causes).Run(); }

}  // namespace kvcheck
