// What the statistical tier knows of the sums of P.V (bound.md, section 4): the variance of their
// roundings, and what values err by that are summed in the basis of storage.

#ifndef REFERENCE_ATTENTION_SUM_NOISE_H_
#define REFERENCE_ATTENTION_SUM_NOISE_H_

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "reference/attention/evaluate_kernels.h"
#include "reference/attention/row_reference.h"
#include "reference/formats/stored_basis.h"

namespace kvcheck {

// One direction of w. Shapes: w (Dv, kProjectLanes).
std::vector<double> DirectionOf(const std::vector<double>& w, size_t direction);

// Whether sums of `terms` terms whose sizes sum to these masses may round alike: the terms of
// one are those of another but for less than a spacing of the running sum, which then is the same
// number of the accumulator's grid (a V that is equal in all channels, or in all coordinates). u:
// of the accumulators.
bool AreAlike(std::span<const double> masses, size_t terms, double u);
// Variance of sum_i w_i e_i for errors that are independent, or alike.
double VarianceAlong(std::span<const double> w, std::span<const double> variances, bool alike);

// Roundings of the sums, of one sum each: independent unless the sums are alike.
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
  bool alike_ = false;
};

// What is not random where V is summed in its basis: values are decoded, and are not quite those of
// the case; sums that are cut, or whose grid is coarse; and the way back. Zero elsewhere.
class BasisSlack {
 public:
  // context, row: outlive it.
  BasisSlack(const RowContext& context, const RowQuestion& question, const RowReference& row);
  // But for the way back, which is a term of the bound.
  const std::vector<double>& OfChannels() const { return of_channel_; }
  // Of sum_c w_c e_c.
  double Along(std::vector<double> w) const;

 private:
  const StoredBasis& basis_;
  const RowReference& row_;
  double each_ = 0, back_ = 0;  // relative: of a sum, and of the way back
  std::vector<double> sums_;    // of |coordinates|
  std::vector<double> of_channel_;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_SUM_NOISE_H_
