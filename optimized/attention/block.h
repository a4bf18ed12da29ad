// What the kernels of attention work on: K or V of up to 64 tokens of one key/value head, and up to
// four queries that see the same of them.
//
// The kernels know no positions, masks or layouts. They get the address of every row, so that a
// ring, a page table or a padded batch is no special case, and a masked token has no address:
// nothing of it is ever read. In a tile of many queries each query sees a prefix of the block: the
// block holds what any of four queries sees, and each ignores its scores past its own prefix.

#ifndef OPTIMIZED_ATTENTION_BLOCK_H_
#define OPTIMIZED_ATTENTION_BLOCK_H_

#include <cstddef>
#include <cstdint>

namespace kvcheck::optimized {

inline constexpr int64_t kBlockTokens = 64;
// Partial sums of a block's weights and of the portable dot product: term i enters lane i mod 16,
// in order; the horizontal sum is (i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1).
inline constexpr int64_t kSumLanes16 = 16;
// Queries of a wide micro-kernel (a quad); the narrow ones take 1.
inline constexpr int64_t kQuad = 4;

// How a kernel reads a row. Affine codes of 2, 3, 5 and 6 bits are unpacked to bytes before.
// X(name, rows): `rows` is the class of values-inl.h, or of what it includes, that reads it. The
// one list of kinds: kernels are declared, dispatched, tested and benched by it.
#define KVCHECK_ATTENTION_ROW_KINDS(X)       \
  X(kFloat32, Float32Rows)                   \
  X(kFloat16, Float16Rows)                   \
  X(kBFloat16, BFloat16Rows)                 \
  X(kFloat8E4M3, Float8E4M3Rows)             \
  X(kFloat8E5M2, Float8E5M2Rows)             \
  X(kBlock8, Block8Rows)                     \
  X(kBlock4, Block4Rows)                     \
  X(kBlock4Minimum, Block4MinimumRows)       \
  X(kBlock5, Block5Rows<false>)              \
  X(kBlock5Minimum, Block5Rows<true>)        \
  X(kCode8, Code8Rows)                       \
  X(kCode4, Code4Rows)                       \
  X(kScaledE4M3, ScaledRows<Float8E4M3Rows>) \
  X(kScaledE5M2, ScaledRows<Float8E5M2Rows>) \
  X(kScaledInt8, ScaledRows<Int8Rows>)       \
  X(kCentroid1, CentroidRows<1>)             \
  X(kCentroid2, CentroidRows<2>)             \
  X(kCentroid3, CentroidRows<3>)             \
  X(kCentroid4, CentroidRows<4>)             \
  X(kHalves1And2, CentroidHalves<1>)         \
  X(kHalves2And3, CentroidHalves<2>)         \
  X(kHalves3And4, CentroidHalves<3>)

// Codes whose scales and biases stay out of the sums: packed (packed_codes.h) or in fixed point
// (fixed_point.h); kFixed of blocks, in fixed point alone. The last kind is what WidenKernel makes
// of them for P.V of many queries.
#define KVCHECK_ATTENTION_FACTORED_KINDS(X) \
  X(kFactored8, Packed8Rows)                \
  X(kFactored4, Packed4Rows)                \
  X(kFixedSigned8, StoredCodes)             \
  X(kFixedHalves4, StoredCodes)             \
  X(kFixedTable4, StoredCodes)              \
  X(kFixedHalves5, StoredCodes)             \
  X(kFactoredWidened, WidenedCodeRows)

#define KVCHECK_ROW_KIND(name, rows) name,
enum class RowKind : uint8_t {
  KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_ROW_KIND) KVCHECK_ATTENTION_FACTORED_KINDS(KVCHECK_ROW_KIND)
};
#undef KVCHECK_ROW_KIND
#define KVCHECK_ROW_KIND(name, rows) +1  // NOLINT(bugprone-macro-parentheses): summands
inline constexpr int kPlainKinds = 0 KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_ROW_KIND);
inline constexpr int kRowKinds = kPlainKinds KVCHECK_ATTENTION_FACTORED_KINDS(KVCHECK_ROW_KIND);
#undef KVCHECK_ROW_KIND

// Whether its vectors have scales and biases beside their rows.
constexpr bool HasScales(RowKind kind) { return kind >= RowKind::kCode8; }

// Whether there are biases too; of blocks in fixed point BlockRows::has_biases says it.
constexpr bool HasBiases(RowKind kind) {
  return kind == RowKind::kCode8 || kind == RowKind::kCode4 || kind > RowKind::kHalves3And4;
}

// Whether codes are factored, as they are stored.
constexpr bool IsFactored(RowKind kind) {
  return kind >= RowKind::kFactored8 && kind < RowKind::kFactoredWidened;
}

// Whether codes name centroids.
constexpr bool NamesCentroids(RowKind kind) {
  return kind >= RowKind::kCentroid1 && kind <= RowKind::kHalves3And4;
}

// Whether rows consist of two halves of as many channels, which differ in bits and centroids.
constexpr bool HasHalves(RowKind kind) {
  return kind >= RowKind::kHalves1And2 && kind <= RowKind::kHalves3And4;
}

// A prefetch stream: `bytes` bytes at `from` + i * `stride`, `count` times. Any addresses.
struct PrefetchRows {
  const std::byte* from = nullptr;
  int64_t stride = 0;
  int64_t bytes = 0;
  int64_t count = 0;
  bool to_l2 = false;  // into L2 alone
};

// K or V of `count` tokens. Nothing past the bytes of a row is read.
struct BlockRows {
  RowKind kind = RowKind::kFloat32;
  int64_t dim = 0;    // channels
  int64_t group = 0;  // channels that share a scale and a bias; codes and ggml's blocks alone
  int64_t count = 0;  // 0 to 64
  const std::byte* rows[kBlockTokens];
  // Of group g and row i at g * kBlockTokens + i, with room for whole blocks; codes alone.
  const float* scales = nullptr;
  const float* biases = nullptr;  // where there are none: the scales again, which nobody adds
  int64_t groups = 0;
  // Of rows in fixed point alone.
  int64_t group_bytes = 0;  // from the codes of a group to those of the next one
  int32_t code_offset = 0;  // what a code stands for, as an integer, is so much less
  bool has_biases = true;
  // Which codes name, over and over to 16; NamesCentroids and kBlock4 alone.
  const float* centroids = nullptr;
  // K transposed into panels of N = AttentionKernels::panel_keys keys; null: it is not. Shapes:
  // (count up to a multiple of N / N, dim, N).
  const float* transposed = nullptr;
  // The second half of the channels, then all of the above is of the first; HasHalves alone.
  const BlockRows* high = nullptr;
  // Scales are 0 or in [2^-40, 2^60] in absolute value.
  bool scales_in_range = false;
  // What the kernels of q.k and P.V prefetch while they work; those of transposed keys do not. Two
  // streams: memory is read faster in several.
  PrefetchRows prefetch[2];

  float scale(int64_t i, int64_t g) const { return scales[g * kBlockTokens + i]; }
  float bias(int64_t i, int64_t g) const { return biases[g * kBlockTokens + i]; }
};

// Channels rounded up to kSumLanes16: the stride of queries and of sums of outputs.
constexpr int64_t PaddedDim(int64_t dim) {
  return (dim + kSumLanes16 - 1) / kSumLanes16 * kSumLanes16;
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_BLOCK_H_
