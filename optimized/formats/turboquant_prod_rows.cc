// Rows of turboquant's inner-product codec: codes of bits - 1 are those of turboquant rows, and
// what they leave of the unit vector is projected by a matrix S of normal deviates, of which the
// signs are stored, and its norm.
//
// Definition, of d channels x, every step one f32 operation but the sums:
//   u = x / max(n, 1e-6), r = u - Q, Q the turboquant row of norm 1 (0 of one bit)
//   sign j: whether sum_i S_ji r_i >= 0, in double from i = 0 on; norm of r as that of x
//   read: n (Q + (sqrt(pi/2)/d |r|) sum_j +-S_ji), the sum in double from j = 0 on, then f32
// Words of a row: the codes of all groups, then their signs.
// Source: reference/formats/formats.md, section E.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "optimized/formats/ggml_half.h"
#include "optimized/formats/numpy_generator.h"
#include "optimized/formats/row_family.h"
#include "optimized/formats/turboquant_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/turboquant_prod_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef OPTIMIZED_FORMATS_TURBOQUANT_PROD_ROWS_SIZE_
#define OPTIMIZED_FORMATS_TURBOQUANT_PROD_ROWS_SIZE_
namespace kvcheck::optimized {
constexpr int kMostProdChannels = 512;
}
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = HWY_CAPPED(double, 8);
using HalfFloats = hn::Rebind<float, Doubles>;

// sums[k] += factor(l) matrix[l][k] for l = 0, 1, ...: each product is exact, fused or not. Several
// vectors at once, as every sum waits for itself; d is a multiple of 32.
HWY_INLINE void AddRows(const float* matrix, const double* factors, int d, double* sums) {
  const Doubles dd;
  const HalfFloats df;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(Doubles()));
  constexpr int kVectors = 4;
  for (int k = 0; k < d; k += kVectors * kLanes) {
    hn::Vec<Doubles> sum[kVectors];
    for (auto& s : sum) s = hn::Zero(dd);
    for (int l = 0; l < d; ++l) {
      const auto factor = hn::Set(dd, factors[l]);
      for (int v = 0; v < kVectors; ++v) {
        const auto entries = hn::PromoteTo(dd, hn::LoadU(df, matrix + l * d + k + v * kLanes));
        sum[v] = hn::MulAdd(entries, factor, sum[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[v], dd, sums + k + v * kLanes);
  }
}

// transposed: row i is column i of S. signs: d bits, set where the sum is not negative.
void ProjectSigns(const float* transposed, const float* residual, int d, uint32_t* signs) {
  HWY_ALIGN double factors[kMostProdChannels];
  HWY_ALIGN double sums[kMostProdChannels];
  for (int i = 0; i < d; ++i) factors[i] = static_cast<double>(residual[i]);
  AddRows(transposed, factors, d, sums);
  for (int word = 0; word < d / 32; ++word) {
    uint32_t bits = 0;
    for (int bit = 0; bit < 32; ++bit) bits |= (sums[32 * word + bit] >= 0 ? 1u : 0u) << bit;
    signs[word] = bits;
  }
}

// norm (unit + factor S^T signs).
void ReadSigns(const float* projection, const uint32_t* signs, float norm, float factor,
               const float* unit, int d, float* to) {
  HWY_ALIGN double factors[kMostProdChannels];
  HWY_ALIGN double sums[kMostProdChannels];
  for (int j = 0; j < d; ++j) factors[j] = (signs[j / 32] >> j % 32 & 1) != 0 ? 1.0 : -1.0;
  AddRows(projection, factors, d, sums);
  for (int i = 0; i < d; ++i) {
    const float of_signs = factor * static_cast<float>(sums[i]);
    to[i] = norm * (unit[i] + of_signs);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {
namespace {

HWY_EXPORT(ProjectSigns);
HWY_EXPORT(ReadSigns);

// numpy's default_rng(seed).standard_normal in f32: a ziggurat of 256 layers of equal area.
class NumpyNormals {
 public:
  explicit NumpyNormals(uint32_t seed) : random_(seed) {}
  float Next() {
    static const Ziggurat ziggurat;
    for (;;) {
      const uint32_t bits = Bits();
      const uint32_t layer = bits & 255, place = bits >> 9;
      const float sign = (bits & 256) != 0 ? -1.0f : 1.0f;
      const float x = static_cast<float>(place) * ziggurat.step[layer];
      if (place < ziggurat.inside[layer]) return sign * x;
      if (layer == 0) return (place & 256) != 0 ? -BeyondEdge() : BeyondEdge();
      const float low = ziggurat.height[layer], high = ziggurat.height[layer - 1];
      const float at = (high - low) * Uniform() + low;
      if (static_cast<double>(at) < Density(static_cast<double>(x))) return sign * x;
    }
  }

 private:
  static constexpr double kEdge = 3.6541528853610088;
  static constexpr double kLayerArea = 0.004928673233974658;

  static double Density(double x) { return std::exp(-0.5 * x * x); }

  struct Ziggurat {
    float step[256];
    uint32_t inside[256];
    float height[256];
    Ziggurat() {
      double outer = kLayerArea / Density(kEdge), x = kEdge;
      Set(0, outer, x);
      height[0] = 1;
      for (int layer = 255; layer > 0; --layer) {
        outer = x;
        x = layer == 1 ? 0 : std::sqrt(-2 * std::log(kLayerArea / outer + Density(outer)));
        Set(layer, outer, x);
        height[layer] = static_cast<float>(Density(outer));
      }
    }
    void Set(int layer, double outer, double inner) {
      step[layer] = static_cast<float>(outer * 0x1p-23);
      inside[layer] = static_cast<uint32_t>(std::lround(inner / outer * 0x1p23));
    }
  };

  uint32_t Bits() {
    if (has_upper_) {
      has_upper_ = false;
      return upper_;
    }
    const uint64_t both = random_.Next();
    upper_ = static_cast<uint32_t>(both >> 32);
    has_upper_ = true;
    return static_cast<uint32_t>(both);
  }
  float Uniform() { return static_cast<float>(Bits() >> 8) * 0x1p-24f; }
  float Exponential() { return -static_cast<float>(std::log1p(-static_cast<double>(Uniform()))); }
  float BeyondEdge() {
    for (;;) {
      const float x = static_cast<float>(1 / kEdge) * Exponential();
      const float y = Exponential();
      if (y + y > x * x) return static_cast<float>(kEdge) + x;
    }
  }

  NumpyGenerator random_;
  uint32_t upper_ = 0;
  bool has_upper_ = false;
};

// What a seed and a dimension mean, in numbers.
struct Projection {
  int64_t seed = -1;
  int d = 0;
  std::vector<float> rows, transposed;

  void Fill(int64_t of_seed, int of_d) {
    seed = of_seed;
    d = of_d;
    const auto size = static_cast<size_t>(d);
    NumpyNormals random(static_cast<uint32_t>(seed + 1 + int64_t{2971} * d + 17));
    rows.resize(size * size);
    transposed.resize(size * size);
    for (size_t j = 0; j < size; ++j) {
      for (size_t i = 0; i < size; ++i) {
        rows[j * size + i] = transposed[i * size + j] = random.Next();
      }
    }
  }
};

// Those of the last few seeds of a thread.
const Projection& ProjectionOf(const TurboquantProdFormat& format) {
  thread_local std::array<Projection, 3> kept;
  thread_local size_t last = 0;
  for (const Projection& projection : kept) {
    if (projection.seed == format.seed && projection.d == format.group_size) return projection;
  }
  last = (last + 1) % kept.size();
  kept[last].Fill(format.seed, format.group_size);
  return kept[last];
}

const TurboquantProdFormat& Of(const KvFormat& format) {
  return std::get<TurboquantProdFormat>(format);
}

// Bytes of a group's codes, 0 of one bit, and of its signs.
int64_t CodeBytes(const TurboquantProdFormat& format) {
  return int64_t{format.group_size} * (format.bits - 1) / 8;
}
int64_t SignBytes(const TurboquantProdFormat& format) { return format.group_size / 8; }

// The format of the codes over groups that are f32 already. Precondition: bits > 1.
TurboquantFormat CodeFormat(const TurboquantProdFormat& format) {
  TurboquantFormat codes;
  codes.bits = format.bits - 1;
  codes.group_size = format.group_size;
  codes.codebook = format.codebook;
  codes.seed = format.seed;
  codes.row_type = DType::kFloat32;
  return codes;
}

// Q: the row of these codes with the norm 1; zeros where there are none.
void ReadUnit(const TurboquantProdFormat& format, const std::byte* codes, float* unit) {
  const int64_t d = format.group_size;
  std::fill_n(unit, d, 0.0f);
  if (format.bits == 1) return;
  constexpr std::byte kOne[2] = {std::byte{0x00}, std::byte{0x3c}};
  const TurboquantFormat of_codes = CodeFormat(format);
  RowFamilyOf(of_codes).decode(
      of_codes, {d, {codes, kOne, nullptr, 0, 0}, 1, reinterpret_cast<std::byte*>(unit)});
}

int64_t Block(const KvFormat& format) { return Of(format).group_size; }

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  const int64_t norms = dim / Of(format).group_size * 2;
  return {dim * Of(format).bits / 8, norms, norms};
}

// Calls use(offset of a group's codes, of its signs, of its norms) for every group of a row.
template <typename Use>
void ForEachGroup(const TurboquantProdFormat& format, int64_t dim, Use use) {
  const int64_t groups = dim / format.group_size;
  for (int64_t g = 0; g < groups; ++g) {
    use(g, g * CodeBytes(format), groups * CodeBytes(format) + g * SignBytes(format), 2 * g);
  }
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  const TurboquantProdFormat& prod = Of(format);
  const Projection& projection = ProjectionOf(prod);
  const int64_t d = prod.group_size;
  const auto group_bytes = d * static_cast<int64_t>(SizeInBytes(call.from));
  HWY_ALIGN float values[kMostProdChannels];
  HWY_ALIGN float residual[kMostProdChannels];
  uint32_t signs[kMostProdChannels / 32];
  for (int64_t v = 0; v < call.count; ++v) {
    const std::byte* x = call.x + v * call.x_stride;
    std::byte* codes = call.out.codes + v * call.out.code_stride;
    std::byte* norms = call.out.scales + v * call.out.scale_stride;
    std::byte* residual_norms = call.out.biases + v * call.out.scale_stride;
    ForEachGroup(prod, call.dim, [&](int64_t g, int64_t code, int64_t sign, int64_t norm_at) {
      ReadTurboquantGroup(call.from, prod.row_type, x + g * group_bytes, d, values);
      const float norm = NormByHalves(values, static_cast<int>(d));
      if (prod.bits == 1) {
        StoreHalf(norm, norms + norm_at);
      } else {
        const TurboquantFormat of_codes = CodeFormat(prod);
        RowFamilyOf(of_codes).encode(of_codes, {DType::kFloat32,
                                                d,
                                                reinterpret_cast<const std::byte*>(values),
                                                4 * d,
                                                1,
                                                {codes + code, norms + norm_at, nullptr, 0, 0},
                                                call.values});
      }
      ReadUnit(prod, codes + code, residual);
      const float divisor = std::max(norm, 1e-6f);
      for (int64_t i = 0; i < d; ++i) residual[i] = values[i] / divisor - residual[i];
      StoreHalf(NormByHalves(residual, static_cast<int>(d)), residual_norms + norm_at);
      HWY_DYNAMIC_DISPATCH(ProjectSigns)
      (projection.transposed.data(), residual, static_cast<int>(d), signs);
      std::memcpy(codes + sign, signs, static_cast<size_t>(SignBytes(prod)));
    });
  }
}

// Calls use(values, index) with every group of the call.
template <typename Use>
void ForEachDecoded(const KvFormat& format, const DecodeCall& call, Use use) {
  const TurboquantProdFormat& prod = Of(format);
  const Projection& projection = ProjectionOf(prod);
  const int d = prod.group_size;
  const auto scale = static_cast<float>(std::sqrt(std::acos(-1.0) / 2) / d);
  HWY_ALIGN float unit[kMostProdChannels];
  HWY_ALIGN float values[kMostProdChannels];
  uint32_t signs[kMostProdChannels / 32];
  int64_t index = 0;
  for (int64_t v = 0; v < call.count; ++v) {
    const std::byte* codes = call.rows.codes + v * call.rows.code_stride;
    const std::byte* norms = call.rows.scales + v * call.rows.scale_stride;
    const std::byte* residual_norms = call.rows.biases + v * call.rows.scale_stride;
    ForEachGroup(prod, call.dim, [&](int64_t, int64_t code, int64_t sign, int64_t norm_at) {
      ReadUnit(prod, codes + code, unit);
      std::memcpy(signs, codes + sign, static_cast<size_t>(SignBytes(prod)));
      HWY_DYNAMIC_DISPATCH(ReadSigns)
      (projection.rows.data(), signs, LoadHalf(norms + norm_at),
       scale * LoadHalf(residual_norms + norm_at), unit, d, values);
      use(values, index++);
    });
  }
}

void Decode(const KvFormat& format, const DecodeCall& call) {
  const auto bytes = static_cast<size_t>(Of(format).group_size) * sizeof(float);
  ForEachDecoded(format, call, [&](const float* values, int64_t index) {
    std::memcpy(call.out + static_cast<size_t>(index) * bytes, values, bytes);
  });
}

void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  const DType type = Of(format).row_type;
  if (type == DType::kFloat32) return Decode(format, call);
  const int64_t d = Of(format).group_size;
  ForEachDecoded(format, call, [&](const float* values, int64_t index) {
    StoreTurboquantGroup(type, values, d, call.out + index * d * 2);
  });
}

// The values read are those that are stored, bit for bit: no roundings beside them.
constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType};

}  // namespace

const RowFamily& RowFamilyOf(const TurboquantProdFormat&) { return kFamily; }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
