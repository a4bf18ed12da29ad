// q.k over codes and queries in fixed point (fixed_point.h), one key per lane (transposed_keys.h).

// The target with VNNI; only the fixed-point kernels are compiled for it.
#define HWY_WANT_AVX3_DL

#include <cstdint>

#include "optimized/attention/fixed_point.h"
#include "optimized/attention/kernel_table.h"
#include "optimized/attention/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/fixed_dot_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/fixed_point-inl.h"
#include "optimized/attention/transposed_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_FIXED_POINT

inline constexpr int kFixedVectors = 2;  // of keys
inline constexpr int64_t kFixedKeys = kFixedVectors * kLanes;
static_assert(kFixedKeys == kPanelKeys);
// Words of the codes of a group, or of a cache line of them, one code a byte.
inline constexpr int64_t kMaxWords = kMaxGroup / kFixedCodes;

// Transposes codes of kFixedKeys keys at `offset` of their rows, one code a byte. Shapes: to
// (words, kFixedKeys).
template <int kBits>
HWY_INLINE void TransposeCodes(const std::byte* const* rows, int64_t offset, int64_t words,
                               uint32_t* HWY_RESTRICT to) {
  if constexpr (kBits == 8) {
    for (int64_t w = 0; w < words; w += kChunkWords) {
      TransposeWords<kFixedKeys>(rows, offset + 4 * w, to + w * kFixedKeys);
      TransposeWords<kFixedKeys>(rows + kLanes, offset + 4 * w, to + w * kFixedKeys + kLanes);
    }
  } else {
    const Words d;
    const auto lower = hn::Set(d, 0x0f0f0f0fu);
    HWY_ALIGN uint32_t stored[kChunkWords * kFixedKeys];
    for (int64_t w = 0; w < words; w += 2 * kChunkWords) {
      TransposeWords<kFixedKeys>(rows, offset + 2 * w, stored);
      TransposeWords<kFixedKeys>(rows + kLanes, offset + 2 * w, stored + kLanes);
      for (int64_t k = 0; k < kChunkWords; ++k) {
        for (int64_t v = 0; v < kFixedKeys; v += kLanes) {
          const VWords both = hn::Load(d, stored + k * kFixedKeys + v);
          uint32_t* at = to + (w + 2 * k) * kFixedKeys + v;
          hn::Store(hn::And(both, lower), d, at);
          hn::Store(hn::And(hn::ShiftRight<4>(both), lower), d, at + kFixedKeys);
        }
      }
    }
  }
}

// Integer sums over a group. Shapes: codes (words, kFixedKeys), q (words, kQuad, kFixedParts), sums
// (kWidth, kFixedParts, kFixedVectors, kLanes).
template <int kWidth>
HWY_INLINE void SumWords(const uint32_t* HWY_RESTRICT codes, const uint32_t* HWY_RESTRICT q,
                         int64_t words, int32_t* HWY_RESTRICT sums) {
  constexpr int kSums = kWidth * static_cast<int>(kFixedParts) * kFixedVectors;
  Sums32 sum[kSums];
  ClearSums<kSums>(sum);
  for (int64_t w = 0; w < words; ++w) {
    const Sums32 keys[kFixedVectors] = {LoadWords32(codes), LoadWords32(codes + kLanes)};
    AddParts<kFixedVectors, kWidth, kFixedParts>(keys, q, sum);
    codes += kFixedKeys;
    q += kQuad * kFixedParts;
  }
  StoreSums32<kSums>(sum, sums);
}

// scores[h][i ...] += sums times steps and scales of group g, of kFixedKeys keys.
template <int kWidth>
HWY_INLINE void AddGroup(const BlockRows& block, int64_t i, int64_t g, const int32_t* sums,
                         const float* steps, float* HWY_RESTRICT scores) {
  const F32 d;
  for (int64_t v = 0; v < kFixedVectors; ++v) {
    const int64_t at = i + v * kLanes;
    const VF32 scale = hn::LoadU(d, block.scales + g * kBlockTokens + at);
    for (int64_t h = 0; h < kWidth; ++h) {
      const VF32 sum =
          JoinParts<kFixedVectors>(sums + (h * kFixedParts * kFixedVectors + v) * kLanes);
      // A power of two: exact.
      const VF32 part = hn::Mul(sum, hn::Set(d, steps[g * kQuad + h]));
      float* to = scores + h * kBlockTokens + at;
      hn::StoreU(hn::MulAdd(part, scale, hn::LoadU(d, to)), d, to);
    }
  }
}

// codes_of(i, g): the transposed codes of kFixedKeys keys from key i on, of group g. Shapes:
// (words, kFixedKeys).
template <int kWidth, class CodesOf>
HWY_INLINE void FixedDots(const BlockRows& block, const Queries& queries, const CodesOf& codes_of,
                          float* HWY_RESTRICT scores) {
  const float* const steps = queries.sums + kQuad * PaddedDim(block.groups);
  const int64_t words = block.group / kFixedCodes;
  BiasParts<kWidth>(block, queries.sums, scores);
  HWY_ALIGN int32_t sums[kWidth * kFixedParts * kFixedVectors * kLanes];
  for (int64_t i = 0; i < block.count; i += kFixedKeys) {
    const auto* q = reinterpret_cast<const uint32_t*>(queries.q);
    for (int64_t g = 0; g < block.groups; ++g, q += words * kQuad * kFixedParts) {
      SumWords<kWidth>(codes_of(i, g), q, words, sums);
      AddGroup<kWidth>(block, i, g, sums, steps, scores);
    }
  }
}

// The rows of kFixedKeys keys from key i on; past the last key it is repeated.
struct KeyRows {
  HWY_INLINE const std::byte* const* From(const BlockRows& block, int64_t i) {
    if (i + kFixedKeys <= block.count) return block.rows + i;
    for (int64_t k = 0; k < kFixedKeys; ++k) last[k] = block.rows[HWY_MIN(i + k, block.count - 1)];
    return last;
  }
  const std::byte* last[kFixedKeys];
};

template <int kBits, int kWidth>
void FixedDotsOfRows(const BlockRows& block, const Queries& queries, float* scores) {
  const int64_t words = block.group / kFixedCodes;
  // All groups of a cache line at once: other rows of the same L1 set may evict it.
  const int64_t line_groups = HWY_MAX(int64_t{1}, kLineBytes * 8 / kBits / block.group);
  HWY_ALIGN uint32_t codes[kMaxWords * kFixedKeys];
  KeyRows keys;
  Prefetcher prefetcher(block.prefetch, (block.count + kFixedKeys - 1) / kFixedKeys * block.groups);
  FixedDots<kWidth>(
      block, queries,
      [&](int64_t i, int64_t g) HWY_ATTR -> const uint32_t* {
        prefetcher.Step();
        if (g % line_groups == 0) {
          const int64_t end = HWY_MIN(g + line_groups, block.groups);
          TransposeCodes<kBits>(keys.From(block, i), g * block.group * kBits / 8, (end - g) * words,
                                codes);
        }
        return codes + g % line_groups * words * kFixedKeys;
      },
      scores);
}

void FixedDotsOfTransposed(const BlockRows& block, const Queries& queries, float* scores) {
  const int64_t words = block.group / kFixedCodes;
  FixedDots<kQuad>(
      block, queries,
      [&](int64_t i, int64_t g) HWY_ATTR {
        return reinterpret_cast<const uint32_t*>(block.transposed) + i * block.dim / kFixedCodes +
               g * words * kFixedKeys;
      },
      scores);
}

template <int kBits>
void TransposeFixed(const BlockRows& block, float* out) {
  auto* to = reinterpret_cast<uint32_t*>(out);
  const int64_t words = block.dim / kFixedCodes;
  KeyRows keys;
  for (int64_t i = 0; i < block.count; i += kFixedKeys, to += words * kFixedKeys) {
    TransposeCodes<kBits>(keys.From(block, i), 0, words, to);
  }
}

FactoredDots DotsOfFixed() {
  return {.of8 = {.dot = {FixedDotsOfRows<8, 1>, FixedDotsOfRows<8, kQuad>},
                  .transpose = TransposeFixed<8>},
          .of4 = {.dot = {FixedDotsOfRows<4, 1>, FixedDotsOfRows<4, kQuad>},
                  .transpose = TransposeFixed<4>},
          .transposed_dot = FixedDotsOfTransposed,
          .lanes = static_cast<int>(kLanes),
          .panel_keys = static_cast<int>(kPanelKeys)};
}

#else

FactoredDots DotsOfFixed() { return {}; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(DotsOfFixed);
FactoredDots FixedDotKernels() { return HWY_DYNAMIC_DISPATCH(DotsOfFixed)(); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
