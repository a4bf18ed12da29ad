// The three sums of a simulated kernel in every order that a plan can name. Plain code: it states
// what a plan means.

#ifndef REFERENCE_ATTENTION_SIMULATED_SUMS_H_
#define REFERENCE_ATTENTION_SIMULATED_SUMS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reference/spec/plan.h"

namespace kvcheck::simulated {

// sum_i a_i b_i in the order and arithmetic of the plan.
double Dot(const SumPlan& sum, bool flush, std::span<const double> a, std::span<const double> b);

// A running sum of weighted rows, block by block, with rescaling: the accumulator of P.V (width
// channels), and with width 1 and rows of ones that of the denominator.
class RowAccumulator {
 public:
  virtual ~RowAccumulator() = default;
  // The sum times factor.
  virtual void Rescale(double factor) = 0;
  // Adds sum_j weights[j] rows[j][.] over one block.
  virtual void AddBlock(std::span<const double> weights, std::span<const double* const> rows) = 0;
  // Adds one value to every channel (a sink's weight).
  virtual void AddConstant(double value) = 0;
  // The finished sums. Shapes: (width).
  virtual std::vector<double> Finish() = 0;
};

std::unique_ptr<RowAccumulator> MakeAccumulator(const SumPlan& sum, bool flush, size_t width);

}  // namespace kvcheck::simulated

#endif  // REFERENCE_ATTENTION_SIMULATED_SUMS_H_
