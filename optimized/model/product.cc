#include "optimized/model/product.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/model/product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = HWY_CAPPED(float, 16);

// kRows rows, two vectors of outputs: accumulators stay in registers.
template <int kRows>
HWY_INLINE void Tile(const ProductArguments& a, int64_t row, int64_t first) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* x = a.x + row * a.in;
  hn::Vec<Floats> low[kRows];
  hn::Vec<Floats> high[kRows];
  for (int r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
  for (int64_t begin = 0; begin < a.in; begin += kSumBlock) {
    const int64_t end = std::min(a.in, begin + kSumBlock);
    hn::Vec<Floats> block_low[kRows];
    hn::Vec<Floats> block_high[kRows];
    for (int r = 0; r < kRows; ++r) block_low[r] = block_high[r] = hn::Zero(d);
    for (int64_t i = begin; i < end; ++i) {
      const float* w = a.w + i * a.out + first;
      const auto w_low = hn::LoadU(d, w);
      const auto w_high = hn::LoadU(d, w + lanes);
      for (int r = 0; r < kRows; ++r) {
        const auto value = hn::Set(d, x[r * a.in + i]);
        block_low[r] = hn::MulAdd(value, w_low, block_low[r]);
        block_high[r] = hn::MulAdd(value, w_high, block_high[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      low[r] = hn::Add(low[r], block_low[r]);
      high[r] = hn::Add(high[r], block_high[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* y = a.y + (row + r) * a.out + first;
    hn::StoreU(low[r], d, y);
    hn::StoreU(high[r], d, y + lanes);
  }
}

// The same sum of one output.
HWY_INLINE void Single(const ProductArguments& a, int64_t row, int64_t output) {
  const HWY_CAPPED(float, 1) d;
  const float* x = a.x + row * a.in;
  auto sum = hn::Zero(d);
  for (int64_t begin = 0; begin < a.in; begin += kSumBlock) {
    const int64_t end = std::min(a.in, begin + kSumBlock);
    auto block = hn::Zero(d);
    for (int64_t i = begin; i < end; ++i) {
      block = hn::MulAdd(hn::Set(d, x[i]), hn::Set(d, a.w[i * a.out + output]), block);
    }
    sum = hn::Add(sum, block);
  }
  a.y[row * a.out + output] = hn::GetLane(sum);
}

void ProductRange(const ProductArguments& a, int64_t first, int64_t count) {
  const Floats d;
  const auto width = 2 * static_cast<int64_t>(hn::Lanes(d));
  int64_t output = first;
  for (; output + width <= first + count; output += width) {
    int64_t row = 0;
    for (; row + 4 <= a.rows; row += 4) Tile<4>(a, row, output);
    for (; row < a.rows; ++row) Tile<1>(a, row, output);
  }
  for (; output < first + count; ++output) {
    for (int64_t row = 0; row < a.rows; ++row) Single(a, row, output);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(ProductRange);

void Product(const ProductArguments& arguments, int64_t first, int64_t count) {
  HWY_DYNAMIC_DISPATCH(ProductRange)(arguments, first, count);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
