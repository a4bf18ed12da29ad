// The rule by which a stored tensor is compared.
//
// Text:
//   exact                          the same bits
//   ulp:N                          |got - want| <= N spacings of the type at want
//   abs:X | rel:Y | abs:X,rel:Y    |got - want| <= X + Y |want|
//   codec:FORMAT[,FIELD=VALUE]...  got is what a storage format keeps of want, within the format's
//                                  own bound (formats of kv_format.h; "affine:4:g64" without a
//                                  scale type takes the type of want)
//   derived                        within the bound that follows from the case and the plan
// Fields of a codec rule, each once, in any order:
//   a codec field of a profile     (codec_choices.h: decode=, encode=, mx_encode=, ...) that the
//                                  format leaves open; not stated: what its row says
//   codes=exact                    the stored planes (codes, scales and biases) are, bit for bit,
//                                  those of the encoder, which the format's encode field then has
//                                  to name

#ifndef REFERENCE_SPEC_TOLERANCE_H_
#define REFERENCE_SPEC_TOLERANCE_H_

#include <cstdint>
#include <string>
#include <variant>

#include "reference/spec/format_planes.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"
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
  // Of an integer X that no double is, what the nearest one leaves out.
  double absolute_low = 0;
  bool operator==(const AbsRelRule&) const = default;
};
struct CodecRule {
  KvFormat format = AffineFormat{};
  bool scale_type_of_want = false;  // the text names none: scale_dtype of format means nothing
  Profile profile;                  // its fields that are not stated have their defaults
  CodecChoiceSet stated;
  bool codes_exact = false;
  bool operator==(const CodecRule&) const = default;
};
struct CodecField;
// Whether the format leaves the field open and the rule does not state it.
bool IsOpen(const CodecRule& rule, const CodecField& field);

struct DerivedRule {
  bool operator==(const DerivedRule&) const = default;
};
using ToleranceRule = std::variant<ExactRule, UlpRule, AbsRelRule, CodecRule, DerivedRule>;

std::string Print(const ToleranceRule& rule);
// Errors: kParse with the column of what is not a rule.
ToleranceRule ParseToleranceRule(Piece piece);

// Whether a admits nothing that b does not, whatever the data: a later rule for which this is false
// may loosen an earlier one. exact is at least as tight as everything (what differs from nothing is
// within any distance); ulp:N and abs:X,rel:Y are ordered by their numbers, codec rules of one
// format by what they leave open. Between kinds only the tolerance 0 is ordered: otherwise the data
// decide. NaN is not a matter of rules.
bool AtLeastAsTight(const ToleranceRule& a, const ToleranceRule& b);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TOLERANCE_H_
