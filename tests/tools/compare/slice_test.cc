#include "tools/compare/slice.h"

#include <gtest/gtest.h>

#include <random>

#include "reference/judge/tensor_source.h"
#include "tests/reference/spec/expect_error.h"
#include "tests/tools/compare/memory_tensor.h"

namespace kvcheck {
namespace {

const Shape kCache = {{"B", 2}, {"Hkv", 4}, {"T", 129}, {"Dk", 3}};

// Element i is the number i.
Tensor Counting(const Shape& shape) {
  Tensor tensor(DType::kInt32, shape);
  for (int32_t i = 0; i < tensor.ElementCount(); ++i) tensor.As<int32_t>()[i] = i;
  return tensor;
}

Tensor Contents(const TensorView& view) {
  Tensor tensor(view.info().dtype, view.info().shape);
  view.Read(kTensorName, 0, tensor.bytes);
  return tensor;
}

TEST(SliceText, IsReadOrRefused) {
  EXPECT_EQ(
      ParseSlice("b=0,H=3,2=5:512"),
      (std::vector<AxisSlice>{{"b", 0, 0, "b=0"}, {"H", 3, 3, "H=3"}, {"2", 5, 511, "2=5:512"}}));
  for (const char* text : {"", "b", "=1", "b=", "b=1:", "b=:2", "b=2:2", "b=3:2", "b=-1", "b=1:2:3",
                           "b=1,", "b=x", "b=99999999999999999999"}) {
    EXPECT_EQ(ErrorOf([&] { ParseSlice(text); }),
              std::string("usage | --slice '") + text +
                  "' | write AXIS=I or AXIS=FIRST:END, joined by commas: b=0,h=3,t=0:512");
  }
}

TEST(SliceShape, FindsAxesByLabelBeginningOrNumber) {
  const auto extents = [](const Shape& shape, const std::string& text) {
    return ToString(SliceShape(shape, ParseSlice(text), "/k"));
  };
  EXPECT_EQ(extents(kCache, "b=1,h=3,t=5:129"), "B=1(1:2) Hkv=1(3:4) T=124(5:129) Dk=3");
  EXPECT_EQ(extents(kCache, "HKV=0:4,3=2"), "B=2 Hkv=4(0:4) T=129 Dk=1(2:3)");
  EXPECT_EQ(extents(Shape::Unnamed({2, 3}), "1=1"), "2x1(1:2)");
  // The label itself beats another that begins with it.
  EXPECT_EQ(extents({{"h", 2}, {"h2", 3}}, "h=1"), "h=1(1:2) h2=3");
}

TEST(SliceShape, RefusesWhatTheShapeDoesNotHave) {
  const auto error = [](const Shape& shape, const std::string& text) {
    return ErrorOf([&] { SliceShape(shape, ParseSlice(text), "/k"); });
  };
  const std::string cache = "B=2 Hkv=4 T=129 Dk=3";
  for (const char* axis : {"x", "4", "99999999999999999999", "hq"}) {
    EXPECT_EQ(error(kCache, std::string(axis) + "=0"),
              std::string("usage | --slice ") + axis + "=0: /k | '" + axis +
                  "' is not one axis of the shape " + cache +
                  "; write a label, or a number from 0");
  }
  EXPECT_NE(error({{"Hq", 2}, {"Hkv", 2}}, "h=0").find("'h' is not one axis"), std::string::npos);
  EXPECT_EQ(error(kCache, "t=129"),
            "usage | --slice t=129: /k | coordinate 129 is outside of the shape " + cache);
  EXPECT_EQ(error(kCache, "t=100:130"),
            "usage | --slice t=100:130: /k | coordinate 129 is outside of the shape " + cache);
  EXPECT_EQ(error(kCache, "t=1,2=1"), "usage | --slice 2=1: /k | the axis is given twice");
  EXPECT_NE(error({}, "0=0").find("is not one axis of the shape scalar"), std::string::npos);
}

TEST(SlicedTensor, IsTheSameAsThePartByItsDefinition) {
  const MemoryTensor whole(Counting(kCache));
  std::mt19937 draw(1);
  for (int round = 0; round < 200; ++round) {
    Shape part = kCache;
    for (Axis& axis : part.axes) {
      if (draw() % 2 == 0) continue;
      const auto extent = static_cast<uint32_t>(axis.extent);
      axis.first = draw() % extent;
      axis.extent = 1 + draw() % (extent - static_cast<uint32_t>(axis.first));
      axis.is_slice = true;
    }
    const SlicedTensor sliced(whole, part);
    const Tensor contents = Contents(sliced);
    for (int64_t i = 0; i < contents.ElementCount(); ++i) {
      const std::vector<int64_t> at = part.Coordinates(i);
      int64_t index = 0;
      for (size_t a = 0; a < at.size(); ++a) {
        index = index * kCache.axes[a].extent + part.axes[a].first + at[a];
      }
      ASSERT_EQ(contents.As<int32_t>()[i], index) << ToString(part) << " " << i << " seed 1";
    }
    // Any range of it.
    const int64_t first = draw() % static_cast<uint32_t>(contents.ElementCount());
    const int64_t count = 1 + draw() % static_cast<uint32_t>(contents.ElementCount() - first);
    std::vector<int32_t> range(static_cast<size_t>(count));
    sliced.Read(kTensorName, first, std::as_writable_bytes(std::span(range)));
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(range[static_cast<size_t>(i)], contents.As<int32_t>()[first + i]);
    }
  }
}

TEST(SlicedTensor, ReadsCloseRunsAtOnceAndDistantOnesAlone) {
  const MemoryTensor close(Counting({{"T", 1000}, {"Dk", 8}}));
  Contents(SlicedTensor(close, SliceShape(close.info().shape, ParseSlice("dk=3"), "")));
  EXPECT_EQ(close.reads(), 1);
  const MemoryTensor distant(Counting({{"T", 10}, {"Dk", 10'000}}));
  Contents(SlicedTensor(distant, SliceShape(distant.info().shape, ParseSlice("dk=3"), "")));
  EXPECT_EQ(distant.reads(), 10);
  const MemoryTensor large(Counting({{"T", 1'000'000}, {"Dk", 4}}));
  Contents(SlicedTensor(large, SliceShape(large.info().shape, ParseSlice("dk=3"), "")));
  EXPECT_LE(large.largest_read(), size_t{1} << 20);
  EXPECT_LE(large.reads(), 16);
}

TEST(SlicedTensor, VerdictNamesElementsByTheirCoordinatesInTheWhole) {
  Tensor changed = Counting(kCache);
  const auto element = [](int64_t b, int64_t h, int64_t t, int64_t d) {
    return ((b * 4 + h) * 129 + t) * 3 + d;
  };
  changed.As<int32_t>()[element(1, 2, 100, 1)] = -1;
  changed.As<int32_t>()[element(1, 2, 50, 1)] = -1;  // outside of the slice
  changed.As<int32_t>()[element(0, 2, 100, 1)] = -1;
  const MemoryTensor gold(Counting(kCache));
  const MemoryTensor got(changed);
  const Shape part = SliceShape(kCache, ParseSlice("b=1,h=1:3,t=90:110"), "");
  const SlicedTensor gold_part(gold, part);
  const SlicedTensor got_part(got, part);
  JudgeOptions options;
  options.special = kTensorPolicy;
  const Verdict verdict =
      Judge(RuledTensorSource(gold_part, {{kTensorName, ExactRule{}}}), got_part, options);
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  const OutputVerdict& output = verdict.outputs[0];
  EXPECT_EQ(output.shape, "B=1(1:2) Hkv=2(1:3) T=20(90:110) Dk=3");
  EXPECT_EQ(output.counts.failed, 1);
  EXPECT_EQ(output.counts.judged, 2 * 20 * 3);
  EXPECT_EQ(output.worst->coordinates, "[b=1, hkv=2, t=100, dk=1]");
  ASSERT_GE(output.breakdown.size(), 2U);
  EXPECT_EQ(output.breakdown[1], "all failures at hkv=2, t=100, dk=1, everything there");
}

TEST(SlicedTensor, EndOfASliceIsNotCalledTheLastCoordinate) {
  const Shape shape = {{"T", 129}};
  Tensor changed = Counting(shape);
  for (int t = 100; t < 110; ++t) changed.As<int32_t>()[t] = -1;
  const MemoryTensor gold(Counting(shape));
  const MemoryTensor got(changed);
  const auto where = [&](const std::string& slice) {
    const Shape part = SliceShape(shape, ParseSlice(slice), "");
    const SlicedTensor gold_part(gold, part);
    const SlicedTensor got_part(got, part);
    return Judge(RuledTensorSource(gold_part, {{kTensorName, ExactRule{}}}), got_part)
        .outputs[0]
        .breakdown[1];
  };
  EXPECT_EQ(where("t=90:110"), "all failures at t = 100..109, everything there");
  EXPECT_EQ(where("t=98:101"), "all failures at t=100, everything there");
  EXPECT_EQ(where("t=109:112"), "all failures at t=109, everything there");
}

}  // namespace
}  // namespace kvcheck
