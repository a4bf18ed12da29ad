#include "tools/compare/cast_source.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "reference/numerics/convert.h"
#include "tests/tools/compare/expect_error.h"
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
