// Operands that are cut to a shorter type before they are multiplied, as sums of one to three parts
// (TF32, bf16, 3xTF32): how far the products that stand for one are from it (bound.md, section 2),
// and the parts themselves, which a simulated kernel multiplies.

#ifndef REFERENCE_ATTENTION_OPERAND_CUT_H_
#define REFERENCE_ATTENTION_OPERAND_CUT_H_

#include <optional>
#include <utility>
#include <vector>

#include "reference/spec/plan.h"

namespace kvcheck {

// Significant bits, and half a spacing over a power of two, doubled where parts are truncated.
int SignificantBits(OperandType type);
double UnitRoundoff(const OperandCut& cut);

// What cutting both operands does to the products of a sum.
struct ProductCut {
  int passes = 1;
  double lost = 0;     // most that the products which stand for one differ from it, relative
  double size = 1;     // most that the sizes of these products add up to, relative
  double eta = 0;      // absolute error of an operand by underflow: eta (|a| + |b| + eta) a product
  double largest = 0;  // from where an operand may overflow; 0: it is not cut
};

// bits_a, bits_b: significant bits of the operands as they come; those that fit the type in one
// part stay as they are. absolute: what flushing takes of a part.
ProductCut CutProducts(const std::optional<OperandCut>& cut, int bits_a, int bits_b,
                       double absolute);

// Absolute error of one part among subnormal numbers of the type.
double UnderflowOf(const OperandCut& cut, bool flush);

// Roundings of one term of a sum whose terms are `passes` products each.
double PassDepth(const SumPlan& sum, double depth, int passes);

// Parts of x, the leading one first: as many as the passes need.
std::vector<double> PartsOf(const OperandCut& cut, bool flush, double x);
// Which parts of both operands are multiplied, smallest products first.
std::vector<std::pair<size_t, size_t>> ProductsOf(const OperandCut& cut);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_OPERAND_CUT_H_
