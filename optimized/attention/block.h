// What the kernels of attention work on: the vectors of up to 64 tokens of one key/value head, and
// up to four query vectors that see the same ones of them.
//
// The kernels know no positions, masks or layouts. Whoever calls them names the address of every
// vector, so that a ring, a table of pages or a batch behind padding is no special case, and a
// hidden token is one that is not named: nothing of it is ever read. But where many queries go
// together each sees the first ones of a block: keys are named that some of four see, and scores of
// the others are left behind the last one that counts.

#ifndef OPTIMIZED_ATTENTION_BLOCK_H_
#define OPTIMIZED_ATTENTION_BLOCK_H_

#include <cstddef>
#include <cstdint>

namespace kvcheck::optimized {

inline constexpr int64_t kBlockTokens = 64;
// Lanes of the sum of a block's weights, and, where bits do not depend on the instruction set, of a
// dot product: term i enters lane i mod 16, in order, and the lanes are added by halves: (i, i +
// 8), (i, i + 4), (i, i + 2), (i, i + 1).
inline constexpr int64_t kSumLanes16 = 16;
// Query vectors that a kernel takes at once; the other width is 1.
inline constexpr int64_t kQuad = 4;

// How a kernel reads a vector. Codes of 2, 3, 5 and 6 bits are unpacked to bytes before.
// X(name, rows): `rows` is the class of rows-inl.h or packed_codes-inl.h that reads it. The one table of
// kernels: it declares, dispatches, tests and benches them.
#define KVCHECK_ATTENTION_ROW_KINDS(X) \
  X(kFloat32, Float32Rows)             \
  X(kFloat16, Float16Rows)             \
  X(kBFloat16, BFloat16Rows)           \
  X(kFloat8E4M3, Float8E4M3Rows)       \
  X(kFloat8E5M2, Float8E5M2Rows)       \
  X(kCode8, Code8Rows)                 \
  X(kCode4, Code4Rows)

// The same codes where scales and biases stay out of the sums: plane by plane (packed_codes.h), or with
// integers (fixed_point.h). The last one reads such codes channel by channel, for sums that take
// them many times: as f32, or four rows joined.
#define KVCHECK_ATTENTION_PLANE_KINDS(X) \
  X(kPlanes8, Planes8Rows)               \
  X(kPlanes4, Planes4Rows)               \
  X(kPlaneFloats, PlaneFloatRows)

#define KVCHECK_ROW_KIND(name, rows) name,
enum class RowKind : uint8_t {
  KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_ROW_KIND) KVCHECK_ATTENTION_PLANE_KINDS(KVCHECK_ROW_KIND)
};
#undef KVCHECK_ROW_KIND
#define KVCHECK_ROW_KIND(name, rows) +1  // NOLINT(bugprone-macro-parentheses): summands
inline constexpr int kPlainKinds = 0 KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_ROW_KIND);
inline constexpr int kRowKinds = kPlainKinds KVCHECK_ATTENTION_PLANE_KINDS(KVCHECK_ROW_KIND);
#undef KVCHECK_ROW_KIND

// Whether its vectors have scales and biases.
constexpr bool HasScales(RowKind kind) { return kind >= RowKind::kCode8; }

// `bytes` bytes from `from` + i * `stride` on, `count` times. It need not be memory of anybody.
struct AheadRows {
  const std::byte* from = nullptr;
  int64_t stride = 0;
  int64_t bytes = 0;
  int64_t count = 0;
  bool far = false;  // to the second cache, not to the first one
};

// Vectors of `count` tokens, K or V. Nothing beyond the bytes of a vector is read.
struct BlockRows {
  RowKind kind = RowKind::kFloat32;
  int64_t dim = 0;    // channels
  int64_t group = 0;  // channels that share a scale and a bias; codes alone
  int64_t count = 0;  // 0 to 64
  const std::byte* rows[kBlockTokens];
  // Of group g and row i at g * kBlockTokens + i, with room for whole blocks; codes alone.
  const float* scales = nullptr;
  const float* biases = nullptr;
  int64_t groups = 0;
  // Keys turned about, N of them after the other (AttentionKernels::turned_keys); null: they are
  // not. Shapes: (count up to a multiple of N / N, dim, N).
  const float* turned = nullptr;
  // Scales are 0 or between 2^-40 and 2^60 in size.
  bool usual_scales = false;
  // What the caller will want next, fetched by the kernels of q.k and P.V while they work, but not
  // by those of turned keys. Two at a time, for memory is read faster in several streams.
  AheadRows ahead[2];

  float scale(int64_t i, int64_t g) const { return scales[g * kBlockTokens + i]; }
  float bias(int64_t i, int64_t g) const { return biases[g * kBlockTokens + i]; }
};

// Channels up to whole lanes of a sum: the stride of queries and sums of outputs.
constexpr int64_t PaddedDim(int64_t dim) {
  return (dim + kSumLanes16 - 1) / kSumLanes16 * kSumLanes16;
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_BLOCK_H_
