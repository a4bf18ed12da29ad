// What the affine encoder knows of its groups before there are codes: where they are, their values
// in f32, their scales and biases. Sixteen groups at once, whose largest and smallest elements are
// found lane by lane and transposed to one lane per group, so that scales and biases come from one
// sequence of vector operations. Included once per instruction set.
// Definition, source: affine_encode.cc.

#if defined(OPTIMIZED_FORMATS_AFFINE_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_FORMATS_AFFINE_SCALES_INL_H_
#undef OPTIMIZED_FORMATS_AFFINE_SCALES_INL_H_
#else
#define OPTIMIZED_FORMATS_AFFINE_SCALES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "optimized/formats/convert.h"
#include "optimized/formats/narrow-inl.h"
#include "optimized/formats/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kvcheck::HWY_NAMESPACE;  // NOLINT

constexpr int kLargestGroup = 128;
constexpr int kChunk = 16;  // groups
constexpr int kMostLanes = 8;
using Lanes = HWY_CAPPED(float, kMostLanes);
using LaneVec = hn::Vec<Lanes>;
// Whether hn::MulAdd rounds once.
constexpr bool kFused = HWY_NATIVE_FMA != 0;

// A comparison with NaN is false, and `so_far` stays: NaN is skipped. That is what the instructions
// of x86 do. Which of two zeros wins changes nothing.
HWY_INLINE LaneVec Larger(LaneVec v, LaneVec so_far) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(v, so_far);
#else
  return hn::IfThenElse(hn::Gt(v, so_far), v, so_far);
#endif
}
HWY_INLINE LaneVec Smaller(LaneVec v, LaneVec so_far) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(v, so_far);
#else
  return hn::IfThenElse(hn::Lt(v, so_far), v, so_far);
#endif
}

// Groups under way. Where values need no rounding they stay where they came from.
struct Chunk {
  HWY_ALIGN float most[kChunk * kMostLanes];  // of each group, by lane
  HWY_ALIGN float least[kChunk * kMostLanes];
  HWY_ALIGN float scale[kChunk];
  HWY_ALIGN float bias[kChunk];
  HWY_ALIGN float inverse[kChunk];
  HWY_ALIGN float values[kChunk * kLargestGroup];
  const std::byte* x[kChunk];        // as they came
  const std::byte* numbers[kChunk];  // f32
  std::byte* codes[kChunk];
  int64_t scale_at[kChunk];  // bytes from the call's first scale
  int count = 0;
  bool divides = false;  // by a scale whose inverse will not do
};

// Walks over the groups of a call, vector by vector.
class Cursor {
 public:
  Cursor(const EncodeCall& call, int64_t group, int64_t x_bytes, int64_t code_bytes,
         int64_t scale_bytes)
      : group_x_(group * x_bytes),
        group_codes_(code_bytes),
        group_scales_(scale_bytes),
        groups_(call.dim / group),
        next_x_(call.x_stride - groups_ * group_x_),
        next_codes_(call.out.code_stride - groups_ * group_codes_),
        next_scales_(call.out.scale_stride - groups_ * group_scales_),
        x_(call.x),
        codes_(call.out.codes),
        group_(groups_),
        left_(call.count * groups_) {}

  // Whether the scales of a chunk follow each other.
  bool scales_adjoin() const { return next_scales_ == 0; }

  void Fill(Chunk* chunk) {
    const int count = static_cast<int>(std::min<int64_t>(kChunk, left_));
    chunk->count = count;
    left_ -= count;
    const std::byte* x = x_;
    std::byte* codes = codes_;
    int64_t scales = scales_;
    int64_t group = group_;
    for (int i = 0; i < count; ++i) {
      chunk->x[i] = x;
      chunk->codes[i] = codes;
      chunk->scale_at[i] = scales;
      x += group_x_;
      codes += group_codes_;
      scales += group_scales_;
      if (--group > 0) continue;
      group = groups_;
      x += next_x_;
      codes += next_codes_;
      scales += next_scales_;
    }
    x_ = x;
    codes_ = codes;
    scales_ = scales;
    group_ = group;
  }

 private:
  const int64_t group_x_, group_codes_, group_scales_;  // bytes
  const int64_t groups_;                                // of a vector
  const int64_t next_x_, next_codes_, next_scales_;     // bytes from the end of a vector
  const std::byte* x_;
  std::byte* codes_;
  int64_t scales_ = 0;
  int64_t group_, left_;
};

// Values of a chunk as f32, rounded to the scale's type (f32: not), and their extremes by lane.
template <DType kFrom, DType kRound>
void ReadChunk(int group, Chunk* chunk) {
  const Lanes d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  constexpr int kSize = kFrom == DType::kFloat32 ? 4 : 2;
  constexpr bool kInPlace = kFrom == DType::kFloat32 && kRound == DType::kFloat32;
  for (int g = 0; g < chunk->count; ++g) {
    const std::byte* x = chunk->x[g];
    float* values = chunk->values + g * group;
    chunk->numbers[g] = kInPlace ? x : reinterpret_cast<const std::byte*>(values);
    auto most = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto least = hn::Set(d, std::numeric_limits<float>::infinity());
    auto most2 = most;
    auto least2 = least;
    for (int i = 0; i < group; i += 2 * lanes) {
      const auto v = RoundLanes<kRound>(d, LoadLanes<kFrom>(d, x + kSize * i));
      const auto w = RoundLanes<kRound>(d, LoadLanes<kFrom>(d, x + kSize * (i + lanes)));
      if constexpr (!kInPlace) {
        hn::Store(v, d, values + i);
        hn::Store(w, d, values + i + lanes);
      }
      most = Larger(v, most);
      least = Smaller(v, least);
      most2 = Larger(w, most2);
      least2 = Smaller(w, least2);
    }
    hn::Store(Larger(most2, most), d, chunk->most + g * lanes);
    hn::Store(Smaller(least2, least), d, chunk->least + g * lanes);
  }
  // Vectors of the last groups are whole.
  for (int g = chunk->count; g % lanes != 0; ++g) {
    hn::Store(hn::Zero(d), d, chunk->most + g * lanes);
    hn::Store(hn::Zero(d), d, chunk->least + g * lanes);
  }
}

// The other types, one value at a time: of f64 rounded once, also where the scale's type is
// narrower.
void WidenGroup(DType from, DType scale, const std::byte* x, int group, float* values) {
  for (int i = 0; i < group; ++i) {
    if (from == DType::kFloat64) {
      double value = 0;
      std::memcpy(&value, x + 8 * i, 8);
      values[i] = scale == DType::kFloat32 ? static_cast<float>(value)
                                           : std::bit_cast<float>(OddF32FromF64(value));
      continue;
    }
    const auto code = static_cast<uint8_t>(x[i]);
    values[i] =
        std::bit_cast<float>(from == DType::kFloat8E4M3FN ? F32FromE4M3(code) : F32FromE5M2(code));
  }
}

template <DType kRound>
void ReadOther(DType from, int group, Chunk* chunk) {
  for (int g = 0; g < chunk->count; ++g) {
    float* values = chunk->values + g * group;
    WidenGroup(from, kRound, chunk->x[g], group, values);
    chunk->x[g] = reinterpret_cast<const std::byte*>(values);
  }
  ReadChunk<DType::kFloat32, kRound>(group, chunk);
}

// Rows are rounded to the scale's type before anything else; of that type they are already.
template <DType kScale>
HWY_INLINE void Read(DType from, int group, Chunk* chunk) {
  switch (from) {
    case DType::kFloat32:
      return ReadChunk<DType::kFloat32, kScale>(group, chunk);
    case DType::kFloat16:
      return ReadChunk < DType::kFloat16,
             kScale == DType::kFloat16 ? DType::kFloat32 : kScale > (group, chunk);
    case DType::kBFloat16:
      return ReadChunk < DType::kBFloat16,
             kScale == DType::kBFloat16 ? DType::kFloat32 : kScale > (group, chunk);
    default:
      return ReadOther<kScale>(from, group, chunk);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four vectors, one a group, to the extremes of each 128-bit block: lane i of a block is group i.
template <class Pick>
HWY_INLINE LaneVec BlocksOfFour(Lanes d, const float* HWY_RESTRICT by_lane, Pick pick) {
  const hn::RepartitionToWide<hn::RebindToUnsigned<Lanes>> d64;
  const size_t lanes = hn::Lanes(d);
  const auto a = hn::Load(d, by_lane);
  const auto b = hn::Load(d, by_lane + lanes);
  const auto c = hn::Load(d, by_lane + 2 * lanes);
  const auto e = hn::Load(d, by_lane + 3 * lanes);
  const auto ab =
      hn::BitCast(d64, pick(hn::InterleaveUpper(d, a, b), hn::InterleaveLower(d, a, b)));
  const auto ce =
      hn::BitCast(d64, pick(hn::InterleaveUpper(d, c, e), hn::InterleaveLower(d, c, e)));
  return pick(hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)),
              hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)));
}
#endif

struct PickLarger {
  HWY_INLINE LaneVec operator()(LaneVec a, LaneVec b) const { return Larger(a, b); }
};
struct PickSmaller {
  HWY_INLINE LaneVec operator()(LaneVec a, LaneVec b) const { return Smaller(a, b); }
};

// Extremes of as many groups as there are lanes, from those by lane.
template <size_t kLanes, class Pick>
HWY_INLINE LaneVec ByGroup(Lanes d, const float* HWY_RESTRICT by_lane, Pick pick) {
#if HWY_TARGET == HWY_SCALAR
  (void)pick;
  return hn::Load(d, by_lane);
#else
  const auto low = BlocksOfFour(d, by_lane, pick);
  if constexpr (kLanes == 4) {
    return low;
  } else {
    const auto high = BlocksOfFour(d, by_lane + 4 * kLanes, pick);
    return pick(hn::ConcatUpperUpper(d, high, low), hn::ConcatLowerLower(d, high, low));
  }
#endif
}

// Scales and biases of a chunk, in f32.
HWY_INLINE void Scales(float n, Chunk* chunk) {
  const Lanes d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto smallest = hn::Set(d, 1e-7f);
  bool divides = !kFused;
  for (int g = 0; g < chunk->count; g += lanes) {
    const auto mx = ByGroup<hn::MaxLanes(Lanes())>(d, chunk->most + g * lanes, PickLarger());
    const auto mn = ByGroup<hn::MaxLanes(Lanes())>(d, chunk->least + g * lanes, PickSmaller());
    const auto step = hn::Div(hn::Sub(mx, mn), hn::Set(d, n));
    const auto floor = hn::IfThenElse(hn::Lt(step, smallest), smallest, step);  // a NaN step stays
    const auto is_low = hn::Gt(hn::Abs(mn), hn::Abs(mx));
    const auto edge = hn::IfThenElse(is_low, mn, mx);
    const auto s = hn::IfThenElse(is_low, floor, hn::Neg(floor));
    const auto k = hn::Round(hn::Div(edge, s));
    const auto is_zero = hn::Eq(k, hn::Zero(d));  // NaN is not
    const auto scale = hn::IfThenElse(is_zero, s, hn::Div(edge, k));
    hn::Store(scale, d, chunk->scale + g);
    hn::Store(hn::IfThenElse(is_zero, hn::Zero(d), edge), d, chunk->bias + g);
    if constexpr (kFused) {
      hn::Store(hn::Div(hn::Set(d, 1.0F), scale), d, chunk->inverse + g);
      const auto size = hn::Abs(scale);
      const auto fits =
          hn::And(hn::Ge(size, hn::Set(d, 0x1p-30F)), hn::Le(size, hn::Set(d, 0x1p60F)));
      divides |= !hn::AllTrue(d, fits);
    }
  }
  chunk->divides = divides;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_FORMATS_AFFINE_SCALES_INL_H_
