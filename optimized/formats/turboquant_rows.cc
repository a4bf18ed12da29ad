// TurboQuant rows as mlx-vlm writes them (turboquant=mlx_vlm): codes and norms in planes of their
// own, group after group.
//
// Definition, of d channels x, every step one f32 operation but the sum of the norm:
//   n = sqrt(sum x^2), the sum in double, term i + d/2 to term i and so on by halves
//   y = H (s x / max(n, 1e-6)) (1 / sqrt d), H by butterflies of strides 1, 2, ..., d / 2
//   code = number of thresholds below y
//   read: n s (H c (1 / sqrt d))
// Source: reference/formats/formats.md, section E.

#include "optimized/formats/turboquant_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/formats/ggml_rows.h"
#include "optimized/formats/numpy_generator.h"
#include "optimized/formats/pack.h"
#include "optimized/formats/row_family.h"
#include "optimized/formats/turboquant_centroids.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/turboquant_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/formats/hadamard-inl.h"

#ifndef OPTIMIZED_FORMATS_TURBOQUANT_TABLES_
#define OPTIMIZED_FORMATS_TURBOQUANT_TABLES_
namespace kvcheck::optimized {

constexpr int kMostTurboquantChannels = 512;

// What a format means, in numbers. Aligned for the longest vectors: HWY_ALIGN is that of the first
// target here.
struct TurboquantTables {
  TurboquantFormat format;
  bool filled = false;
  int d = 0;
  int levels = 0;  // 2^bits
  float scale = 0;
  alignas(64) float centroids[32];
  alignas(64) float thresholds[32];
  alignas(64) float signs[kMostTurboquantChannels];
  alignas(64) float scaled_signs[kMostTurboquantChannels];
};

}  // namespace kvcheck::optimized
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = ButterflyFloats;
using FloatVec = ButterflyVec;
constexpr int kVectorLanes = kButterflyLanes;

float TurboquantNorm(const float* x, int d) {
  HWY_ALIGN double sums[kMostTurboquantChannels / 2];
  const int half = d / 2;
  if (half < 1) return 0;
  for (int i = 0; i < half; ++i) {
    const double low = x[i], high = x[i + half];
    sums[i] = low * low + high * high;  // the products are exact
  }
  for (int h = half / 2; h > 0; h /= 2) {
    for (int i = 0; i < h; ++i) sums[i] += sums[i + h];
  }
  const auto norm = static_cast<float>(std::sqrt(sums[0]));
  return std::isnan(norm) ? std::numeric_limits<float>::quiet_NaN() : norm;
}

#if HWY_TARGET != HWY_SCALAR
// Of sixteen floats those of the indices i, in two vectors of eight lanes.
HWY_INLINE FloatVec LookUp(FloatVec first, FloatVec second, hn::Vec<hn::RebindToSigned<Floats>> i) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const auto index = hn::IndicesFromVec(d, hn::And(i, hn::Set(di, kVectorLanes - 1)));
  const auto is_second = hn::Gt(i, hn::Set(di, kVectorLanes - 1));
  return hn::IfThenElse(hn::RebindMask(d, is_second), hn::TableLookupLanes(second, index),
                        hn::TableLookupLanes(first, index));
}
#endif
template <int kBits>
constexpr bool kLooksUp = kVectorLanes == 8 && kBits <= 4;

// y: the rotated group. Eight codes are kBits bytes.
template <int kBits>
void StoreGroupCodes(const TurboquantTables& tables, const float* y, std::byte* to) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::Rebind<uint8_t, Floats> d8;
  for (int i = 0; i < tables.d; i += 8, to += kBits) {
    HWY_ALIGN uint8_t codes[8];
    for (int j = 0; j < 8; j += kVectorLanes) {
      const FloatVec v = hn::Load(d, y + i + j);
      auto count = hn::Zero(di);
      for (int t = 0; t + 1 < 1 << kBits; ++t) {
        const auto above = hn::Gt(v, hn::Set(d, tables.thresholds[t]));
        count = hn::Sub(count, hn::BitCast(di, hn::VecFromMask(d, above)));
      }
      hn::StoreU(hn::DemoteTo(d8, count), d8, codes + j);
    }
    uint64_t bytes = 0;
    std::memcpy(&bytes, codes, 8);
    const uint64_t joined = JoinCodes<kBits>(bytes);
    std::memcpy(to, &joined, kBits);
  }
}

// kBits bytes. In two loads where one would read more: bytes that were stored apart load slowly
// together.
template <int kBits>
HWY_INLINE uint64_t LoadJoined(const std::byte* from) {
  if constexpr (kBits == 3) {
    uint16_t low = 0;
    std::memcpy(&low, from, 2);
    return low | std::to_integer<uint64_t>(from[2]) << 16;
  } else if constexpr (kBits == 5) {
    uint32_t low = 0;
    std::memcpy(&low, from, 4);
    return low | std::to_integer<uint64_t>(from[4]) << 32;
  } else {
    uint64_t joined = 0;
    std::memcpy(&joined, from, kBits);
    return joined;
  }
}

template <int kBits>
void LoadGroupCentroids(const TurboquantTables& tables, const std::byte* from, float* c) {
#if HWY_TARGET != HWY_SCALAR
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::Rebind<uint8_t, Floats> d8;
  const auto first = hn::Load(d, tables.centroids);
  const auto second = hn::Load(d, tables.centroids + kVectorLanes);
#endif
  for (int i = 0; i < tables.d; i += 8, from += kBits) {
    const uint64_t codes = SplitCodes<kBits>(LoadJoined<kBits>(from));
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kLooksUp<kBits>) {
      HWY_ALIGN uint8_t bytes[8];
      std::memcpy(bytes, &codes, 8);
      const auto index = hn::PromoteTo(di, hn::LoadU(d8, bytes));
      hn::Store(LookUp(first, second, index), d, c + i);
      continue;
    }
#endif
    for (int j = 0; j < 8; ++j) c[i + j] = tables.centroids[codes >> (8 * j) & 0xff];
  }
}

// x: d values; returns the norm.
float EncodeTurboquant(const TurboquantTables& tables, const float* x, std::byte* codes) {
  HWY_ALIGN float y[kMostTurboquantChannels];
  const Floats d;
  const float norm = TurboquantNorm(x, tables.d);
  const auto divisor = hn::Set(d, std::max(norm, 1e-6f));
  for (int i = 0; i < tables.d; i += kVectorLanes) {
    const auto u = hn::Div(hn::LoadU(d, x + i), divisor);
    hn::Store(hn::Mul(u, hn::Load(d, tables.signs + i)), d, y + i);
  }
  HadamardButterflies(y, tables.d);
  const auto scale = hn::Set(d, tables.scale);
  for (int i = 0; i < tables.d; i += kVectorLanes) {
    hn::Store(hn::Mul(hn::Load(d, y + i), scale), d, y + i);
  }
  switch (tables.format.bits) {
    case 1:
      StoreGroupCodes<1>(tables, y, codes);
      break;
    case 2:
      StoreGroupCodes<2>(tables, y, codes);
      break;
    case 3:
      StoreGroupCodes<3>(tables, y, codes);
      break;
    case 4:
      StoreGroupCodes<4>(tables, y, codes);
      break;
    default:
      StoreGroupCodes<5>(tables, y, codes);
  }
  return norm;
}

void LoadCentroids(const TurboquantTables& tables, const std::byte* codes, float* c) {
  switch (tables.format.bits) {
    case 1:
      LoadGroupCentroids<1>(tables, codes, c);
      break;
    case 2:
      LoadGroupCentroids<2>(tables, codes, c);
      break;
    case 3:
      LoadGroupCentroids<3>(tables, codes, c);
      break;
    case 4:
      LoadGroupCentroids<4>(tables, codes, c);
      break;
    default:
      LoadGroupCentroids<5>(tables, codes, c);
  }
}

void DecodeTurboquant(const TurboquantTables& tables, const std::byte* codes, float norm,
                      float* to) {
  HWY_ALIGN float y[kMostTurboquantChannels];
  LoadCentroids(tables, codes, y);
  HadamardButterflies(y, tables.d);
  const Floats d;
  const auto n = hn::Set(d, norm);
  for (int i = 0; i < tables.d; i += kVectorLanes) {
    const auto u = hn::Mul(hn::Load(d, y + i), hn::Load(d, tables.scaled_signs + i));
    hn::StoreU(hn::Mul(u, n), d, to + i);
  }
}

// n c, not rotated back.
void DecodeTurboquantInBasis(const TurboquantTables& tables, const std::byte* codes, float norm,
                             float* to) {
  HWY_ALIGN float c[kMostTurboquantChannels];
  LoadCentroids(tables, codes, c);
  const Floats d;
  const auto n = hn::Set(d, norm);
  for (int i = 0; i < tables.d; i += kVectorLanes) {
    hn::StoreU(hn::Mul(hn::Load(d, c + i), n), d, to + i);
  }
}

void RotateTurboquant(const TurboquantTables& tables, float* x) {
  const Floats d;
  for (int i = 0; i < tables.d; i += kVectorLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Load(d, tables.signs + i)), d, x + i);
  }
  HadamardButterflies(x, tables.d);
  const auto scale = hn::Set(d, tables.scale);
  for (int i = 0; i < tables.d; i += kVectorLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), scale), d, x + i);
  }
}

void RotateTurboquantBack(const TurboquantTables& tables, float* y) {
  HadamardButterflies(y, tables.d);
  const Floats d;
  for (int i = 0; i < tables.d; i += kVectorLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Load(d, tables.scaled_signs + i)), d, y + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {
namespace {

HWY_EXPORT(TurboquantNorm);
HWY_EXPORT(EncodeTurboquant);
HWY_EXPORT(DecodeTurboquant);
HWY_EXPORT(DecodeTurboquantInBasis);
HWY_EXPORT(RotateTurboquant);
HWY_EXPORT(RotateTurboquantBack);

// Index of dimension d in tables that begin with `least`.
int Doublings(int d, int least) {
  return std::countr_zero(static_cast<unsigned>(d)) -
         std::countr_zero(static_cast<unsigned>(least));
}

void FillTables(const TurboquantFormat& format, TurboquantTables* tables) {
  tables->format = format;
  const int d = tables->d = format.group_size;
  const int levels = tables->levels = 1 << format.bits;
  tables->scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  float* c = tables->centroids;
  switch (format.codebook) {
    case TurboquantCodebook::kMlxVlm:
      std::copy_n(kMlxVlmCentroids[4 * Doublings(d, 32) + format.bits - 1], levels, c);
      break;
    case TurboquantCodebook::kVllm:
      std::copy_n(kVllmCentroids[2 * Doublings(d, 64) + format.bits - 3], levels, c);
      break;
    default: {
      const float* positive = kExactCentroids[5 * Doublings(d, 32) + format.bits - 1];
      for (int i = 0; i < levels / 2; ++i) {
        c[levels / 2 + i] = positive[i];
        c[levels / 2 - 1 - i] = -positive[i];
      }
    }
  }
  for (int i = 0; i + 1 < levels; ++i) tables->thresholds[i] = (c[i] + c[i + 1]) / 2.0f;
  std::fill_n(tables->signs, d, 1.0f);
  if (format.seed == TurboquantFormat::kGivenSigns) {
    for (int i = 0; i < d; ++i) {
      const uint32_t word = format.signs[static_cast<size_t>(i) / 32];
      tables->signs[i] = (word & 1u << i % 32) != 0 ? 1.0f : -1.0f;
    }
  } else if (format.seed != TurboquantFormat::kPlainHadamard) {
    NumpyGenerator random(static_cast<uint32_t>(format.seed + int64_t{7919} * d));
    for (int i = 0; i < d; i += 2) {
      const uint64_t word = random.Next();
      tables->signs[i] = (word & 0x80000000u) != 0 ? 1.0f : -1.0f;
      tables->signs[i + 1] = word >> 63 != 0 ? 1.0f : -1.0f;
    }
  }
  for (int i = 0; i < d; ++i) tables->scaled_signs[i] = tables->signs[i] * tables->scale;
  tables->filled = true;
}

// Those of the last few formats of a thread.
const TurboquantTables& TablesOf(const TurboquantFormat& format) {
  constexpr size_t kKept = 4;
  thread_local std::array<TurboquantTables, kKept> kept;
  thread_local size_t last = 0;
  const auto is = [&](const TurboquantTables& tables) {
    return tables.filled && tables.format.WithRowType(format.row_type) == format;
  };
  if (is(kept[last])) return kept[last];
  for (size_t i = 0; i < kKept; ++i) {
    if (is(kept[i])) return kept[last = i];
  }
  last = (last + 1) % kKept;
  FillTables(format, &kept[last]);
  return kept[last];
}

const TurboquantFormat& Of(const KvFormat& format) { return std::get<TurboquantFormat>(format); }

int64_t Block(const KvFormat& format) { return Of(format).group_size; }

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  const TurboquantFormat& turboquant = Of(format);
  return {dim * turboquant.bits / 8, dim / turboquant.group_size * 2, 0};
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  const TurboquantFormat& turboquant = Of(format);
  const TurboquantTables& tables = TablesOf(turboquant);
  const int64_t d = tables.d;
  const auto x_bytes = d * static_cast<int64_t>(SizeInBytes(call.from));
  HWY_ALIGN float values[kMostTurboquantChannels];
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* x = call.x + i * call.x_stride;
    std::byte* codes = call.out.codes + i * call.out.code_stride;
    std::byte* norms = call.out.scales + i * call.out.scale_stride;
    for (int64_t at = 0; at < call.dim; at += d) {
      ReadTurboquantGroup(call.from, turboquant.row_type, x, d, values);
      StoreHalf(HWY_DYNAMIC_DISPATCH(EncodeTurboquant)(tables, values, codes), norms);
      x += x_bytes;
      codes += d * turboquant.bits / 8;
      norms += 2;
    }
  }
}

// Calls use(values, index) with every group of the call.
template <typename Use>
void ForEachDecoded(const KvFormat& format, const DecodeCall& call, Use use) {
  const TurboquantTables& tables = TablesOf(Of(format));
  HWY_ALIGN float values[kMostTurboquantChannels];
  int64_t index = 0;
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    const std::byte* norms = call.rows.scales + i * call.rows.scale_stride;
    for (int64_t at = 0; at < call.dim; at += tables.d, ++index) {
      HWY_DYNAMIC_DISPATCH(DecodeTurboquant)(tables, codes, LoadHalf(norms), values);
      use(values, tables.d, index);
      codes += tables.d * Of(format).bits / 8;
      norms += 2;
    }
  }
}

void Decode(const KvFormat& format, const DecodeCall& call) {
  ForEachDecoded(format, call, [&](const float* values, int64_t d, int64_t index) {
    const size_t bytes = static_cast<size_t>(d) * sizeof(float);
    std::memcpy(call.out + static_cast<size_t>(index) * bytes, values, bytes);
  });
}

void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  const DType type = Of(format).row_type;
  if (type == DType::kFloat32) return Decode(format, call);
  ForEachDecoded(format, call, [&](const float* values, int64_t d, int64_t index) {
    StoreTurboquantGroup(type, values, d, call.out + index * d * 2);
  });
}

void DecodeInBasis(const KvFormat& format, const DecodeCall& call) {
  const TurboquantTables& tables = TablesOf(Of(format));
  auto* to = reinterpret_cast<float*>(call.out);
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    const std::byte* norms = call.rows.scales + i * call.rows.scale_stride;
    for (int64_t at = 0; at < call.dim; at += tables.d, to += tables.d, norms += 2) {
      HWY_DYNAMIC_DISPATCH(DecodeTurboquantInBasis)(tables, codes, LoadHalf(norms), to);
      codes += tables.d * Of(format).bits / 8;
    }
  }
}

int BasisRoundingsOf(const KvFormat&) { return 1; }  // of the product with the norm

void Rotate(const KvFormat& format, int64_t dim, float* x) {
  const TurboquantTables& tables = TablesOf(Of(format));
  for (int64_t at = 0; at < dim; at += tables.d) {
    HWY_DYNAMIC_DISPATCH(RotateTurboquant)(tables, x + at);
  }
}

void RotateBack(const KvFormat& format, int64_t dim, float* y) {
  const TurboquantTables& tables = TablesOf(Of(format));
  for (int64_t at = 0; at < dim; at += tables.d) {
    HWY_DYNAMIC_DISPATCH(RotateTurboquantBack)(tables, y + at);
  }
}

constexpr BasisRows kBasis = {DecodeInBasis, BasisRoundingsOf, Rotate, RotateBack};
constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType, nullptr, &kBasis};

}  // namespace

const RowFamily& RowFamilyOf(const TurboquantFormat&) { return kFamily; }

void ReadTurboquantGroup(DType from, DType row_type, const std::byte* x, int64_t d, float* values) {
  auto* to = reinterpret_cast<std::byte*>(values);
  const StoredRows out = {to, nullptr, nullptr, 4 * d, 0};
  const auto bytes = d * static_cast<int64_t>(SizeInBytes(from));
  if (from == DType::kFloat32 && row_type == DType::kFloat32) {
    std::memcpy(to, x, static_cast<size_t>(bytes));
  } else if (row_type == DType::kFloat32) {
    EncodePlainRows(row_type, {from, d, x, bytes, 1, out, nullptr});
  } else if (from == row_type) {
    DecodePlainRows(from, {d, {x, nullptr, nullptr, bytes, 0}, 1, to});
  } else {
    std::byte rounded[2 * kMostTurboquantChannels];
    EncodePlainRows(row_type,
                    {from, d, x, bytes, 1, {rounded, nullptr, nullptr, 2 * d, 0}, values});
    DecodePlainRows(row_type, {d, {rounded, nullptr, nullptr, 2 * d, 0}, 1, to});
  }
}

void StoreTurboquantGroup(DType row_type, const float* values, int64_t d, std::byte* to) {
  const auto* from = reinterpret_cast<const std::byte*>(values);
  const StoredRows out = {to, nullptr, nullptr, 2 * d, 0};
  EncodePlainRows(row_type, {DType::kFloat32, d, from, 4 * d, 1, out, nullptr});
}

float NormByHalves(const float* x, int d) { return HWY_DYNAMIC_DISPATCH(TurboquantNorm)(x, d); }

void CopyTurboquantCentroids(const TurboquantFormat& format, float* to) {
  const TurboquantTables& tables = TablesOf(format);
  std::copy_n(tables.centroids, tables.levels, to);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
