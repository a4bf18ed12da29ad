// The micro-kernels of attention, compiled once for every instruction set (target) and dispatched
// at run time.
//
// Two arithmetics:
//   portable  products rounded, 16 partial sums: the same bits on every target
//   fused     FMA where the target has it, as many partial sums as a vector has lanes: the bits
//             depend on the target

#ifndef OPTIMIZED_ATTENTION_KERNELS_H_
#define OPTIMIZED_ATTENTION_KERNELS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "optimized/attention/block.h"
#include "reference/spec/dtype.h"

namespace kvcheck::optimized {

// A kernel for one query, and for kQuad.
template <typename Kernel>
using Widths = std::array<Kernel, 2>;

// Shapes: q (width, stride), zeros from dim to PaddedDim(dim). Factored rows: `q` and `sums` point
// to the first query's place in the quad of PackQuery or PackFixedQuery.
struct Queries {
  const float* q = nullptr;
  int64_t stride = 0;
  const float* sums = nullptr;  // of the groups
  bool in_place = false;        // divided by 2^FieldShift (packed_codes.h)
  // The quad transposed (transposed_keys.h); not of factored rows.
  const float* transposed = nullptr;
};

// scores[h][i] = q[h] . row i: term c in lane c mod N, in order, then the horizontal sum in tree
// order. Factored: a group's channels in runs (packed_codes.h). Shapes: scores (width,
// kBlockTokens); elements past `count` are undefined, and written up to a multiple of
//
//   16                    of row-major rows
//   panel_keys            of transposed keys; as far are scales and biases read
//   kBlockTokens          of factored rows; as far are scales and biases read
using DotKernel = void (*)(const BlockRows& block, const Queries& queries, float* scores);

// out[h] = fl(fl(out[h] rescale[h]) + sum over i of weights[h][i] times row i), the sum in order
// from zero. Shapes: weights (width, kBlockTokens), out (width, out_stride), of which
// PaddedDim(dim) are written. Packed codes: out is in field order (PackedChannel).
using SumKernel = void (*)(const BlockRows& block, const float* weights, const float* rescale,
                           float* out, int64_t out_stride);

// Rows widened once for many queries. Shapes: out (count, stride), of which PaddedDim(dim) are
// written.
//   plain, kDequantized   f32; zeros from dim to PaddedDim(dim)
//   kPacked               the codes as f32, in channel order, for kFactoredWidened
//   kFixedPoint           the codes, four rows interleaved, at the place of the first of them
using WidenKernel = void (*)(const BlockRows& block, float* out, int64_t stride);

// K transposed into panels of N = panel_keys keys, of values as f32 or of codes. Shapes: out (count
// up to a multiple of N / N, dim, N).
using TransposeKernel = void (*)(const BlockRows& block, float* out);

// One block of the online softmax of `width` queries.
struct SoftmaxStep {
  int64_t count = 0;            // tokens, at least 1
  float scale = 1;              // s = fl(dot scale)
  float softcap = 0;            // above 0: s = fl(cap tanh(s / cap))
  const float* bias = nullptr;  // (width, kBlockTokens), added to s; null: none
  float* scores = nullptr;      // (width, kBlockTokens), 64-byte aligned. In: dots; out: weights,
                                // and zeros up to a multiple of 16
  float* shift = nullptr;       // (width) running maximum, -inf at first
  float* total = nullptr;       // (width) running sum of weights
  float* rescale = nullptr;     // (width) out: factor of what earlier blocks gave
};
using SoftmaxKernel = void (*)(const SoftmaxStep& step);

// Scales or biases as stored: `groups` numbers a token.
struct StoredScales {
  DType dtype;            // f32, f16, bf16
  const std::byte* from;  // of column 0
  int64_t stride;         // bytes from column to column
  const int64_t* columns;
  bool contiguous;  // columns[0], columns[0] + 1, ...; then only columns[0] is read
  int64_t count, groups;
};
// To f32, transposed to group-major. Shapes: by_token (count, groups), a buffer; out (groups,
// kBlockTokens).
using WidenScalesKernel = void (*)(const StoredScales& scales, float* by_token, float* out);

// Transposes scales or biases of a head group, one word of four bytes a head and token, to
// head-major: kBlockTokens tokens, `stride` bytes apart.
// Shapes: out (heads, kBlockTokens), words, 64-byte aligned.
inline constexpr int64_t kScaleWord = 4;
inline constexpr int64_t kScaleHeads = 4;  // heads are a multiple of it
using TransposeScalesKernel = void (*)(const std::byte* from, int64_t stride, int64_t heads,
                                       float* out);

// Prefetch distance of decode: what is prefetched during q.k and P.V of a block (tile_prefetch.cc).
enum class PrefetchPolicy : uint8_t {
  kHalfBlocks,  // half a block of K and of V ahead, into L1
  kTwoLevels,   // a block ahead into L2, the next operand (V, then the next K) into L1
  kBySize,      // kHalfBlocks where a block fits L1, else kTwoLevels
};

// How codes enter sums.
enum class CodeArithmetic : uint8_t {
  kDequantized,  // as c s + z; there are no kernels of factored rows
  kPacked,       // factored, FMA (packed_codes.h)
  kFixedPoint,   // factored, integer products (fixed_point.h)
};

// The kernels of one kind of row; null: there is none.
struct RowKernels {
  Widths<DotKernel> dot = {};
  Widths<SumKernel> sum = {};
  WidenKernel widen = nullptr;
  TransposeKernel transpose = nullptr;
  // q.k of kQuad queries over block.transposed, with the bits of dot[1].
  DotKernel transposed_dot = nullptr;
  // Keys of a panel of what it transposes, whose instruction set may be another one's than of other
  // kinds of rows.
  int panel_keys = 0;
};

// A kernel set, whole: KernelsFor makes it in one expression.
struct AttentionKernels {
  std::array<RowKernels, kRowKinds> rows;
  Widths<SoftmaxKernel> softmax;
  WidenScalesKernel widen_scales;
  TransposeScalesKernel transpose_scales;  // null: there is none
  PrefetchPolicy prefetch;
  CodeArithmetic codes;
  bool fused;        // whether products enter sums unrounded
  int dot_lanes;     // N of a dot product of plain rows
  int packed_lanes;  // lanes of the kernels of factored rows
  int panel_keys;    // keys of a panel of transposed K; 0: none are transposed

  const RowKernels& Of(RowKind kind) const { return rows[static_cast<size_t>(kind)]; }
  bool CanTranspose() const { return panel_keys > 0; }
  bool Factors() const { return codes != CodeArithmetic::kDequantized; }
  bool IsFixedPoint() const { return codes == CodeArithmetic::kFixedPoint; }
};

// Of the best target of this machine.
AttentionKernels KernelsFor(bool fused);

// exp(x) of `count` numbers <= 0, as the kernels compute it; for its test.
void ExpOf(bool fused, const float* x, int64_t count, float* y);

// Codes of `bits` bits (2, 3, 5, 6) of count vectors as bytes, a multiple of 32 channels.
// Shapes: out (count, dim).
void UnpackCodes(int bits, const std::byte* const* from, int64_t count, int64_t dim,
                 std::byte* out);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_KERNELS_H_
