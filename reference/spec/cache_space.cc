#include "reference/spec/cache_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "reference/spec/glob.h"

namespace kvcheck {

bool NamesCacheFormat(const std::vector<std::string>& patterns, const KvFormat& format) {
  if (!IsOfCachesAlone(format)) return MatchesAnyGlob(patterns, Print(format));
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           const bool says_so = pattern == "*" || pattern.find(":r") != std::string::npos;
           return says_so && MatchesGlob(pattern, Print(format));
         });
}

bool CacheSpace::HasFormat(DType type, const KvFormat& format) const {
  if (!NamesCacheFormat(formats, format)) return false;
  return !(IsPlain(format) ? stored_as_given : scales_as_given) || RowDType(format) == type;
}

bool CacheSpace::HasFormats(DType type, const KvFormat& k, const KvFormat& v) const {
  if (!x.empty() && std::find(x.begin(), x.end(), type) == x.end()) return false;
  if (std::find(pairs.begin(), pairs.end(), std::pair{k, v}) != pairs.end()) {
    return !scales_as_given || (RowDType(k) == type && RowDType(v) == type);
  }
  if (!pairs.empty() && formats.empty()) return false;
  const bool same = same_format || !pairs.empty();
  return (!same || k == v) && HasFormat(type, k) && HasFormat(type, v);
}

std::string Describe(const CacheSpace& space) {
  std::vector<std::string> parts;
  if (!space.layouts.empty()) {
    parts.push_back(fmt::format("layouts {}", fmt::join(space.layouts, ", ")));
  }
  if (!space.formats.empty()) {
    parts.push_back(fmt::format("formats {}", fmt::join(space.formats, ", ")));
  }
  if (!space.pairs.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [k, v] : space.pairs) pairs.push_back(Print(k) + " with " + Print(v));
    parts.push_back(fmt::format("K {}", fmt::join(pairs, ", ")));
  }
  if (space.same_format) parts.emplace_back("K and V in one format");
  if (space.stored_as_given) parts.emplace_back("plain vectors stored as given");
  if (space.scales_as_given) parts.emplace_back("scales of the vectors' type");
  if (!space.x.empty()) {
    std::vector<std::string_view> types;
    for (const DType type : space.x) types.push_back(ShortName(type));
    parts.push_back(fmt::format("x {}", fmt::join(types, ", ")));
  }
  if (space.rows != SpaceRows::kAny) {
    parts.emplace_back(space.rows == SpaceRows::kSingle ? "rows single" : "rows batch");
  }
  if (!space.padding) parts.emplace_back("without padding");
  if (space.same_dims) parts.emplace_back("k_dim as v_dim");
  for (const auto& [has, name] : {std::pair{space.grouped, "grouped heads"},
                                  {space.empty_batch, "batches of no rows"},
                                  {space.window, "a window at attend"},
                                  {space.sinks, "sinks"}}) {
    if (!has) parts.push_back(fmt::format("without {}", name));
  }
  if (space.operations != CacheSpace().operations) {
    std::vector<std::string_view> names;
    for (int kind = 0; kind < kCacheOpKinds; ++kind) {
      if (space.Has(static_cast<CacheOpKind>(kind))) {
        names.push_back(Name(static_cast<CacheOpKind>(kind)));
      }
    }
    parts.push_back(fmt::format("operations {}", fmt::join(names, ", ")));
  }
  if (space.damages != CacheSpace().damages) {
    std::vector<std::string_view> names;
    for (int i = 0; i < kDamageKinds; ++i) {
      if (space.Has(static_cast<Damage>(i))) names.push_back(Name(static_cast<Damage>(i)));
    }
    parts.push_back(fmt::format("damages {}", fmt::join(names, ", ")));
  }
  return parts.empty() ? "everything" : fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace kvcheck
