#include "optimized/compare/binned_sum.h"

#include <cmath>

namespace kvcheck {
namespace {

constexpr int kBinBits = 32;
// Every exponent of a last place, plus kOffset, is positive: -1074 - 53 - 2^12 at least.
constexpr int kOffset = 1 << 13;

}  // namespace

void BinnedSum::Raise(int top) {
  if (top <= top_) return;
  std::array<Bin, kBins> moved{};
  for (int i = 0; i < kBins; ++i) {
    const int from = i - (top - top_);
    if (from >= 0) moved[static_cast<size_t>(i)] = bins_[static_cast<size_t>(from)];
  }
  bins_ = moved;
  top_ = top;
}

void BinnedSum::Add(double term, uint64_t times, int exponent) {
  if (term == 0 || times == 0) return;
  int place = 0;
  const double mantissa = std::frexp(term, &place);
  const uint64_t digits = static_cast<uint64_t>(std::ldexp(mantissa, 53));
  const int position = place - 53 + exponent + kOffset;  // of the last place
  const int bin = position / kBinBits;
  Raise(bin);
  const int index = top_ - bin;
  if (index >= kBins) return;
  bins_[static_cast<size_t>(index)] += (static_cast<Bin>(digits) * times) << (position % kBinBits);
}

void BinnedSum::AddSquare(double x, uint64_t times) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  Add(mantissa * mantissa, times, 2 * exponent);
}

void BinnedSum::Merge(const BinnedSum& other) {
  Raise(other.top_);
  for (int i = 0; i < kBins; ++i) {
    const int index = top_ - other.top_ + i;
    if (index < kBins) bins_[static_cast<size_t>(index)] += other.bins_[static_cast<size_t>(i)];
  }
}

double BinnedSum::RootMean(int64_t count) const {
  if (count == 0) return 0;
  double total = 0;
  for (int i = kBins; i-- > 0;) {
    total = total * 0x1p-32 + static_cast<double>(bins_[static_cast<size_t>(i)]);
  }
  // The unit of the leading bin is an even power of two.
  const int exponent = kBinBits * top_ - kOffset;
  return std::ldexp(std::sqrt(total / static_cast<double>(count)), exponent / 2);
}

}  // namespace kvcheck
