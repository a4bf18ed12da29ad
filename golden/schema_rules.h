// What the writing and the reading side of the schema (schema_index.cc, schema_outline.cc) hold
// names and texts to.

#ifndef GOLDEN_SCHEMA_RULES_H_
#define GOLDEN_SCHEMA_RULES_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/schema.h"

namespace kvcheck {

// The texts of an observed record, by attribute name.
inline std::vector<std::pair<std::string, std::string ObservedRecord::*>> ObservedTexts() {
  return {{"implementation", &ObservedRecord::implementation},
          {"version", &ObservedRecord::version},
          {"machine", &ObservedRecord::machine},
          {"plan", &ObservedRecord::plan},
          {"profile", &ObservedRecord::profile},
          {"expect", &ObservedRecord::expect},
          {"reason", &ObservedRecord::reason}};
}

inline bool IsExpectation(std::string_view expect) {
  return expect == "PASS" || expect == "MISTRUSTED" || expect == "FAIL";
}

inline bool EndsWithLo(std::string_view name) { return name == "lo" || name.ends_with("_lo"); }

// "expected" or "expected_...": the datasets that are not inputs.
inline bool IsExpectedName(std::string_view name) {
  return name == "expected" || name.starts_with("expected_");
}

}  // namespace kvcheck

#endif  // GOLDEN_SCHEMA_RULES_H_
