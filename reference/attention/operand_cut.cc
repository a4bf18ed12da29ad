#include "reference/attention/operand_cut.h"

#include <algorithm>
#include <cmath>

#include "reference/numerics/fast_round.h"
#include "reference/spec/dtype.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr double kSmallestNormalF32 = 0x1p-126;
// Products of a flushed part with any part of the other operand, three parts each, and the flushed
// parts that are not multiplied (bound.md, section 2).
constexpr double kFlushedProducts = 16;

size_t PartCount(int passes) { return passes == 1 ? 1 : passes == 3 ? 2 : 3; }

bool IsMultiplied(int passes, size_t i, size_t k) {
  switch (passes) {
    case 1:
      return true;
    case 3:
      return i + k <= 1;
    case 6:
      return i + k <= 2;
    default:
      return true;
  }
}

// Sizes of the parts of an operand, relative to it: the first within 1 + u, each other no more than
// u times the one before, which bounds what the parts before it leave.
std::vector<double> SizesOf(double u, size_t parts) {
  std::vector<double> sizes;
  double left = 1;
  for (size_t i = 0; i < parts; ++i, left *= u) sizes.push_back(left * (1 + u));
  return sizes;
}

double RoundPart(const OperandCut& cut, double x) {
  switch (cut.type) {
    case OperandType::kTf32:
      return cut.toward_zero ? fast_round::TowardZero<10, -126>(x)
                             : fast_round::Nearest<10, -126>(x);
    case OperandType::kBf16:
      return cut.toward_zero ? RoundTowardZeroToBF16(x) : RoundToBF16(x);
    case OperandType::kF16:
      return cut.toward_zero ? RoundTowardZeroToF16(x) : RoundToF16(x);
  }
  KVCHECK_CHECK(false, "a type of operands without a rounding");
}

}  // namespace

int SignificantBits(OperandType type) { return type == OperandType::kBf16 ? 8 : 11; }

double UnitRoundoff(const OperandCut& cut) {
  return std::ldexp(1.0, (cut.toward_zero ? 1 : 0) - SignificantBits(cut.type));
}

double UnderflowOf(const OperandCut& cut, bool flush) {
  const int least = cut.type == OperandType::kF16 ? -14 : -126;
  const double half = std::ldexp(1.0, least - SignificantBits(cut.type));
  return std::max(cut.toward_zero ? 2 * half : half, flush ? kSmallestNormalF32 : 0);
}

ProductCut CutProducts(const std::optional<OperandCut>& cut, int bits_a, int bits_b,
                       double absolute) {
  ProductCut products;
  if (!cut) return products;
  const int bits = SignificantBits(cut->type);
  const double u = UnitRoundoff(*cut);
  const double u_a = bits_a > bits ? u : 0, u_b = bits_b > bits ? u : 0;
  products.eta = kFlushedProducts * absolute;
  products.largest = cut->type == OperandType::kF16 ? FloatTypeOf(DType::kFloat16).largest_finite
                                                    : FloatTypeOf(DType::kBFloat16).largest_finite;
  // Second parts that are zero add nothing.
  if (u_a == 0 && u_b == 0) return products;
  products.passes = cut->passes;
  const size_t parts = PartCount(cut->passes);
  const auto rest = [&](double u_of, int bits_of) {
    return static_cast<int>(parts) * bits >= bits_of ? 0
                                                     : std::pow(u_of, static_cast<double>(parts));
  };
  const double rest_a = rest(u_a, bits_a), rest_b = rest(u_b, bits_b);
  const std::vector<double> a = SizesOf(u_a, parts), b = SizesOf(u_b, parts);
  products.lost = rest_a + rest_b + rest_a * rest_b;
  products.size = 0;
  for (size_t i = 0; i < parts; ++i) {
    for (size_t k = 0; k < parts; ++k) {
      (IsMultiplied(cut->passes, i, k) ? products.size : products.lost) += a[i] * b[k];
    }
  }
  return products;
}

double PassDepth(const SumPlan& sum, double depth, int passes) {
  // A declared depth counts all that a term passes.
  if (passes == 1 || sum.order == SumOrder::kDepth) return depth;
  return passes * depth + passes - 1;
}

std::vector<double> PartsOf(const OperandCut& cut, bool flush, double x) {
  std::vector<double> parts;
  for (size_t i = 0; i < PartCount(cut.passes); ++i) {
    double part = RoundPart(cut, x);
    if (flush && std::fabs(part) < kSmallestNormalF32) part = std::copysign(0.0, part);
    parts.push_back(part);
    x -= part;
  }
  return parts;
}

std::vector<std::pair<size_t, size_t>> ProductsOf(const OperandCut& cut) {
  std::vector<std::pair<size_t, size_t>> products;
  const size_t parts = PartCount(cut.passes);
  for (size_t sum = 2 * (parts - 1) + 1; sum-- > 0;) {
    for (size_t i = 0; i < parts; ++i) {
      if (i > sum || sum - i >= parts || !IsMultiplied(cut.passes, i, sum - i)) continue;
      products.emplace_back(i, sum - i);
    }
  }
  return products;
}

}  // namespace kvcheck
