// The arithmetic plan: how an implementation says it computes attention. Every field describes the
// algorithm; none is a knob to turn until a test passes. A field left unsaid takes the loosest
// sound value of its kind (reference/attention/arithmetic.h resolves it and lists what was
// assumed). The derivation that turns a plan into a bound is reference/attention/bound.md.
//
// Text: fields of `key=value`, separated by one space; `base=NAME` starts from a known plan
// (known_plans.h) and the other fields override it. Grammar: reference/README.md.

#ifndef REFERENCE_SPEC_PLAN_H_
#define REFERENCE_SPEC_PLAN_H_

#include <optional>
#include <string>
#include <string_view>

#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {

// A float type with a rounding direction: "f32", "bf16", "f32.rz" (toward zero).
struct RoundedType {
  DType dtype = DType::kFloat32;
  bool toward_zero = false;
  bool operator==(const RoundedType&) const = default;
};

enum class SumOrder {
  kSequential,  // one accumulator, term by term
  kLanes,       // `width` interleaved accumulators, then a pairwise tree over them
  kPairwise,    // a balanced tree
  kTensorCore,  // calls of `width` products: aligned to the largest, cut at `aligned_bits`
  kDepth,       // any order in which no term passes more than `width` roundings
};

// One of the three sums (q.k over channels, P.V and the denominator over keys).
// Text: TYPE:ORDER[:WIDTH[:ALIGNED_BITS]][:fma][:chained], as "f32:lanes:8:fma".
struct SumPlan {
  RoundedType accumulator;
  SumOrder order = SumOrder::kSequential;
  int width = 0;
  int aligned_bits = 0;
  // Each product enters the sum unrounded.
  bool fma = false;
  // Over blocks of keys: the accumulators go on from block to block; otherwise each block is summed
  // on its own and added to the running sum.
  bool chained = false;
  bool operator==(const SumPlan&) const = default;
};

// The exponential of a score s under the running shift m.
enum class ExpForm {
  kExp,         // exp(s - m)
  kExp2Scaled,  // exp2((s - m) * log2e)
  kExp2Log2,    // scores kept in log2 units: exp2(t - m)
  kExp2Fma,     // exp2(fma(dot, c, -fl(m * c)))
  // The same, and earlier weights times exp2(fma(m_old, c, -fl(m_new * c))) in every block, which
  // is not 1 where the maximum stays.
  kExp2FmaDrift,
};

// How partial results over K ranges of keys are combined.
enum class MergeKind {
  kNone,
  kAccumulators,     // unnormalised accumulators, rescaled and added
  kLse,              // normalised (o, lse) pairs, weights renormalised
  kLseDivisionFree,  // normalised (o, lse) pairs, weight exp(lse_i - lse) without a division
};

// How sums are divided by the denominator.
enum class NormaliseKind {
  kDivide,
  kReciprocal,   // a rounded reciprocal, and a product
  kApproximate,  // a division or reciprocal within 2 ulp (rcp.approx, div.full), and a product
};

// What a kernel over codes does with them, beside the values that the profile defines.
enum class DequantizeKind {
  kStored,    // uses the decoded values of the profile as they are
  kInside,    // c * scale + bias inside the kernel, `dequantize_roundings` roundings in f32
  kFactored,  // scale and bias taken out of the sums
  kRounded,   // like inside, then rounded to `dequantize_dtype`
  // In the basis in which formats that rotate rows store them: q is rotated, values are decoded
  // with `dequantize_roundings` roundings and not rotated back, the sums of V are, once a row.
  kRotated,
};

// To what operands of products on tensor cores or in matrix units are cut.
enum class OperandType {
  kTf32,  // 11 significant bits, the range of f32
  kBf16,
  kF16,
};

// Operands in f32 as sums of parts of a shorter type, whose products are summed in `passes`: 1, the
// leading parts only; 3 (3xTF32, bf16_3x), two parts each, without the product of the second ones;
// 6 and 9, three parts each, without the three smallest products or with all. Text: TYPE[xN][.rz],
// as tf32, tf32.rz, tf32x3, bf16x6.
struct OperandCut {
  OperandType type = OperandType::kTf32;
  int passes = 1;
  bool toward_zero = false;
  bool operator==(const OperandCut&) const = default;
};

struct Plan {
  std::string name;  // a label; "" when anonymous

  std::optional<SumPlan> qk;
  std::optional<SumPlan> pv;
  std::optional<SumPlan> l;
  std::optional<RoundedType> op;          // every other operation
  std::optional<int> scale_roundings;     // of a score outside its sum: constants and the scaling
  std::optional<DType> prescale_dtype;    // q (and k) times the scale, rounded to this type ...
  std::optional<int> prescale_roundings;  // ... that many times per product; 0: not pre-scaled
  // The query is encoded too, and q.k is summed over the codes of both, exactly, group by group;
  // scales and biases join afterwards. Unset: q.k is computed on values.
  std::optional<KvFormat> integer_qk;
  // What codes are multiplied with becomes an integer times a step that is common to a group, each
  // off by at most this times the largest of the group: a query's channels that share a scale of K;
  // weights times scales of V, over the keys of a block. Unset: neither.
  std::optional<double> fixed_q;
  std::optional<double> fixed_p;
  // Operands that are cut before they are multiplied: q and K, P and V. Unset: they are not.
  std::optional<OperandCut> qk_operands;
  std::optional<OperandCut> pv_operands;
  std::optional<DType> scores;        // type in which scores are stored
  std::optional<int> bias_roundings;  // of a bias before it is added
  std::optional<double> tanh_error;   // relative, of the softcap's tanh
  std::optional<ExpForm> exp;
  std::optional<double> exp_error;       // relative, of exp or exp2 on its own argument
  std::optional<double> exp_floor;       // absolute error below exp's normal range
  std::optional<double> lazy_rescale;    // nats by which a score may exceed the running shift
  std::optional<int> block;              // keys per block of an online softmax; 0: all at once
  std::optional<bool> late_sink;         // the sink joins after the last block
  std::optional<DType> p;                // type in which P enters P.V
  std::optional<double> p_scale;         // factor on P before rounding
  std::optional<bool> p_normalised;      // P is divided by the denominator before rounding
  std::optional<bool> l_from_rounded_p;  // the denominator sums the rounded P
  std::optional<MergeKind> merge;
  std::optional<int> splits;           // ranges of keys that are merged
  std::optional<double> log_error;     // relative, of log in lse
  std::optional<DType> partial;        // type of stored partial outputs, or of unnormalised sums
  std::optional<DType> merge_weights;  // type of the weights of partial results in a merge
  std::optional<NormaliseKind> normalise;
  std::optional<DType> through;          // type that outputs pass through before that of `out`
  std::optional<bool> flush_subnormals;  // FTZ/DAZ
  std::optional<bool> saturate_output;   // clamps to the largest finite output
  std::optional<DequantizeKind> dequantize;
  std::optional<int> dequantize_roundings;  // of kInside and kRotated
  std::optional<DType> dequantize_dtype;

  bool operator==(const Plan&) const = default;
};

// Parses back to the equal plan, but for members that mean nothing beside the others (the width of
// a pairwise sum, the type of no pre-scaling), which are not printed. A partner left out
// (dequantize=inside without its roundings, a pre-scaling without its type) is a bug of the caller.
// Errors: kUsage for a name that holds a space, '=' or a byte that is not printable ASCII.
std::string Print(const Plan& plan);
// Errors: kParse with the column.
Plan ParsePlan(std::string_view text);

std::string Print(const RoundedType& type);
std::string Print(const SumPlan& sum);
std::string Print(const OperandCut& cut);
std::string_view Name(SumOrder order);
std::string_view Name(ExpForm form);
std::string_view Name(MergeKind kind);
std::string_view Name(NormaliseKind kind);
std::string_view Name(DequantizeKind kind);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PLAN_H_
