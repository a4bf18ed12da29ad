#include "reference/spec/attention_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "reference/spec/glob.h"

namespace kvcheck {

bool AttentionSpace::Has(const AttentionCase& c) const {
  const auto one_of = [](const std::vector<DType>& types, DType type) {
    return types.empty() || std::find(types.begin(), types.end(), type) != types.end();
  };
  return one_of(q, c.q) && one_of(out, c.out) && (!out_as_q || c.out == c.q) &&
         MatchesAnyGlob(k, Print(c.k)) && MatchesAnyGlob(v, Print(c.v)) &&
         (!same_format || c.k == c.v) && MatchesAnyGlob(masks, Print(c.mask)) &&
         (!same_dims || c.k_dim == c.v_dim) && (grouped || c.query_heads == c.kv_heads) &&
         (lse || c.lse == LseKind::kNone) && (sinks || !c.sinks) && (softcap || !c.softcap) &&
         (alibi || !c.alibi) && (against_original || !c.against_original);
}

std::string Describe(const AttentionSpace& space) {
  std::vector<std::string> parts;
  const auto types = [&](std::string_view what, const std::vector<DType>& list) {
    if (list.empty()) return;
    std::vector<std::string_view> names;
    for (const DType type : list) names.push_back(ShortName(type));
    parts.push_back(fmt::format("{} {}", what, fmt::join(names, ", ")));
  };
  const auto patterns = [&](std::string_view what, const std::vector<std::string>& list) {
    if (!list.empty()) parts.push_back(fmt::format("{} {}", what, fmt::join(list, ", ")));
  };
  types("q", space.q);
  types("out", space.out);
  if (space.out_as_q) parts.emplace_back("out as q");
  patterns("k", space.k);
  patterns("v", space.v);
  if (space.same_format) parts.emplace_back("K and V in one format");
  patterns("masks", space.masks);
  if (space.same_dims) parts.emplace_back("k_dim as v_dim");
  for (const auto& [has, name] : {std::pair{space.grouped, "grouped heads"},
                                  {space.lse, "lse"},
                                  {space.sinks, "sinks"},
                                  {space.softcap, "softcap"},
                                  {space.alibi, "alibi"},
                                  {space.against_original, "against_original"}}) {
    if (!has) parts.push_back(fmt::format("without {}", name));
  }
  return parts.empty() ? "everything" : fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace kvcheck
