// Rows of a head together, without their bounds written out: the sums that a tolerance needs, as
// products of matrices, and two numbers for each element between which its tolerance lies. A row
// all of whose observed values lie within the smaller one is right, whatever its tolerance is; only
// the others have to be written out key by key (row_reference.h). bound.md, section 5.

#ifndef REFERENCE_ATTENTION_ROW_BLOCK_H_
#define REFERENCE_ATTENTION_ROW_BLOCK_H_

#include <optional>
#include <span>
#include <vector>

#include "reference/attention/row_reference.h"
#include "reference/attention/row_sums.h"

namespace kvcheck {

struct RowEnclosure {
  bool is_known = false;  // false: the row has to be written out, and nothing else is set
  // Shapes: (Dv).
  std::vector<double> value;   // within `own` of the exact output
  std::vector<double> own;     // of computing in double
  std::vector<double> least;   // no more than the bound
  std::vector<double> proven;  // no less than the proven bound
  std::vector<double> mass;    // sum p |v|
  double lse = 0, lse_own = 0, lse_least = 0;
};

struct BlockRow {
  const RowContext* context;
  const OwnedQuestion* owned;
};

// In the order of the rows, which are of one head. Where the row needs more than sums of products
// of finite plain numbers (codes that the kernel dequantizes, a rotated or integer query, hidden
// keys of a finite mask value), where a bound may be infinite, or where losing its heaviest key
// would not show, it is not known.
// given: sums that another evaluator has of them; empty, or one for each row, and what it has not
// is evaluated here.
std::vector<RowEnclosure> EncloseRows(std::span<const BlockRow> rows,
                                      std::span<const std::optional<RowSums>> given = {});

// Which weights of a row count as rounded.
RoundedWeights RoundedWeightsOf(const Arithmetic& a);
// Whether rows of such a head may be known at all.
bool HasEnclosures(const HeadData& head, const Arithmetic& a);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_ROW_BLOCK_H_
