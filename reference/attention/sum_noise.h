// What the statistical tier knows of the sums of P.V (bound.md, section 4): the variance of their
// roundings, and what values err by that are summed in the basis of storage.

#ifndef REFERENCE_ATTENTION_SUM_NOISE_H_
#define REFERENCE_ATTENTION_SUM_NOISE_H_

#include <array>
#include <cstddef>
#include <vector>

#include "reference/attention/evaluate_kernels.h"
#include "reference/attention/row_reference.h"
#include "reference/formats/stored_basis.h"

namespace kvcheck {

// One direction of w. Shapes: w (Dv, kProjectLanes).
std::vector<double> DirectionOf(const std::vector<double>& w, size_t direction);

// Roundings of the sums: independent, of one sum each.
class SumNoise {
 public:
  // context: outlives it.
  SumNoise(const RowContext& context, const RowQuestion& question, const RowReference& row);
  // Variance of every channel.
  std::vector<double> OfChannels() const;
  // Variance of sum_c w_c e_c.
  double Along(std::vector<double> w) const;

 private:
  const StoredBasis& basis_;
  std::vector<double> variance_;  // of a channel's sum, or of a coordinate's in the basis of V
};

// What is not random where V is summed in its basis: values are decoded, and are not quite those of
// the case; and the way back. Zero elsewhere.
struct BasisSlack {
  std::vector<double> of_channel;             // but for the way back, which is a term of the bound
  std::array<double, kProjectLanes> along{};  // of sum_c w_c e_c
};
BasisSlack SlackOfBasis(const RowContext& context, const RowQuestion& question,
                        const RowReference& row, const std::vector<double>& w);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_SUM_NOISE_H_
