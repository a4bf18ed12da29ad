// The bound of an element under the model of independent roundings: bound.md, section 5. Roundings
// to nearest of P, of stored partial outputs and of the sums have a random phase, so that their sum
// grows like the root of its terms, where the proven bound adds them up. What is common to many
// keys, or goes one way, counts at its largest.
//
//   limit = lambda sigma + slack + output rounding
//
// sigma^2 is the largest variance that any kernel of the plan has; roundings of keys with like
// weights count as common where that is the larger sum.

#ifndef REFERENCE_ATTENTION_NOISE_H_
#define REFERENCE_ATTENTION_NOISE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/attention/bound.h"
#include "reference/attention/definition.h"

namespace kvcheck {

// Probability, at most, that one element of a right kernel exceeds its limit: once in a thousand
// million runs of a thousand million elements each. It does not depend on the size of a run, so
// that a case has one verdict wherever it is judged.
inline constexpr double kNoiseFalseAlarm = 1e-18;
// lambda = sqrt(2 ln(2 / kNoiseFalseAlarm)), the sub-Gaussian tail.
double NoiseFactor();

struct NoiseQuestion {
  const Arithmetic& a;
  const RowQuestion& row;
  std::span<const double> p;  // of the exact row
  std::span<const double> s;
  const KeyWeights& weights;
  std::span<const ChannelSums> sums;
  DType out;
};

// The keys whose weights are rounded, by falling scores, in cells of several widths: those of a
// cell are rounded alike, if the width is right.
struct LikeKeyCells {
  std::vector<int32_t> keys;       // indices into the row's keys
  std::vector<double> amplitude;   // of each
  std::vector<uint8_t> closes;     // CellOrder::closes
  int32_t levels = 1;              // single keys, and one of each width
  std::vector<double> of_weights;  // per level, squares of amplitudes as CellSquares has them
};

// What the roundings of one row come to before its output is rounded.
struct RowNoise {
  // Per channel: variances, and what is not random at its largest.
  std::vector<double> of_p;        // of the rounding of P, common to the channels of a row
  std::vector<double> of_sums;     // of the sums and partial outputs, of each channel by itself
  std::vector<double> scores;      // scores, exp, merges through lse
  std::vector<double> slack;       // the sums, and what is biased of P
  std::vector<double> truncation;  // sums that are cut toward zero
  // Along ascending and descending columns: truncation with its sign, to the first order. Empty:
  // not known.
  std::vector<double> drift_up, drift_down;
  double truncations = 1;        // steps that each of these sums takes
  double denominator_error = 0;  // relative
  double second_order = 0;       // roundings of the sums, relative, at their worst
  // Per key: most that rounding P changes p_j by, at random and not; `biased` may be empty.
  std::vector<double> amplitude, biased;
  double sink_amplitude = 0;
  double largest_cell = 0;  // largest share of `amplitude` that one of the widest cells has
  LikeKeyCells cells;
};

// nullopt: nothing of the row's weights may be left. Precondition: the row has a bound.
std::optional<RowNoise> NoiseOf(const NoiseQuestion& question);

// Sums over the keys of a row whose weights are rounded by u_p. Shapes: mass (Dv) = sum p |v|,
// squares (Dv) = sum p^2 v^2; weight_squares = sum p^2.
struct RoundedKeys {
  std::span<const double> mass, squares;
  double weight_squares = 0;
};
// A noise that is no larger than that of the row in any of its parts. question.weights and sums:
// no larger than those of the row.
RowNoise LeastNoise(const NoiseQuestion& question, const RoundedKeys& keys);

// Replaces the bound of a channel, and its terms, where the model's limit is smaller.
// Shapes: bounds (Dv), as ComputeChannelBounds gives them.
void BoundByNoise(const NoiseQuestion& question, const RowNoise& noise,
                  std::vector<ChannelBound>* bounds);

// Variance that the rounding of P gives sum_c w_c e_c, for several w at once.
// Shapes: projected (keys, directions) = sum_c w_c v_jc, centre (directions) = sum_c w_c o_c.
std::vector<double> NoiseAlong(const Arithmetic& a, const RowNoise& noise,
                               std::span<const double> projected, std::span<const double> centre);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_NOISE_H_
