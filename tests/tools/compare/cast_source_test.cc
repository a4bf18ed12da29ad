#include "tools/compare/cast_source.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "reference/numerics/convert.h"
#include "tests/reference/spec/expect_error.h"
#include "tests/tools/compare/memory_tensor.h"

namespace kvcheck {
namespace {

// Whether every code of a type of at most 16 bits survives the way to `wide` and back.
bool Survives(DType wide, DType narrow) {
  const uint64_t codes = narrow == DType::kBool ? 2 : uint64_t{1} << CodeBits(narrow);
  for (uint64_t code = 0; code < codes; ++code) {
    const double value = Decode(narrow, code);
    try {
      const double back = Decode(wide, Encode(wide, value));
      if (std::isnan(value) != std::isnan(back)) return false;
      if (!std::isnan(value) && (back != value || std::signbit(back) != std::signbit(value))) {
        return false;
      }
    } catch (const Error&) {
      return false;
    }
  }
  return true;
}

TEST(HoldsEveryValue, AgreesWithEveryCodeOfEveryShortType) {
  for (const DType narrow : AllDTypes()) {
    if (SizeInBytes(narrow) > 2) continue;
    for (const DType wide : AllDTypes()) {
      EXPECT_EQ(HoldsEveryValue(wide, narrow), Survives(wide, narrow))
          << Name(wide) << " of " << Name(narrow);
    }
  }
}

TEST(HoldsEveryValue, LongTypesAreHeldByTheirRange) {
  const std::pair<DType, std::vector<DType>> holders[] = {
      {DType::kFloat64, {DType::kFloat64}},
      {DType::kFloat32, {DType::kFloat64, DType::kFloat32}},
      {DType::kInt32, {DType::kFloat64, DType::kInt32, DType::kInt64}},
      {DType::kUInt32, {DType::kFloat64, DType::kInt64, DType::kUInt32, DType::kUInt64}},
      {DType::kInt64, {DType::kInt64}},
      {DType::kUInt64, {DType::kUInt64}},
  };
  for (const auto& [narrow, wides] : holders) {
    for (const DType wide : AllDTypes()) {
      const bool holds = std::find(wides.begin(), wides.end(), wide) != wides.end();
      EXPECT_EQ(HoldsEveryValue(wide, narrow), holds) << Name(wide) << " of " << Name(narrow);
    }
  }
}

TEST(ExactlyAs, TakesWhatEveryElementAllowsAndCountsTheOthers) {
  const auto doubles = [](const std::vector<double>& values) {
    Tensor tensor(DType::kFloat64, Shape::Unnamed({static_cast<int64_t>(values.size())}));
    EncodeFrom(values, DType::kFloat64, tensor.bytes.data());
    return tensor;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  int64_t first = 0;
  int64_t count = 0;
  const auto as = [&](const std::vector<double>& values, DType to) {
    return ExactlyAs(doubles(values), to, &first, &count);
  };
  const std::optional<Tensor> half = as({1, -0.0, 0x1p-24, 65504, infinity, nan}, DType::kFloat16);
  ASSERT_TRUE(half);
  EXPECT_EQ(first, -1);
  const std::vector<uint16_t> codes(half->As<uint16_t>(), half->As<uint16_t>() + 5);
  EXPECT_EQ(codes, (std::vector<uint16_t>{0x3c00, 0x8000, 0x0001, 0x7bff, 0x7c00}));
  EXPECT_TRUE(std::isnan(Decode(DType::kFloat16, half->As<uint16_t>()[5])));
  // One more bit, below the smallest, above the largest.
  EXPECT_FALSE(as({1, 1 + 0x1p-11, 0x1p-25, 65536}, DType::kFloat16));
  EXPECT_EQ(first, 1);
  EXPECT_EQ(count, 3);
  EXPECT_FALSE(as({0x1p-134, 1}, DType::kBFloat16));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(count, 1);
  // No infinity there.
  EXPECT_FALSE(as({448, infinity}, DType::kFloat8E4M3FN));
  // Integers of 64 bits that a double does not hold.
  Tensor wide(DType::kInt64, Shape::Unnamed({2}));
  wide.As<int64_t>()[0] = 7;
  wide.As<int64_t>()[1] = (int64_t{1} << 53) + 1;
  EXPECT_FALSE(ExactlyAs(wide, DType::kFloat64, &first, &count));
  EXPECT_EQ(first, 1);
}

TEST(CastTensor, HoldsTheSameValues) {
  for (const DType narrow : AllDTypes()) {
    if (SizeInBytes(narrow) > 2) continue;
    const int64_t codes = narrow == DType::kBool ? 2 : int64_t{1} << CodeBits(narrow);
    Tensor tensor(narrow, Shape::Unnamed({codes}));
    for (int64_t i = 0; i < codes; ++i) {
      if (SizeInBytes(narrow) == 1) {
        tensor.As<uint8_t>()[i] = static_cast<uint8_t>(i);
      } else {
        tensor.As<uint16_t>()[i] = static_cast<uint16_t>(i);
      }
    }
    const MemoryTensor memory(tensor);
    const CastTensor cast(memory, DType::kFloat32, "/x");
    EXPECT_EQ(cast.info().dtype, DType::kFloat32);
    std::vector<float> values(static_cast<size_t>(codes));
    cast.Read(kTensorName, 0, std::as_writable_bytes(std::span(values)));
    for (int64_t i = 0; i < codes; ++i) {
      const double value = Decode(narrow, static_cast<uint64_t>(i));
      const float got = values[static_cast<size_t>(i)];
      EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << Name(narrow) << " " << i;
    }
  }
}

TEST(CastTensor, ReadsLongRangesInBlocks) {
  const int64_t count = 200'000;
  Tensor tensor(DType::kInt32, Shape::Unnamed({count}));
  for (int32_t i = 0; i < count; ++i) tensor.As<int32_t>()[i] = -i;
  const MemoryTensor memory(tensor);
  const CastTensor cast(memory, DType::kInt64, "/x");
  std::vector<int64_t> values(static_cast<size_t>(count) - 1);
  cast.Read(kTensorName, 1, std::as_writable_bytes(std::span(values)));
  for (int64_t i = 0; i + 1 < count; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], -i - 1);
  EXPECT_LE(memory.largest_read(), size_t{4} << 16);
}

TEST(CastTensor, TypeThatCouldHideADifferenceIsRefused) {
  const MemoryTensor memory(Tensor(DType::kFloat32, Shape::Unnamed({2})));
  EXPECT_EQ(ErrorOf([&] { CastTensor(memory, DType::kBFloat16, "/x of GOT"); }),
            "usage | cast of /x of GOT | bfloat16 does not hold every value of float32: name a "
            "type that does");
}

}  // namespace
}  // namespace kvcheck
