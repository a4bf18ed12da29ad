// What shrunk cases with one cause have in common: the canonical form keeps the operations in the
// order of what they need, the family of layout and of format, and whether a number is 0, 1 or
// more; names of slots, sizes, types, seeds and the order of operations that do not touch each
// other are gone. Two shrunk cases of one form fail for one cause as far as a shrinker can tell; a
// new cause that shrinks to the form of a known one under the same signature is taken for it.

#ifndef TOOLS_CAMPAIGN_CANONICAL_FORM_H_
#define TOOLS_CAMPAIGN_CANONICAL_FORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/case.h"

namespace kvcheck {

// "new A ring:keep plain; append A n; append A 1" of a trace, "attention q=1 t=n heads=grouped
// affine:4 mask=bool:BHLT" of attention, "codec encode affine:4 rows=1" of a codec.
std::string CanonicalForm(const Case& c);

// What can be told of a failing case before it is shrunk, so that different cases are shrunk first.
struct CaseTraits {
  // Family of layout and format of the cache that the failing operation names, and whether it is a
  // batch: "ring:keep plain batch".
  std::string group;
  // Of a trace: the kinds of operations up to the failing one, a bit per CacheOpKind.
  uint32_t kinds = 0;
  bool operator==(const CaseTraits&) const = default;
};

// step: the operation that failed; -1: the last.
CaseTraits TraitsOf(const Case& c, int64_t step);
// Whether a case of these traits may fail for the cause of a shrunk case: they are of one group,
// and the case has each kind of operation that the shrunk one needs.
bool MayShrinkTo(const CaseTraits& drawn, const CaseTraits& shrunk);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_CANONICAL_FORM_H_
