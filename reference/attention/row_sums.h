// Sums first, bound after: what the tolerance of a row needs of its keys, as an evaluator delivers
// it. One in double on the CPU stands in row_block.cc; a device may deliver the sums of whole heads
// (bound.md, section 5, "Rows that are accepted without being written out").

#ifndef REFERENCE_ATTENTION_ROW_SUMS_H_
#define REFERENCE_ATTENTION_ROW_SUMS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace kvcheck {

// Over the keys that a row sees, in weights e = exp(s - max). In IEEE double in any order, fused or
// not, with an exp and a tanh within an ulp.
struct RowSums {
  double max = 0, lowest = 0;              // of s; the sink's among the largest alone
  double x_largest = 0, bias_largest = 0;  // of |x| and |bias|
  double denominator = 0, sink_e = 0;      // sum of e, the sink's in it
  int32_t heaviest = 0;                    // column of the largest e
  double heaviest_e = 0;
  // Sum of e^2 over the rounded weights (RoundedWeights), and sum of e over the others.
  double weight_squares = 0, other_weights = 0;
  // Shapes (Dv): sum e v, sum e |v|, sum of e^2 v^2 over the rounded weights; squares may be empty.
  std::span<const double> o, mass, squares;
};

// Weights that are rounded by the whole of P's unit roundoff: no subnormal numbers of its type, and
// none so near to 1 that the rounding of 1 is free.
struct RoundedWeights {
  bool any = false;         // false: P is not rounded
  bool normalised = false;  // what is rounded is e over the denominator, not e
  double least = 0;         // in units of what is rounded
  double most = std::numeric_limits<double>::infinity();  // of e
};

// Query l sees the columns [first[l], end[l]); where `visible` (queries, T) is not empty, those
// that are 1. A query whose row is not asked for has none.
struct SeenColumns {
  std::vector<int32_t> first, end;
  std::vector<uint8_t> visible;
};

// What a device is asked of one batch row and key/value head, whose query heads see alike. Rows:
// query heads of the head group, and of each the queries.
struct HeadQuestion {
  int64_t batch = 0, kv_head = 0;
  int64_t rows = 0, channels = 0;  // shape of the sums that are asked for
  double scale = 1, softcap = 0;   // softcap 0: none
  std::vector<double> sinks;       // of all query heads; empty: none
  std::shared_ptr<const SeenColumns> seen;
  RoundedWeights rounded;
};

// The sums of all rows of a head.
class HeadSums {
 public:
  virtual ~HeadSums() = default;
  // nullopt: not known. What it refers to lives as long as this.
  virtual std::optional<RowSums> Of(int64_t row) const = 0;
};

// nullptr: of this head nothing is known. Called from several threads.
using DeviceSums = std::function<std::shared_ptr<const HeadSums>(const HeadQuestion& question)>;

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_ROW_SUMS_H_
