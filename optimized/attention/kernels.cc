#include "optimized/attention/kernels.h"

#include <algorithm>
#include <cstring>

#include "optimized/attention/kernel_table.h"
#include "optimized/formats/pack.h"

namespace kvcheck::optimized {
namespace {

// Loads eight bytes at a time, more than the kBits that it needs; the last load ends with the row,
// so that nothing past it is read. 32 channels have at least eight bytes.
template <int kBits>
void Unpack(const std::byte* const* from, int64_t count, int64_t dim, std::byte* out) {
  const int64_t row_bytes = dim * kBits / 8;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t at = 0; at < row_bytes; at += kBits, out += 8) {
      const int64_t start = std::min(at, row_bytes - 8);
      uint64_t joined = 0;
      std::memcpy(&joined, from[i] + start, 8);
      const uint64_t bytes = SplitCodes<kBits>(joined >> (8 * (at - start)));
      std::memcpy(out, &bytes, 8);
    }
  }
}

bool IsMadeByIntel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

// The factored kernels of one arithmetic, a unit: dot products and sums share the layouts of
// queries and of widened rows.
struct FactoredKernels {
  CodeArithmetic arithmetic = CodeArithmetic::kDequantized;
  FactoredDots dots;
  FactoredSums sums;
};

// The first arithmetic that this machine has.
//
//   fused   target    codes                                     files
//   yes     VNNI      kFixedPoint: factored, integer products   fixed_*_kernels.cc
//   yes     8+ lanes  kPacked: factored, FMA                    packed_*_kernels.cc
//   else              kDequantized: c s + z in registers        the kernels of plain rows
FactoredKernels FactoredKernelsFor(bool fused) {
  if (!fused) return {};
  const FactoredKernels by_preference[] = {
      {CodeArithmetic::kFixedPoint, FixedDotKernels(), FixedSumKernels()},
      {CodeArithmetic::kPacked, PackedDotKernels(), PackedSumKernels()},
  };
  for (const FactoredKernels& kernels : by_preference) {
    if (kernels.dots.lanes > 0) return kernels;
  }
  return {};
}

// Halves of blocks that fit L1 were measured faster on Xeons, two levels on Zen 4.
PrefetchPolicy PolicyFor(PrefetchPolicy of_target) {
  return of_target == PrefetchPolicy::kTwoLevels && IsMadeByIntel() ? PrefetchPolicy::kBySize
                                                                    : of_target;
}

// All that a kernel set is made of.
struct Providers {
  explicit Providers(bool fused)
      : dots(PlainDotKernels(fused)),
        sums(PlainSumKernels(fused)),
        panels(fused ? TransposedKernels() : PanelKernels{}),
        codes(FactoredKernelsFor(fused)) {}

  PlainDots dots;
  PlainSums sums;
  PanelKernels panels;
  FactoredKernels codes;
};

RowKernels FactoredRows(const FactoredDots& dots, const FactoredDots::Codes& dot,
                        const FactoredSums::Codes& sum) {
  if (dot.transpose == nullptr) return {};
  return {dot.dot, sum.sum, sum.widen, dot.transpose, dots.transposed_dot, dots.panel_keys};
}

// The table of a kernel set: who provides the kernels of each kind of row.
RowKernels RowKernelsOf(RowKind kind, const Providers& from) {
  const auto& [dots, sums, panels, codes] = from;
  const auto k = static_cast<size_t>(kind);
  switch (kind) {
    case RowKind::kFloat32:
      return {dots.dot[k], sums.sum[k], sums.widen[k], panels.transpose, panels.dot, panels.keys};
    case RowKind::kFloat16:
    case RowKind::kBFloat16:
    case RowKind::kFloat8E4M3:
    case RowKind::kFloat8E5M2:
    case RowKind::kBlock8:
    case RowKind::kBlock4:
    case RowKind::kBlock4Minimum:
    case RowKind::kBlock5:
    case RowKind::kBlock5Minimum:
    case RowKind::kCode8:
    case RowKind::kCode4:
    case RowKind::kScaledE4M3:
    case RowKind::kScaledE5M2:
    case RowKind::kScaledInt8:
    case RowKind::kCentroid1:
    case RowKind::kCentroid2:
    case RowKind::kCentroid3:
    case RowKind::kCentroid4:
    case RowKind::kHalves1And2:
    case RowKind::kHalves2And3:
    case RowKind::kHalves3And4:
      return {dots.dot[k], sums.sum[k], sums.widen[k], nullptr, nullptr, 0};
    case RowKind::kFactored8:
      return FactoredRows(codes.dots, codes.dots.of8, codes.sums.of8);
    case RowKind::kFactored4:
      return FactoredRows(codes.dots, codes.dots.of4, codes.sums.of4);
    case RowKind::kFixedSigned8:
      return FactoredRows(codes.dots, codes.dots.of_signed8, codes.sums.of_signed8);
    case RowKind::kFixedHalves4:
      return FactoredRows(codes.dots, codes.dots.of_halves4, codes.sums.of_halves4);
    case RowKind::kFixedTable4:
      return FactoredRows(codes.dots, codes.dots.of_table4, codes.sums.of_table4);
    case RowKind::kFixedHalves5:
      return FactoredRows(codes.dots, codes.dots.of_halves5, codes.sums.of_halves5);
    case RowKind::kFactoredWidened:
      return {{}, codes.sums.of_widened, nullptr, nullptr, nullptr, 0};
  }
  return {};
}

}  // namespace

AttentionKernels KernelsFor(bool fused) {
  const Providers from(fused);
  const ScaleKernels scales = KernelsOfScales();
#define KVCHECK_ROW(name, rows) RowKernelsOf(RowKind::name, from),
  return {
      .rows = {{KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_ROW)
                    KVCHECK_ATTENTION_FACTORED_KINDS(KVCHECK_ROW)}},
      .softmax = SoftmaxKernels(fused),
      .widen_scales = scales.widen,
      .transpose_scales = scales.transpose,
      .prefetch = PolicyFor(from.dots.prefetch),
      .codes = from.codes.arithmetic,
      .fused = from.dots.fused,
      .dot_lanes = from.dots.lanes,
      .packed_lanes = from.codes.dots.lanes,
      .panel_keys = from.panels.keys,
  };
#undef KVCHECK_ROW
}

void UnpackCodes(int bits, const std::byte* const* from, int64_t count, int64_t dim,
                 std::byte* out) {
  switch (bits) {
    case 2:
      return Unpack<2>(from, count, dim, out);
    case 3:
      return Unpack<3>(from, count, dim, out);
    case 5:
      return Unpack<5>(from, count, dim, out);
    default:
      return Unpack<6>(from, count, dim, out);
  }
}

}  // namespace kvcheck::optimized
