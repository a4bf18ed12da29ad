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

// Replaces the bound of a channel, and its terms, where the model's limit is smaller.
// Shapes: bounds (Dv), as ComputeChannelBounds gives them.
void BoundByNoise(const NoiseQuestion& question, std::vector<ChannelBound>* bounds);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_NOISE_H_
