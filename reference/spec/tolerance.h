// The rule by which two stored tensors are compared.
//
// Text: exact | ulp:N | abs:X | rel:Y | abs:X,rel:Y   (|got - want| <= X + Y |want|)

#ifndef REFERENCE_SPEC_TOLERANCE_H_
#define REFERENCE_SPEC_TOLERANCE_H_

#include <cstdint>
#include <string>
#include <variant>

#include "reference/spec/text.h"

namespace kvcheck {

struct ExactRule {
  bool operator==(const ExactRule&) const = default;
};
struct UlpRule {
  int64_t ulps = 0;
  bool operator==(const UlpRule&) const = default;
};
struct AbsRelRule {
  double absolute = 0;
  double relative = 0;
  bool operator==(const AbsRelRule&) const = default;
};
using ToleranceRule = std::variant<ExactRule, UlpRule, AbsRelRule>;

std::string Print(const ToleranceRule& rule);
ToleranceRule ParseToleranceRule(Piece piece);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TOLERANCE_H_
