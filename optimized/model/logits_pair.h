// What two models say of one position, in one pass over their vocabulary: how far the distributions
// are apart, and which tokens they put first.

#ifndef OPTIMIZED_MODEL_LOGITS_PAIR_H_
#define OPTIMIZED_MODEL_LOGITS_PAIR_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcheck::optimized {

struct LogitsPair {
  // Sum of p (log p - log q) over the tokens of p > 0; rounding may make it negative. The order of
  // the sum is that of the processor's vectors.
  double kl = 0;
  // Indices of the largest and second largest log p and of the largest log q, the first of equals.
  // Where there is one token, second is top.
  size_t top = 0;
  size_t second = 0;
  size_t other_top = 0;
  // Below +inf and no NaN, all of them: else nothing above means anything.
  bool is_finite = true;
  bool other_is_finite = true;
};
// Nats. Precondition: as many of both, at least one.
LogitsPair ComparePair(std::span<const double> log_p, std::span<const double> log_q);

struct ProbabilitySum {
  double all = 0;    // of exp(log_p)
  double above = 0;  // of these, where log_p > floor
};
// In the order of the processor's vectors. What is above 700 counts as 700; a NaN as anything.
ProbabilitySum SumProbabilities(std::span<const double> log_p, double floor);

// out[i] = scale steps[i] + least, rounded twice. Shapes: out as steps.
void ScaleSteps(std::span<const uint16_t> steps, double scale, double least, double* out);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_MODEL_LOGITS_PAIR_H_
