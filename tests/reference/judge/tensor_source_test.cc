// Stored tensors as an expected side: read tile by tile, under the policy for NaN that is asked.

#include "reference/judge/tensor_source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "reference/spec/error.h"
#include "tests/reference/judge/fake_source.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

// A tensor that exists only as a function of the element, and counts what is read of it.
class ComputedTensor : public ObservedSource {
 public:
  ComputedTensor(Shape shape, float offset) : offset_(offset) {
    info_.name = "x";
    info_.shape = std::move(shape);
  }
  const OutputInfo* Find(const std::string& name) const override {
    return name == "x" ? &info_ : nullptr;
  }
  std::vector<std::string> Names() const override { return {"x"}; }
  void Read(const std::string&, int64_t first, std::span<std::byte> out) const override {
    for (size_t i = 0; i < out.size() / 4; ++i) {
      const float value = static_cast<float>(Hashed(3, static_cast<uint64_t>(first) + i)) + offset_;
      std::memcpy(out.data() + 4 * i, &value, 4);
    }
    elements_ += static_cast<int64_t>(out.size() / 4);
    int64_t largest = largest_;
    while (largest < static_cast<int64_t>(out.size()) &&
           !largest_.compare_exchange_weak(largest, static_cast<int64_t>(out.size()))) {
    }
  }
  int64_t elements() const { return elements_; }
  int64_t largest_bytes() const { return largest_; }

 private:
  OutputInfo info_;
  float offset_;
  mutable std::atomic<int64_t> elements_ = 0;
  mutable std::atomic<int64_t> largest_ = 0;
};

TEST(TensorSource, ReadsBothSidesTileByTile) {
  const std::vector<Shape> shapes = {
      {{"T", 1}}, {{"T", 3000}, {"Dv", 129}}, {{"T", 65537}, {"Dv", 3}}, {{"B", 2}, {"T", 70001}}};
  for (const Shape& shape : shapes) {
    const ComputedTensor expected(shape, 0);
    const ComputedTensor observed(shape, 0);
    const RuledTensorSource source(expected, {{"x", ExactRule{}}});
    EXPECT_EQ(expected.elements(), 0);
    for (const int threads : {1, 3}) {
      JudgeOptions options;
      options.threads = threads;
      const int64_t before = expected.elements();
      EXPECT_EQ(Judge(source, observed, options).outcome, Outcome::kPass);
      EXPECT_EQ(expected.elements() - before, shape.ElementCount());
    }
    EXPECT_LE(expected.largest_bytes(), 4 << 16);
    EXPECT_LE(observed.largest_bytes(), 4 << 16);
  }
}

TEST(TensorSource, EqualsTheSameTensorsInMemory) {
  const Shape shape = {{"T", 1000}, {"Dv", 129}};
  const ComputedTensor expected(shape, 0);
  const ComputedTensor observed(shape, 0x1p-12f);
  const auto stored = [&](const ComputedTensor& from) {
    Tensor tensor(DType::kFloat32, shape);
    from.Read("x", 0, tensor.bytes);
    return tensor;
  };
  for (const std::string text : {"exact", "ulp:100", "abs:2^-13", "abs:2^-10,rel:2^-20"}) {
    const ToleranceRule rule = ParseToleranceRule(WholeLine(text));
    JudgeOptions options;
    options.special = kTensorPolicy;
    const Verdict lazy = Judge(RuledTensorSource(expected, {{"x", rule}}), observed, options);
    const Verdict held =
        JudgeTensors({{"x", {stored(expected), rule}}}, {{"x", stored(observed)}}, options);
    EXPECT_EQ(lazy, held) << text;
    options.threads = 3;
    EXPECT_EQ(Judge(RuledTensorSource(expected, {{"x", rule}}), observed, options), held) << text;
  }
}

TEST(TensorSource, AnExpectedByteThatIsNoCodeIsFoundWithItsPlace) {
  Tensor want(DType::kFloat4E2M1FN, {{"T", 30000}, {"Dv", 3}});
  const Tensor got = want;
  want.bytes[3 * 29999 + 2] = std::byte{0x10};
  const MemorySink expected(TensorMap{{"x", want}});
  const RuledTensorSource source(expected, {{"x", ExactRule{}}});
  try {
    Judge(source, MemorySink(TensorMap{{"x", got}}));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIllegalCase);
    EXPECT_EQ(error.context(), "x");
    EXPECT_NE(error.message().find("at [t=29999, dv=2] is the byte 0x10"), std::string::npos)
        << error.message();
  }
}

TEST(TensorSource, WhatItCannotJudgeIsRefused) {
  const MemorySink expected(TensorMap{{"x", Tensor(DType::kFloat32, Shape::Unnamed({2}))}});
  EXPECT_THROW(RuledTensorSource(expected, {{"y", ExactRule{}}}), Error);
  EXPECT_THROW(RuledTensorSource(expected, {{"x", DerivedRule{}}}), Error);
  EXPECT_THROW(RuledTensorSource(expected, {{"x", CodecRule{}}}), Error);
}

TEST(TensorSource, NanFollowsThePolicyUnderEveryRule) {
  const Shape shape = Shape::Unnamed({2});
  const Tensor want = MakeTensor(DType::kFloat32, shape, {1, kNan});
  Tensor other = want;
  other.As<uint32_t>()[1] ^= 1;
  const MemorySink expected(TensorMap{{"x", want}});
  for (const std::string text : {"exact", "ulp:1", "abs:2^-10"}) {
    const RuledTensorSource source(expected, {{"x", ParseToleranceRule(WholeLine(text))}});
    const auto outcome = [&](NanPolicy nan, const Tensor& got) {
      JudgeOptions options;
      options.special = PolicyOf(nan);
      return Judge(source, MemorySink(TensorMap{{"x", got}}), options).outcome;
    };
    EXPECT_EQ(outcome(NanPolicy::kFail, want), Outcome::kFail) << text;
    EXPECT_EQ(outcome(NanPolicy::kEqualBits, want), Outcome::kPass) << text;
    EXPECT_EQ(outcome(NanPolicy::kEqualBits, other), Outcome::kFail) << text;
    EXPECT_EQ(outcome(NanPolicy::kEqual, other), Outcome::kPass) << text;
    EXPECT_EQ(outcome(NanPolicy::kEqual, MakeTensor(DType::kFloat32, shape, {1, 1})),
              Outcome::kFail);
  }
}

}  // namespace
}  // namespace kvcheck
