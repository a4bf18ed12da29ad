#include "optimized/compare/scan.h"

#include "optimized/compare/exact_pair.h"

namespace kvcheck {

Scan::Scan(DType dtype, const PassRule& rule)
    : plan_(MakePassPlan(dtype, rule)), limits_(LimitsOf(plan_, summary_)) {}

void Scan::Doubt(const std::byte* want, const std::byte* got) {
  const double max_abs = summary_.max_abs;
  const double max_rel = summary_.max_rel;
  const double max_ulp = summary_.max_ulp;
  AddPair(plan_, LoadCode(plan_.type.bytes, want), LoadCode(plan_.type.bytes, got), 1, &summary_);
  if (summary_.max_abs != max_abs || summary_.max_rel != max_rel || summary_.max_ulp != max_ulp) {
    limits_ = LimitsOf(plan_, summary_);
  }
}

void Scan::AddSingly(const std::byte* want, const std::byte* got, size_t first, size_t last,
                     SumLanes* squares) {
  for (size_t i = first; i < last; ++i) {
    const uint64_t want_code = LoadCode(plan_.type.bytes, want + i * bytes());
    const uint64_t got_code = LoadCode(plan_.type.bytes, got + i * bytes());
    AddPair(plan_, want_code, got_code, 1, &summary_);
    const PairFacts facts = ExaminePair(plan_, want_code, got_code);
    if (facts.kind == nullptr && facts.lane_error > 0) {
      (*squares)[i % kSumLanes] += facts.lane_error * facts.lane_error;
    }
  }
  limits_ = LimitsOf(plan_, summary_);
}

void Scan::AddBytePairs(const std::byte* want, const std::byte* got, size_t count) {
  byte_pairs_.Count(plan_, want, got, static_cast<int64_t>(count), &summary_);
}

void Scan::AddBlockSquares(SumLanes squares) {
  for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) squares[i] += squares[i + half];
  }
  summary_.squared_error.Add(squares[0]);
}

PassSummary Scan::Finish() {
  byte_pairs_.Flush(plan_, &summary_);
  // AddPair counted relative to the codes that differ.
  if (plan_.rule.kind == PassRule::Kind::kExact) summary_.not_certified += summary_.unlike_bits;
  return summary_;
}

}  // namespace kvcheck
