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

// sum_i a_i b_i for b = codes times scale plus bias per group of channels, with scale and bias
// taken out of the sums; what joins the groups is done in op's type. b: codes [d], scales [d /
// group], biases [d / group].
double FactoredDot(const SumPlan& sum, const RoundedType& op, bool flush, int64_t group,
                   std::span<const double> a, const double* b);

// sum_i a_i b_i for rows of codes on both sides: per run of channels that share the scales of both
// the four exact sums of codes, scaled and added in op's type; the runs are added up as `sum` says.
// a, b: codes [d], scales [d / group], biases [d / group], each with its own group.
double IntegerDot(const SumPlan& sum, const RoundedType& op, bool flush, size_t d, size_t a_group,
                  const double* a, size_t b_group, const double* b);

// Integers times a step, off by at most `error` times the largest of them; 0: as they are.
void RoundToSteps(double error, std::span<double> x);

// The accumulator of P.V over such rows. fixed_error: of weights times scales, by group and block.
std::unique_ptr<RowAccumulator> MakeFactoredAccumulator(const SumPlan& sum, const RoundedType& op,
                                                        bool flush, double fixed_error,
                                                        size_t width, size_t group);

std::unique_ptr<RowAccumulator> MakeAccumulator(const SumPlan& sum, bool flush, size_t width);

}  // namespace kvcheck::simulated

#endif  // REFERENCE_ATTENTION_SIMULATED_SUMS_H_
