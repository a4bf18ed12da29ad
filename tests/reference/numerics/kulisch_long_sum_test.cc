// More terms than a slot of the accumulator can hold without carries.

#include <gtest/gtest.h>

#include <cstdint>

#include "reference/numerics/kulisch.h"

namespace kvcheck {
namespace {

KulischAccumulator TwoToThe(int doublings, double x) {
  KulischAccumulator sum;
  sum.AddProduct(-x, x);
  for (int i = 0; i < doublings; ++i) sum.Merge(sum);
  return sum;
}

// x^2 = (2^48 - 2^25 + 1) 2^12 has its lowest bit at place 2148 + 12 of the accumulator, 16 mod 32,
// so that each term adds 2^32 - 2^9 to one slot: more than 63 bits after 2^31 + 2^23 terms.
TEST(KulischLongSum, CarriesBeforeASlotIsFull) {
  const double x = 16777215.0 * 0x1p6;
  KulischAccumulator by_doubling = TwoToThe(31, x);
  by_doubling.Merge(TwoToThe(23, x));
  KulischAccumulator one_by_one;
  constexpr int64_t kTerms = (int64_t{1} << 31) + (int64_t{1} << 23);
  for (int64_t i = 0; i < kTerms; ++i) one_by_one.AddProduct(-x, x);
  EXPECT_EQ(one_by_one, by_doubling);
  EXPECT_EQ(one_by_one.Round(), by_doubling.Round());
}

}  // namespace
}  // namespace kvcheck
