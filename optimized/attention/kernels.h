// The loops of attention, compiled once for every instruction set and chosen when they are called.
//
// Two arithmetics. `fused` lets a product enter its sum unrounded where the instruction set can
// (MulAdd) and sums a dot product over as many lanes as its vectors have, so that its bits depend
// on the instruction set; the other one multiplies, rounds and adds, over 16 lanes, and gives the
// same bits on every one.

#ifndef OPTIMIZED_ATTENTION_KERNELS_H_
#define OPTIMIZED_ATTENTION_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "optimized/attention/block.h"
#include "reference/spec/dtype.h"

namespace kvcheck::optimized {

// Shapes: q (width, stride), zeros from dim to PaddedDim(dim). Planes: `q` and `sums` are the first
// row's place among the four of ArrangeQuery.
struct Queries {
  const float* q = nullptr;
  int64_t stride = 0;
  const float* sums = nullptr;  // of the groups
  bool in_place = false;        // divided by the powers of two of their planes
  // All four of them lane by lane (transposed_keys.h); not of planes.
  const float* turned = nullptr;
};

// scores[h][i] = sum over channels of q[h] times row i: term c in lane c mod N, in order, and the N
// lanes by halves. Planes: factored, a group's channels in runs (packed_codes.h). Shapes: scores (width,
// kBlockTokens), of which what stands behind `count` may be written too, up to a multiple of 16;
// of keys turned about up to one of turned_keys, of planes up to a whole block, and so far scales
// and biases are read.
using DotKernel = void (*)(const BlockRows& block, const Queries& queries, float* scores);

// out[h][c] = fl(fl(out[h][c] rescale[h]) + sum over i of weights[h][i] times row i), that sum term
// by term from zero. Shapes: weights (width, kBlockTokens), out (width, out_stride), of which
// PaddedDim(dim) are written. Planes: factored, and `out` is in their order (PlaneChannel).
using SumKernel = void (*)(const BlockRows& block, const float* weights, const float* rescale,
                           float* out, int64_t out_stride);

// The rows as f32, as Dot and Sum take them; zeros from dim to PaddedDim(dim). Planes: their codes,
// in the order of channels, for the sums of kPlaneFloats; joined four by four they are as long as
// one row of floats, at the place of the first of them.
// Shapes: out (count, stride), of which PaddedDim(dim) are written.
using WidenKernel = void (*)(const BlockRows& block, float* out, int64_t stride);

// Keys turned about: values that are f32, or codes as f32. Shapes: out (count up to a multiple of
// N / N, dim, N), N the keys that go together.
using TurnKernel = void (*)(const BlockRows& block, float* out);

// One block of the online softmax of `width` queries.
struct SoftmaxStep {
  int64_t count = 0;            // tokens, at least 1
  float scale = 1;              // s = fl(dot scale)
  float softcap = 0;            // above 0: s = fl(cap tanh(s / cap))
  const float* bias = nullptr;  // (width, kBlockTokens), added to s; null: none
  float* scores = nullptr;      // (width, kBlockTokens), at an address that is a multiple of 64.
                                // In: dots; out: weights, and zeros behind
                                // them up to a multiple of 16
  float* shift = nullptr;       // (width) largest score so far, -inf at first
  float* total = nullptr;       // (width) sum of weights so far
  float* rescale = nullptr;     // (width) out: what earlier weights are multiplied by
};
using SoftmaxKernel = void (*)(const SoftmaxStep& step);

// Scales or biases as they are stored: of each token, `groups` numbers from its address on.
struct StoredScales {
  DType dtype;            // f32, f16, bf16
  const std::byte* from;  // of column 0
  int64_t stride;         // bytes from a column to the next one
  const int64_t* columns;
  bool together;  // they follow the first one
  int64_t count, groups;
};
// As f32. Shapes: by_token (count, groups) for the kernel's own use; out (groups, kBlockTokens).
using WidenScalesKernel = void (*)(const StoredScales& scales, float* by_token, float* out);

// Scales or biases of kBlockTokens tokens, `stride` bytes from one to the next, each with those of
// `heads` heads, a word of four bytes each: head by head.
// Shapes: out (heads, kBlockTokens), words, at an address that is a multiple of 64.
inline constexpr int64_t kScaleWord = 4;
inline constexpr int64_t kScaleHeads = 4;  // heads are a multiple of it
using TurnScalesKernel = void (*)(const std::byte* from, int64_t stride, int64_t heads, float* out);

// How memory is fetched while kernels of few queries work, as the two streams of BlockRows::ahead.
enum class Fetching : uint8_t {
  // Half a block of keys and half a block of values, those that are read first of what follows.
  kHalves,
  // A block's successor, to the second cache; and from there what is read next, to the first. As
  // measured the better one by far on Zen 4, not with vectors of eight lanes.
  kTwoLevels,
  // As measured on Xeons: halves of blocks that fit the first cache, larger ones in two levels.
  kBySize,
};

struct AttentionKernels {
  // Widths: [0] one query, [1] kQuad.
  DotKernel dot[kRowKinds][2];
  SumKernel sum[kRowKinds][2];
  WidenKernel widen[kRowKinds];
  SoftmaxKernel softmax[2];
  WidenScalesKernel widen_scales;
  TurnScalesKernel turn_scales = nullptr;  // null: there is none
  // Null: there are none. Of kFloat32, kPlanes8 and kPlanes4.
  TurnKernel turn[kRowKinds] = {};
  int turned_keys = 0;  // keys that stand together
  // Dot products with four queries of block.turned, with the bits of `dot`: [0] of values, [1] of
  // codes.
  DotKernel turned_dot[2] = {};
  Fetching fetching = Fetching::kHalves;
  bool fused = false;   // whether products really enter sums unrounded
  int dot_lanes = 16;   // N of a dot product, planes apart
  bool planes = false;  // whether there are kernels of planes; then CanTurn
  int plane_lanes = 8;  // of their vectors
  // Kernels of planes multiply integers (fixed_point.h): `q` and `sums` of queries are those of
  // ArrangeFixedQuery, sums of values stand in the order of channels, `widen` joins rows of codes
  // four by four for kPlaneFloats, and keys turned about are words of four codes.
  bool fixed = false;

  bool CanTurn() const { return turn[static_cast<int>(RowKind::kFloat32)] != nullptr; }
};

// Of the best instruction set that this machine has.
AttentionKernels KernelsFor(bool fused);

// exp(x) of `count` numbers <= 0, as the kernels compute it; for its test.
void ExpOf(bool fused, const float* x, int64_t count, float* y);

// Codes of `bits` bits (2, 3, 5, 6) of count vectors as bytes, a multiple of 32 channels.
// Shapes: out (count, dim).
void UnpackCodes(int bits, const std::byte* const* from, int64_t count, int64_t dim,
                 std::byte* out);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_KERNELS_H_
