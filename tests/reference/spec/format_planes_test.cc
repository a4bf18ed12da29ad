// The planes of storage formats, and planes that are no format's: parameters of a whole tensor.

#include "reference/spec/format_planes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/case.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {
namespace {

TEST(Planes, EveryFormatStoresWholeBlocksOfBytes) {
  for (const KvFormat& format : AllKvFormats()) {
    const int64_t block = BlockOf(format);
    const Planes one = PlanesOf(format, block);
    ASSERT_GE(one.size(), 1u) << Print(format);
    std::set<std::string_view> names;
    for (const Plane& plane : one) {
      EXPECT_GT(plane.Bytes(), 0u) << Print(format) << " " << plane.name;
      names.insert(plane.name);
    }
    EXPECT_EQ(names.size(), one.size()) << Print(format);
    // So many bytes a block, and perhaps some that every row has.
    const Planes two = PlanesOf(format, 2 * block);
    const Planes three = PlanesOf(format, 3 * block);
    ASSERT_EQ(three.size(), one.size());
    EXPECT_GT(two.RowBytes(), one.RowBytes()) << Print(format);
    EXPECT_EQ(three.RowBytes() - two.RowBytes(), two.RowBytes() - one.RowBytes()) << Print(format);
    EXPECT_TRUE(FitsHeadDim(format, 3 * block));
    EXPECT_EQ(FitsHeadDim(format, 3 * block + 1), block == 1) << Print(format);
  }
}

TEST(Planes, SizesAreThoseOfTheBits) {
  const auto bytes = [](const char* format, int64_t head_dim) {
    return PlanesOf(ParseKvFormat(WholeLine(format)), head_dim).RowBytes();
  };
  EXPECT_EQ(bytes("f32", 7), 28u);
  EXPECT_EQ(bytes("bf16", 7), 14u);
  EXPECT_EQ(bytes("f8e5m2", 7), 7u);
  EXPECT_EQ(bytes("affine:4:g64:bf16", 128), 64u + 2 * 2 * 2);
  EXPECT_EQ(bytes("affine:3:g32:f32", 96), 36u + 2 * 3 * 4);
  EXPECT_EQ(bytes("fp8:e4m3fn:token:bf16", 128), 132u);
  EXPECT_EQ(bytes("int8:inline:f16", 128), 132u);
  EXPECT_EQ(bytes("fp8:e5m2:s0.5:f16", 128), 128u);
  EXPECT_EQ(bytes("int4zp:token:bf16", 128), 68u);
  EXPECT_EQ(bytes("turboquant:prod:4:g64:bf16", 128), 64u + 2 * (2 + 2));
  EXPECT_EQ(bytes("turboquant:prod:1:g128:f32", 128), 16u + 2 + 2);
  EXPECT_EQ(bytes("uniform:3:token:bf16", 128), 52u);
  EXPECT_EQ(bytes("uniform:4:inline:bf16", 128), 68u);
}

TEST(Planes, SimplerFormatsAreFormatsAndShrinkingEnds) {
  for (const KvFormat& format : AllKvFormats()) {
    for (const KvFormat& simpler : SimplerFormats(format)) {
      EXPECT_NO_THROW(CheckHeadDim(simpler, BlockOf(simpler), "")) << Print(simpler);
      EXPECT_TRUE(BlockOf(simpler) <= BlockOf(format)) << Print(format) << Print(simpler);
    }
    if (IsPlain(format)) continue;
    EXPECT_GT(RankOf(format), RankOf(PlainFormat{DType::kFloat8E5M2})) << Print(format);
  }
}

TEST(Planes, AParameterHasNoRowsAndCountsOnce) {
  Planes planes;
  planes.Add({"codes", DType::kUInt8, "", 10});
  planes.Add({"scale", DType::kFloat32, "", 1, PlaneScope::kTensor});
  EXPECT_EQ(planes.RowBytes(), 10u);
  const Shape leading = {{"B", 2}, {"T", 3}};
  EXPECT_EQ(SpecOf(planes[0], leading).shape, (Shape{{"B", 2}, {"T", 3}, {"", 10}}));
  EXPECT_EQ(SpecOf(planes[1], leading).shape, (Shape{{"", 1}}));

  const std::array<std::byte, 2 * 3 * 4 * 10> codes{};
  const std::array<std::byte, 4> scale{};
  const StoredPlane dense = DensePlane(planes[0], codes.data(), 3, 4);
  EXPECT_EQ(dense.At(1, 2, 3), codes.data() + codes.size() - 10);
  const StoredPlane same = DensePlane(planes[1], scale.data(), 3, 4);
  EXPECT_EQ(same.At(1, 2, 3), scale.data());
}

}  // namespace
}  // namespace kvcheck
