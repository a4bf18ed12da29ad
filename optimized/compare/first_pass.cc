#include "optimized/compare/first_pass.h"

#include <algorithm>

#include "optimized/compare/scan.h"
#include "reference/spec/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/compare/first_pass.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/compare/lanes-inl.h"
#include "optimized/compare/raw_scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck {
namespace HWY_NAMESPACE {

template <class Codes>
void ScanFloats(Scan& scan, const std::byte* want, const std::byte* got, size_t count,
                SumLanes* squares) {
  if (scan.plan().rule.kind == PassRule::Kind::kAbsRel) {
    ScanFloats<Codes, true>(scan, want, got, count, squares);
  } else {
    ScanFloats<Codes, false>(scan, want, got, count, squares);
  }
}

template <class Codes>
void ScanDoubles(Scan& scan, const std::byte* want, const std::byte* got, size_t count,
                 SumLanes* squares) {
  if (scan.plan().rule.kind == PassRule::Kind::kAbsRel) {
    ScanDoubles<Codes, true>(scan, want, got, count, squares);
  } else {
    ScanDoubles<Codes, false>(scan, want, got, count, squares);
  }
}

// A block in which codes differ, or where even equal ones are decided one by one.
void ScanValues(Scan& scan, const std::byte* want, const std::byte* got, size_t count) {
  SumLanes squares{};
  size_t done = scan.plan().is_unbounded ? 0 : count - count % kSumLanes;
  if (done > 0) {
    switch (scan.plan().dtype) {
      case DType::kFloat32:
        ScanFloats<Float32Codes>(scan, want, got, done, &squares);
        break;
      case DType::kFloat16:
        ScanFloats<Float16Codes>(scan, want, got, done, &squares);
        break;
      case DType::kBFloat16:
        ScanFloats<BFloat16Codes>(scan, want, got, done, &squares);
        break;
      case DType::kInt16:
        ScanFloats<Int16Codes>(scan, want, got, done, &squares);
        break;
      case DType::kUInt16:
        ScanFloats<UInt16Codes>(scan, want, got, done, &squares);
        break;
      case DType::kFloat64:
        ScanDoubles<Float64Codes>(scan, want, got, done, &squares);
        break;
      case DType::kInt32:
        ScanDoubles<Int32Codes>(scan, want, got, done, &squares);
        break;
      case DType::kUInt32:
        ScanDoubles<UInt32Codes>(scan, want, got, done, &squares);
        break;
      case DType::kInt64:
        ScanDoubles<Int64Codes>(scan, want, got, done, &squares);
        break;
      case DType::kUInt64:
        ScanDoubles<UInt64Codes>(scan, want, got, done, &squares);
        break;
      default:
        done = 0;
        break;
    }
  }
  scan.AddSingly(want, got, done, count, &squares);
  scan.AddBlockSquares(squares);
}

// At most kPassBlockElements.
void ScanBlock(Scan& scan, const std::byte* want, const std::byte* got, size_t count) {
  const RawCounts raw = ScanCodes(scan.plan(), want, got, count);
  PassSummary& summary = scan.summary();
  summary.elements += static_cast<int64_t>(count);
  summary.unlike_bits += static_cast<int64_t>(raw.unlike);
  summary.zeros_of_two_signs += static_cast<int64_t>(raw.zeros_of_two_signs);
  summary.loose += static_cast<int64_t>(raw.loose);
  summary.any_nonzero |= raw.any_nonzero;
  if (raw.unlike > 0 || scan.plan().is_unbounded) {
    if (scan.plan().lanes == Lanes::kBytePairs) {
      scan.AddBytePairs(want, got, count);
    } else {
      ScanValues(scan, want, got, count);
    }
    return;
  }
  const int64_t others = static_cast<int64_t>(raw.special - raw.infinities);
  summary.same_infinity += static_cast<int64_t>(raw.infinities);
  if (scan.plan().type.has_nan) {
    summary.both_nan += others;
    if (scan.plan().rule.nan == PassNan::kFail) summary.not_certified += others;
  } else {
    summary.no_code += others;
    summary.not_certified += others;
  }
}

void ScanSpan(Scan& scan, const std::byte* want, const std::byte* got, size_t elements) {
  constexpr size_t kBlock = static_cast<size_t>(kPassBlockElements);
  for (size_t first = 0; first < elements; first += kBlock) {
    ScanBlock(scan, want + first * scan.bytes(), got + first * scan.bytes(),
              std::min(kBlock, elements - first));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck {

HWY_EXPORT(ScanSpan);

int64_t PassSummary::FinitePairs() const {
  return elements - both_nan - expected_nan - observed_nan - same_infinity - opposite_infinities -
         expected_infinity - observed_infinity - no_code;
}

void PassSummary::Merge(const PassSummary& other) {
  elements += other.elements;
  unlike_bits += other.unlike_bits;
  not_certified += other.not_certified;
  both_nan += other.both_nan;
  expected_nan += other.expected_nan;
  observed_nan += other.observed_nan;
  same_infinity += other.same_infinity;
  opposite_infinities += other.opposite_infinities;
  expected_infinity += other.expected_infinity;
  observed_infinity += other.observed_infinity;
  no_code += other.no_code;
  zeros_of_two_signs += other.zeros_of_two_signs;
  loose += other.loose;
  any_nonzero |= other.any_nonzero;
  max_abs = std::max(max_abs, other.max_abs);
  max_rel = std::max(max_rel, other.max_rel);
  max_ulp = std::max(max_ulp, other.max_ulp);
  squared_error.Merge(other.squared_error);
}

PassSummary ComparePass(DType dtype, std::span<const std::byte> expected,
                        std::span<const std::byte> got, const PassRule& rule) {
  Scan scan(dtype, rule);
  KVCHECK_CHECK(expected.size() == got.size() && expected.size() % scan.bytes() == 0,
                "two spans of another number of elements");
  HWY_DYNAMIC_DISPATCH(ScanSpan)
  (scan, expected.data(), got.data(), expected.size() / scan.bytes());
  return scan.Finish();
}

}  // namespace kvcheck
#endif  // HWY_ONCE
