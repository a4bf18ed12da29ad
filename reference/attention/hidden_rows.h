// Rows whose every key is hidden by a large finite number in an additive mask (-1e9, the lowest
// value of a type): fully masked in all but name. What a kernel computes there is decided by how it
// rounds the sum of a score and that number (bound.md, section 2).

#ifndef REFERENCE_ATTENTION_HIDDEN_ROWS_H_
#define REFERENCE_ATTENTION_HIDDEN_ROWS_H_

#include <span>

#include "reference/attention/row_reference.h"
#include "reference/attention/visible.h"

namespace kvcheck {

// Whether a key without the number would leave no weight to any key of the row. False where a sink
// takes that weight, and where a finite mask value keeps further keys in the sum.
// rotated: bounds of the query's coordinates where it is rotated; else empty.
bool IsHiddenByNumber(const RowContext& context, const VisibleSet& set,
                      std::span<const double> rotated);

// Whether under the declared plan the sum of any score of the row and the number is the number, so
// that all keys weigh the same. codec: most that a score is off by before it is summed.
// Precondition: IsHiddenByNumber.
bool AbsorbsScores(const RowContext& context, const VisibleSet& set,
                   std::span<const double> rotated, double codec);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_HIDDEN_ROWS_H_
