#include "optimized/attention/attention_plan.h"

#include <algorithm>
#include <cmath>

#include "optimized/attention/affine_operand.h"
#include "optimized/attention/block.h"
#include "optimized/attention/exp.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/attention/kernels.h"
#include "optimized/attention/packed_codes.h"
#include "optimized/attention/tile.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck::optimized {
namespace {

SumPlan SumOf(SumOrder order, bool fused, int lanes = static_cast<int>(kSumLanes16)) {
  SumPlan sum;
  sum.accumulator = {DType::kFloat32, false};
  sum.order = order;
  if (order == SumOrder::kLanes) sum.width = lanes;
  sum.fma = fused;
  return sum;
}

// Fixed point: exact integer sums, joined with kFixedRoundings. The sum of two parts may be 1/127
// larger than that of all three, hence one rounding more.
SumPlan FixedSum() {
  SumPlan sum = SumOf(SumOrder::kDepth, false);
  sum.width = kFixedRoundings + 1;
  return sum;
}

// Factored: a group's runs of channels are the lanes.
SumPlan QkOf(const AttentionShape& shape, const AttentionKernels& kernels) {
  if (!IsFactored(shape, kernels) || IsPlain(shape.k)) {
    return SumOf(SumOrder::kLanes, kernels.fused, kernels.dot_lanes);
  }
  if (kernels.IsFixedPoint()) return FixedSum();
  const int64_t runs = AffineCodesOf(shape.k)->group_size / kGroupRun;
  return runs == 1 ? SumOf(SumOrder::kSequential, kernels.fused)
                   : SumOf(SumOrder::kLanes, kernels.fused, static_cast<int>(runs));
}

// Of the constant, and of the product with it.
int ScaleRoundings(double scale) {
  if (static_cast<double>(static_cast<float>(scale)) != scale) return 2;
  int exponent = 0;
  return std::fabs(std::frexp(scale, &exponent)) == 0.5 ? 0 : 1;
}

}  // namespace

// Splits are 32 blocks from position 0 on, the last one shorter. A plan knows splits of equal
// length: as many of them as are at least 32 blocks long, U / K > 31 for U blocks. Then each holds
// as many blocks as ours, and there are no fewer of them than a partial result passes additions:
// ceil(U / 32) - 1 <= ceil(U / 31) - 1. Where that leaves one (U <= 62) there are at most two
// splits, and one online softmax over all blocks rescales and adds at least as often: a key passes
// the blocks of its own split and one step of the merge, and the other split holds a block.
int PlannedSplits(int64_t kv_len) {
  constexpr int64_t kBlocks = kSplitTokens / kBlockTokens - 1;
  const int64_t blocks = (kv_len + kBlockTokens - 1) / kBlockTokens;
  return std::max(1, static_cast<int>((blocks + kBlocks - 1) / kBlocks - 1));
}

Plan PlanOf(const AttentionShape& shape, const PlanQuestion& question) {
  const AttentionKernels kernels = KernelsFor(!shape.portable);
  const bool fused = kernels.fused;
  Plan plan;
  plan.name = shape.portable ? "optimized_portable" : "optimized_native";
  plan.qk = QkOf(shape, kernels);
  plan.pv = SumOf(SumOrder::kSequential, fused);
  plan.l = SumOf(SumOrder::kLanes, false);
  plan.op = RoundedType{DType::kFloat32, false};
  plan.scale_roundings = ScaleRoundings(shape.scale);
  plan.prescale_roundings = 0;
  plan.scores = DType::kFloat32;
  // Slope times distance and the sum with a bias are exact in double but for 2^-53, and rounded
  // once.
  plan.bias_roundings = question.bias_roundings + (question.alibi ? 1 : 0);
  plan.tanh_error = 0x1.0001p-24;  // tanh of the platform in double, rounded to f32
  plan.exp = ExpForm::kExp;
  plan.exp_error = ExpError(fused);
  plan.exp_floor = 0x1p-126;
  plan.lazy_rescale = 0;
  plan.block = static_cast<int>(kBlockTokens);
  plan.late_sink = true;
  plan.p = DType::kFloat32;
  plan.p_scale = 1;
  plan.p_normalised = false;
  plan.l_from_rounded_p = false;
  plan.splits = PlannedSplits(question.kv_len);
  plan.merge = plan.splits > 1 ? MergeKind::kAccumulators : MergeKind::kNone;
  plan.partial = DType::kFloat32;
  plan.log_error = 0x1p-50;  // log of the platform in double
  plan.normalise = NormaliseKind::kDivide;
  plan.flush_subnormals = false;
  plan.saturate_output = false;
  const bool factored = IsFactored(shape, kernels);
  if (kernels.IsFixedPoint() && factored) {
    if (!IsPlain(shape.k)) plan.fixed_q = kFixedError;
    if (!IsPlain(shape.v)) {
      plan.fixed_p = kFixedError;
      // In a block fewer roundings pass than in sums of sixteen lanes: those of the biases.
      plan.pv = SumOf(SumOrder::kLanes, fused);
    }
  }
  const bool k_in_basis = shape.in_basis && RotatesRows(shape.k);
  const bool v_in_basis = shape.in_basis && RotatesRows(shape.v);
  const int decoded = std::max(k_in_basis ? BasisRoundings(shape.k) : DecodeRoundings(shape.k),
                               v_in_basis ? BasisRoundings(shape.v) : DecodeRoundings(shape.v));
  const bool has_affine = AffineCodesOf(shape.k) != nullptr || AffineCodesOf(shape.v) != nullptr;
  if (k_in_basis || v_in_basis) {
    plan.dequantize = DequantizeKind::kRotated;
    plan.dequantize_roundings = std::max(decoded, !has_affine ? 0 : fused ? 1 : 2);
  } else if (factored || has_affine) {
    plan.dequantize = factored ? DequantizeKind::kFactored : DequantizeKind::kInside;
    plan.dequantize_roundings = std::max(decoded, fused ? 1 : 2);
  } else if (decoded > 0) {
    plan.dequantize = DequantizeKind::kInside;
    plan.dequantize_roundings = decoded;
  } else if (!IsPlain(shape.k) || !IsPlain(shape.v)) {
    plan.dequantize = DequantizeKind::kStored;
  }
  return plan;
}

}  // namespace kvcheck::optimized
