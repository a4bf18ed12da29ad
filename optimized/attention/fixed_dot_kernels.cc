// q.k over codes and queries in fixed point (fixed_point.h), one key per lane (transposed_keys.h).

// The target with VNNI; only the fixed-point kernels are compiled for it.
#define HWY_WANT_AVX3_DL

#include <cstdint>
#include <cstring>

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
// Words of the codes of a group, or of several, one code a byte.
inline constexpr int64_t kMaxWords = kMaxGroup / kFixedCodes;

// Bits `bit` to `bit` + 3 of the words `fifth` as 16 in each byte.
HWY_INLINE VWords AddFifthBits(VWords codes, VWords fifth, int bit) {
  // Bytes of eight bits of a pair of words from any bit on, around their end.
  alignas(64) static constexpr uint8_t kFirstBit[8] = {60, 61, 62, 63, 28, 29, 30, 31};
  uint64_t first = 0;
  std::memcpy(&first, kFirstBit, sizeof(first));
  const __m512i from = _mm512_add_epi8(_mm512_set1_epi64(static_cast<int64_t>(first)),
                                       _mm512_set1_epi8(static_cast<char>(bit)));
  const VWords moved{_mm512_multishift_epi64_epi8(from, fifth.raw)};
  return hn::Or(codes, hn::And(moved, hn::Set(Words(), 0x10101010u)));
}

// Transposes codes of kFixedKeys keys at `offset` of their rows, one code a byte. Shapes: to
// (words, kFixedKeys).
template <FixedLayout kLayout>
HWY_INLINE void TransposeCodes(const std::byte* const* rows, int64_t offset, int64_t words,
                               uint32_t* HWY_RESTRICT to) {
  constexpr int64_t kCodeWords = IsNibbles(kLayout) ? 2 : 1;  // of a stored word
  for (int64_t w = 0; w < words; w += 4 * kCodeWords, offset += 16) {
    for (int64_t v = 0; v < kFixedKeys; v += kLanes) {
      VWords fifth = hn::Zero(Words());
      if constexpr (kLayout == FixedLayout::kFiveHalves) {
        TransposeFour(rows + v, offset - 4, [&](int word, VWords stored) HWY_ATTR {
          if (word == 0) fifth = stored;
        });
      }
      TransposeFour(rows + v, offset, [&](int word, VWords stored) HWY_ATTR {
        VWords codes[kCodeWords];
        SplitCodes<kLayout>(stored, codes);
        if constexpr (kLayout == FixedLayout::kFiveHalves) {
          codes[0] = AddFifthBits(codes[0], fifth, 4 * word);
          codes[1] = AddFifthBits(codes[1], fifth, 4 * word + 16);
        }
        uint32_t* at = to + (w + kCodeWords * word) * kFixedKeys + v;
        hn::Store(codes[0], Words(), at);
        if constexpr (kCodeWords == 2) hn::Store(codes[1], Words(), at + kFixedKeys);
      });
    }
  }
}

// scores[h][i ...] += sums times steps and scales of a group, of kFixedKeys keys. Unrolled by
// recursion: no accumulator is stored. Shapes: sum (kWidth, kFixedParts, kFixedVectors), steps
// (kWidth), scales (kFixedKeys), scores (kWidth, kBlockTokens), from the first key on.
template <int kWidth, int kVector = 0>
HWY_INLINE void AddGroup(const Sums32* HWY_RESTRICT sum, const float* HWY_RESTRICT steps,
                         const float* HWY_RESTRICT scales, float* HWY_RESTRICT scores) {
  const F32 d;
  constexpr int kRow = kVector / kFixedVectors;
  constexpr int kPlace = kVector % kFixedVectors;
  const VF32 joined =
      JoinParts<kFixedVectors>(sum + kRow * static_cast<int>(kFixedParts) * kFixedVectors + kPlace);
  // A power of two: exact.
  const VF32 part = hn::Mul(joined, hn::Set(d, steps[kRow]));
  float* to = scores + kRow * kBlockTokens + kPlace * kLanes;
  hn::StoreU(hn::MulAdd(part, hn::LoadU(d, scales + kPlace * kLanes), hn::LoadU(d, to)), d, to);
  if constexpr (kVector + 1 < kWidth * kFixedVectors) {
    AddGroup<kWidth, kVector + 1>(sum, steps, scales, scores);
  }
}

// The same of codes and queries. Shapes: codes (words, kFixedKeys), q (1 + words, kQuad,
// kFixedParts).
template <int kWidth>
HWY_INLINE void SumGroup(const uint32_t* HWY_RESTRICT codes, const uint32_t* HWY_RESTRICT q,
                         int64_t words, const float* HWY_RESTRICT steps,
                         const float* HWY_RESTRICT scales, float* HWY_RESTRICT scores) {
  Sums32 sum[kWidth * static_cast<int>(kFixedParts) * kFixedVectors];
  BeginSums<kFixedVectors, kWidth, kFixedParts>(q, sum);
  for (int64_t w = 0; w < words; ++w) {
    q += kQuad * kFixedParts;
    const Sums32 keys[kFixedVectors] = {LoadWords32(codes), LoadWords32(codes + kLanes)};
    AddParts<kFixedVectors, kWidth, kFixedParts>(keys, q, sum);
    codes += kFixedKeys;
  }
  AddGroup<kWidth>(sum, steps, scales, scores);
}

// codes_of(i, g): the transposed codes of kFixedKeys keys from key i on, of group g. Shapes:
// (words, kFixedKeys).
template <int kWidth, class CodesOf>
HWY_INLINE void FixedDots(const BlockRows& block, const Queries& queries, const CodesOf& codes_of,
                          float* HWY_RESTRICT scores) {
  const float* const steps = queries.sums + kQuad * PaddedDim(block.groups);
  const int64_t words = block.group / kFixedCodes;
  if (block.has_biases) {
    BiasParts<kWidth>(block, queries.sums, scores);
  } else {
    for (int64_t i = 0; i < block.count; i += kLanes) {
      for (int64_t h = 0; h < kWidth; ++h) {
        hn::StoreU(hn::Zero(F32()), F32(), scores + h * kBlockTokens + i);
      }
    }
  }
  for (int64_t i = 0; i < block.count; i += kFixedKeys) {
    const auto* q = reinterpret_cast<const uint32_t*>(queries.q);
    for (int64_t g = 0; g < block.groups; ++g, q += (1 + words) * kQuad * kFixedParts) {
      SumGroup<kWidth>(codes_of(i, g), q, words, steps + g * kQuad,
                       block.scales + g * kBlockTokens + i, scores + i);
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

template <FixedLayout kLayout, int kWidth>
void FixedDotsOfRows(const BlockRows& block, const Queries& queries, float* scores) {
  const int64_t words = block.group / kFixedCodes;
  // All groups of a cache line at once: other rows of the same L1 set may evict it. Blocks share
  // lines.
  constexpr bool kInBlocks = kLayout != FixedLayout::kBytes && kLayout != FixedLayout::kNibbles;
  const int64_t line_groups =
      kInBlocks ? kMaxGroup / block.group : HWY_MAX(int64_t{1}, kLineBytes / block.group_bytes);
  HWY_ALIGN uint32_t codes[kMaxWords * kFixedKeys];
  KeyRows keys;
  Prefetcher prefetcher(block.prefetch, (block.count + kFixedKeys - 1) / kFixedKeys * block.groups);
  FixedDots<kWidth>(
      block, queries,
      [&](int64_t i, int64_t g) HWY_ATTR -> const uint32_t* {
        prefetcher.Step();
        if (g % line_groups == 0) {
          const std::byte* const* rows = keys.From(block, i);
          const int64_t end = HWY_MIN(g + line_groups, block.groups);
          uint32_t* to = codes;
          for (int64_t j = g; j < end; ++j, to += words * kFixedKeys) {
            TransposeCodes<kLayout>(rows, j * block.group_bytes, words, to);
          }
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

template <FixedLayout kLayout>
void TransposeFixed(const BlockRows& block, float* out) {
  auto* to = reinterpret_cast<uint32_t*>(out);
  const int64_t words = block.group / kFixedCodes;
  KeyRows keys;
  for (int64_t i = 0; i < block.count; i += kFixedKeys) {
    const std::byte* const* rows = keys.From(block, i);
    for (int64_t g = 0; g < block.groups; ++g, to += words * kFixedKeys) {
      TransposeCodes<kLayout>(rows, g * block.group_bytes, words, to);
    }
  }
}

template <FixedLayout kLayout>
constexpr FactoredDots::Codes FixedDotsOfLayout() {
  return {.dot = {FixedDotsOfRows<kLayout, 1>, FixedDotsOfRows<kLayout, kQuad>},
          .transpose = TransposeFixed<kLayout>};
}

FactoredDots DotsOfFixed() {
  return {.of8 = FixedDotsOfLayout<FixedLayout::kBytes>(),
          .of4 = FixedDotsOfLayout<FixedLayout::kNibbles>(),
          .of_signed8 = FixedDotsOfLayout<FixedLayout::kSignedBytes>(),
          .of_halves4 = FixedDotsOfLayout<FixedLayout::kHalves>(),
          .of_table4 = FixedDotsOfLayout<FixedLayout::kTableHalves>(),
          .of_halves5 = FixedDotsOfLayout<FixedLayout::kFiveHalves>(),
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
