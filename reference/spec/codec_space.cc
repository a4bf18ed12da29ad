#include "reference/spec/codec_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "reference/spec/glob.h"

namespace kvcheck {

bool CodecSpace::Has(const CodecCase& c) const {
  const auto one_of = [](const auto& list, auto value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  return MatchesAnyGlob(formats, Print(c.format)) && one_of(directions, c.direction) &&
         one_of(x, c.x);
}

std::string Describe(const CodecSpace& space) {
  std::vector<std::string> parts;
  if (!space.formats.empty()) {
    parts.push_back(fmt::format("formats {}", fmt::join(space.formats, ", ")));
  }
  if (!space.directions.empty()) {
    std::vector<std::string_view> names;
    for (const CodecDirection direction : space.directions) names.push_back(Name(direction));
    parts.push_back(fmt::format("directions {}", fmt::join(names, ", ")));
  }
  if (!space.x.empty()) {
    std::vector<std::string_view> names;
    for (const DType type : space.x) names.push_back(ShortName(type));
    parts.push_back(fmt::format("x {}", fmt::join(names, ", ")));
  }
  return parts.empty() ? "everything" : fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace kvcheck
