#include "optimized/compare/code_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "optimized/compare/pass_plan.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

// The two tables of constants were written apart and say the same.
TEST(CodeType, DecodesAsTheReferenceDoes) {
  std::mt19937_64 random(1);
  for (const DType dtype : AllDTypes()) {
    const int bytes = static_cast<int>(SizeInBytes(dtype));
    ASSERT_EQ(CodeTypeOf(dtype).bytes, bytes);
    ASSERT_EQ(CodeTypeOf(dtype).is_float, IsFloat(dtype));
    const uint64_t all = bytes <= 2 ? uint64_t{1} << (8 * bytes) : 200000;
    for (uint64_t i = 0; i < all; ++i) {
      const uint64_t code = bytes <= 2 ? i : random() & (~uint64_t{0} >> (64 - 8 * bytes));
      const bool is_code =
          !(dtype == DType::kBool && code > 1) && !(dtype == DType::kFloat4E2M1FN && code > 15);
      const double value = ValueOf(dtype, code);
      if (!is_code) {
        EXPECT_TRUE(std::isnan(value));
        continue;
      }
      const double expected = Decode(dtype, code);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << Name(dtype) << " " << code;
      } else {
        EXPECT_EQ(std::bit_cast<uint64_t>(value), std::bit_cast<uint64_t>(expected))
            << Name(dtype) << " " << code;
      }
    }
  }
}

TEST(CodeType, SpacingIsTheReferences) {
  std::mt19937_64 random(2);
  for (const DType dtype : AllDTypes()) {
    if (!IsFloat(dtype)) continue;
    const PassPlan plan = MakePassPlan(dtype, {});
    for (int i = 0; i < 70000; ++i) {
      const double value = ValueOf(dtype, i < 65536 ? static_cast<uint64_t>(i) : random());
      if (!std::isfinite(value)) continue;
      EXPECT_EQ(SpacingAt(plan, value), SpacingAt(dtype, value)) << Name(dtype) << " " << value;
    }
  }
}

TEST(CodeType, KeysGrowWithTheMagnitude) {
  for (const DType dtype : AllDTypes()) {
    const PassPlan plan = MakePassPlan(dtype, {});
    if (plan.type.bytes > 2) continue;
    for (uint64_t a = 0; a < uint64_t{1} << (8 * plan.type.bytes); a += 1 + a / 300) {
      const double x = std::fabs(ValueOf(dtype, a));
      EXPECT_EQ(KeyOf(plan, a) > plan.keys.largest, !std::isfinite(x)) << Name(dtype) << a;
      // The least signed integer has the least key.
      if (dtype == DType::kInt8 && a == 0x80) continue;
      if (dtype == DType::kInt16 && a == 0x8000) continue;
      for (uint64_t b = 0; b < 256; ++b) {
        const double y = std::fabs(ValueOf(dtype, b));
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        if (dtype == DType::kInt8 && b == 0x80) continue;
        EXPECT_EQ(KeyOf(plan, a) < KeyOf(plan, b), x < y) << Name(dtype) << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
