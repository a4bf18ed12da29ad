// Shapes, types, tensors, errors and the memory sink.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "reference/spec/dtype.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "reference/spec/shape.h"
#include "reference/spec/tensor.h"

namespace kvcheck {
namespace {

TEST(Shape, CountsElementsRowsAndRowLength) {
  const Shape shape = {{"B", 2}, {"T", 3}, {"Dk", 129}};
  EXPECT_EQ(shape.ElementCount(), 2 * 3 * 129);
  EXPECT_EQ(shape.RowLength(), 129);
  EXPECT_EQ(shape.RowCount(), 6);
  const Shape scalar;
  EXPECT_EQ(scalar.ElementCount(), 1);
  EXPECT_EQ(scalar.RowLength(), 1);
  EXPECT_EQ(scalar.RowCount(), 1);
  EXPECT_EQ(Shape::Unnamed({0, 4}).RowCount(), 0);
  EXPECT_EQ(Shape::Unnamed({4, 0}).RowCount(), 0);
  EXPECT_EQ(Shape::Unnamed({4, 0}).ElementCount(), 0);
}

TEST(Shape, CoordinatesAreRowMajorForEveryElement) {
  const Shape shape = Shape::Unnamed({2, 1, 3, 5});
  int64_t element = 0;
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t b = 0; b < 3; ++b) {
      for (int64_t c = 0; c < 5; ++c) {
        EXPECT_EQ(shape.Coordinates(element), (std::vector<int64_t>{a, 0, b, c}));
        ++element;
      }
    }
  }
}

TEST(Shape, PrintsNamesWhereEveryAxisHasOne) {
  const Shape named = {{"B", 2}, {"Hq", 8}, {"L", 4}, {"Dv", 64}};
  EXPECT_EQ(ToString(named), "B=2 Hq=8 L=4 Dv=64");
  EXPECT_EQ(ElementName(named, ((1 * 8 + 3) * 4 + 0) * 64 + 17), "[b=1, hq=3, l=0, dv=17]");
  const Shape unnamed = Shape::Unnamed({2, 8, 4, 64});
  EXPECT_EQ(ToString(unnamed), "2x8x4x64");
  EXPECT_EQ(ElementName(unnamed, 64), "[0, 0, 1, 0]");
  const Shape mixed = {{"B", 2}, {"", 3}};
  EXPECT_EQ(ToString(mixed), "2x3");
  EXPECT_EQ(ToString(Shape{}), "scalar");
  EXPECT_EQ(ElementName(Shape{}, 0), "[]");
}

TEST(Shape, SameExtentsIgnoresNamesButNotRank) {
  const Shape named = {{"L", 2}, {"T", 3}};
  EXPECT_TRUE(named.SameExtents(Shape::Unnamed({2, 3})));
  EXPECT_FALSE(named.SameExtents(Shape::Unnamed({3, 2})));
  EXPECT_FALSE(named.SameExtents(Shape::Unnamed({2, 3, 1})));
  EXPECT_FALSE(named.SameExtents(Shape::Unnamed({2})));
}

TEST(Shape, AxisNamesAreTheNineLetters) {
  for (const char* name : {"B", "Hq", "Hkv", "L", "T", "Dk", "Dv", "G", "W"}) {
    EXPECT_TRUE(IsAxisName(name)) << name;
  }
  for (const char* name : {"", "H", "hq", "D", "BB"}) EXPECT_FALSE(IsAxisName(name)) << name;
}

// The constants of a float type follow from its widths: an independent statement of the table.
TEST(FloatType, ConstantsFollowFromTheWidths) {
  for (DType dtype : AllDTypes()) {
    if (!IsFloat(dtype)) continue;
    const FloatType& type = FloatTypeOf(dtype);
    const int smallest = type.has_subnormals ? 1 - type.bias : -type.bias;
    EXPECT_EQ(type.smallest_normal, std::ldexp(1.0, smallest)) << Name(dtype);
    EXPECT_EQ(type.smallest_subnormal,
              std::ldexp(1.0, type.has_subnormals ? smallest - type.mantissa_bits : smallest))
        << Name(dtype);
    EXPECT_EQ(UnitRoundoff(dtype), std::ldexp(1.0, -type.mantissa_bits - 1)) << Name(dtype);
    EXPECT_EQ(HalfSmallestSubnormal(dtype), type.smallest_subnormal / 2) << Name(dtype);
    // The largest finite value: an IEEE-like type gives its top exponent to infinity and NaN;
    // E4M3FN gives only its all-ones mantissa, E8M0 its only code there, E2M1 nothing.
    const int top_field = (1 << type.exponent_bits) - 1;
    const int top = top_field - type.bias - (type.has_infinity || dtype == DType::kFloat8E8M0FNU);
    const int unused = dtype == DType::kFloat8E4M3FN ? 2 : 1;
    EXPECT_EQ(type.largest_finite, std::ldexp(2.0 - std::ldexp(unused, -type.mantissa_bits), top))
        << Name(dtype);
    const int bits = type.exponent_bits + type.mantissa_bits + (type.is_signed ? 1 : 0);
    EXPECT_EQ(bits, dtype == DType::kFloat4E2M1FN ? 4 : 8 * static_cast<int>(SizeInBytes(dtype)))
        << Name(dtype);
  }
}

TEST(DType, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (DType dtype : AllDTypes()) {
    EXPECT_TRUE(names.insert(Name(dtype)).second);
    EXPECT_TRUE(names.insert(ShortName(dtype)).second || Name(dtype) == ShortName(dtype));
  }
}

TEST(DTypeDeathTest, FloatFactsOfAnIntegerAreABugOfTheCaller) {
  EXPECT_EXIT(FloatTypeOf(DType::kInt8), testing::ExitedWithCode(kInternalErrorExitCode),
              "not a floating-point type");
}

TEST(Tensor, StartsZeroedWithTheBytesOfItsShape) {
  const Tensor tensor(DType::kBFloat16, Shape::Unnamed({3, 5}));
  EXPECT_EQ(tensor.bytes.size(), 30u);
  for (std::byte byte : tensor.bytes) EXPECT_EQ(byte, std::byte{0});
  EXPECT_EQ(Tensor(DType::kFloat64, {}).bytes.size(), 8u);
  EXPECT_EQ(Tensor(DType::kFloat64, Shape::Unnamed({0, 5})).bytes.size(), 0u);
}

TEST(Error, SaysContextThenMessage) {
  const Error error(ErrorCode::kUsage, "what is wrong", "where");
  EXPECT_STREQ(error.what(), "where: what is wrong");
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_STREQ(Error(ErrorCode::kParse, "alone").what(), "alone");
  std::set<std::string_view> names;
  for (auto code :
       {ErrorCode::kUsage, ErrorCode::kParse, ErrorCode::kIllegalCase, ErrorCode::kUnreadableFile,
        ErrorCode::kMissingData, ErrorCode::kUnsupported, ErrorCode::kSelection}) {
    EXPECT_TRUE(names.insert(Name(code)).second) << Name(code);
  }
}

TEST(CheckDeathTest, FailedCheckPrintsWhereAndExitsWithFour) {
  static_assert(kInternalErrorExitCode == 4);
  EXPECT_EXIT(KVCHECK_CHECK(1 + 1 == 3, "arithmetic"), testing::ExitedWithCode(4),
              "internal error at .*vocabulary_test.cc:[0-9]+: arithmetic .*1 \\+ 1 == 3");
  KVCHECK_CHECK(1 + 1 == 2, "arithmetic");
}

TEST(MemorySink, ReturnsWhatWasWritten) {
  MemorySink sink;
  sink.Declare("out", DType::kFloat32, {{"L", 2}, {"Dv", 3}});
  const float rows[6] = {1, 2, 3, 4, 5, 6};
  sink.Write("out", 3, std::as_bytes(std::span(rows + 3, 3)));
  sink.Write("out", 0, std::as_bytes(std::span(rows, 3)));
  EXPECT_EQ(sink.Names(), std::vector<std::string>{"out"});
  ASSERT_NE(sink.Find("out"), nullptr);
  EXPECT_EQ(sink.Find("out")->row_length, 3);
  EXPECT_EQ(sink.Find("lse"), nullptr);
  float got[4];
  sink.Read("out", 2, std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(std::memcmp(got, rows + 2, sizeof(got)), 0);
  EXPECT_THROW(sink.Read("lse", 0, {}), Error);
  const MemorySink copy(sink.tensors());
  EXPECT_EQ(copy.tensors(), sink.tensors());
}

TEST(MemorySinkDeathTest, RowsOutsideTheShapeAreABugOfTheCaller) {
  const auto exits = testing::ExitedWithCode(kInternalErrorExitCode);
  MemorySink sink;
  sink.Declare("out", DType::kUInt8, Shape::Unnamed({4}));
  const std::byte bytes[2] = {};
  std::byte got[2];
  EXPECT_EXIT(sink.Write("out", 3, bytes), exits, "outside");
  EXPECT_EXIT(sink.Write("out", -1, bytes), exits, "outside");
  EXPECT_EXIT(sink.Read("out", 3, got), exits, "outside");
  EXPECT_EXIT(sink.Write("lse", 0, bytes), exits, "not declared");
}

}  // namespace
}  // namespace kvcheck
