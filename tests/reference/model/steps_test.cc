#include "reference/model/steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reference/judge/judge.h"
#include "reference/model/step_source.h"
#include "reference/spec/implementation.h"
#include "tests/reference/model/small_model.h"

namespace kvcheck {
namespace {

// The steps in f32, every operation rounded, sums term by term: what the arithmetic below declares.
DecoderArithmetic PlainF32() {
  DecoderArithmetic a;
  a.sum_block = 0;
  a.u_norm_sum = 0x1p-24;
  a.exp_error = 0x1p-22;  // expf: an ulp and a half, whatever library
  a.silu_roundings = 3;
  a.angle_error = 4 * 0x1p-24;
  return a;
}

using Row = std::vector<float>;

Row NormF32(const Row& x, const Tensor& w, float eps) {
  float sum = 0;
  for (const float value : x) sum += value * value;
  const float scale = 1 / std::sqrt(sum / static_cast<float>(x.size()) + eps);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * w.As<float>()[i];
  return y;
}

Row ProductF32(const Row& x, const Tensor& w) {
  Row y(static_cast<size_t>(w.shape.RowCount()));
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) y[o] += x[i] * w.As<float>()[o * x.size() + i];
  }
  return y;
}

Row RopeF32(Row x, const DecoderConfig& c, int64_t position) {
  const auto half = static_cast<size_t>(c.head_dim / 2);
  for (size_t at = 0; at < x.size(); at += 2 * half) {
    for (size_t i = 0; i < half; ++i) {
      const float exponent = -2 * static_cast<float>(i) / static_cast<float>(c.head_dim);
      const float angle =
          static_cast<float>(position) * std::pow(static_cast<float>(c.rope_theta), exponent);
      const float low = x[at + i];
      const float high = x[at + half + i];
      x[at + i] = low * std::cos(angle) - high * std::sin(angle);
      x[at + half + i] = high * std::cos(angle) + low * std::sin(angle);
    }
  }
  return x;
}

Row InnerF32(const Row& n, const Tensor& gate, const Tensor& up) {
  Row a = ProductF32(n, gate);
  const Row b = ProductF32(n, up);
  for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] / (1 + std::exp(-a[i])) * b[i];
  return a;
}

Row Sum(const Row& x, Row y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] = x[i] + y[i];
  return y;
}

class Steps : public testing::TestWithParam<uint64_t> {
 protected:
  Steps() {
    small_model::Draw draw(GetParam() + 100);
    const auto fill = [&](Row* row, int64_t size) {
      row->resize(static_cast<size_t>(size));
      for (float& value : *row) value = static_cast<float>(3 * draw());
    };
    fill(&x_, c_.hidden);
    fill(&out_, c_.query_width());
  }
  Matrix M(const Row& row) const {
    Matrix matrix(1, static_cast<int64_t>(row.size()));
    std::copy(row.begin(), row.end(), matrix.values.begin());
    return matrix;
  }
  Outcome JudgeRow(StepValues values, const Row& got) const {
    const StepSource expected({{"step", std::move(values)}});
    TensorMap answer;
    answer["step"] = Tensor(DType::kFloat32, Shape::Unnamed({1, static_cast<int64_t>(got.size())}));
    std::copy(got.begin(), got.end(), answer["step"].As<float>());
    return Judge(expected, MemorySink(std::move(answer))).outcome;
  }
  // Passes, and fails where an element is off by a thousandth of its mass.
  void Expect(const StepValues& values, Row got) const {
    EXPECT_EQ(JudgeRow(values, got), Outcome::kPass);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_GT(values.bound.values[i], 0);
      EXPECT_LT(values.bound.values[i], 1e-4 * values.mass.values[i]);
      EXPECT_LT(values.own.values[i], 1e-6 * values.bound.values[i]);
    }
    got[got.size() / 2] += static_cast<float>(1e-3 * values.mass.values[got.size() / 2]);
    EXPECT_EQ(JudgeRow(values, got), Outcome::kFail);
  }
  const Tensor& W(const char* name) const { return map_.at(LayerTensor(1, name)); }

  const DecoderConfig c_ = small_model::Config();
  const TensorMap map_ = small_model::Weights(c_, GetParam());
  const DecoderWeights weights_{c_, map_};
  const DecoderArithmetic declared_ = PlainF32();
  const float eps_ = static_cast<float>(c_.rms_norm_eps);
  Row x_, out_;
};

TEST_P(Steps, PlainF32IsWithinItsBoundsAndAThousandthOffIsNot) {
  // Not far: in f32 the angle's error grows with the position.
  const std::vector<int64_t> position = {static_cast<int64_t>(GetParam())};
  const ProjectedValues p = Project(weights_, 1, M(x_), position, &declared_);
  const Row n = NormF32(x_, W(kInputNorm), eps_);
  Expect(p.q, RopeF32(ProductF32(n, W(kQProj)), c_, position[0]));
  Expect(p.k, RopeF32(ProductF32(n, W(kKProj)), c_, position[0]));
  Expect(p.v, ProductF32(n, W(kVProj)));
  const Row mid = Sum(x_, ProductF32(out_, W(kOProj)));
  Expect(AddAttention(weights_, 1, M(x_), M(out_), &declared_), mid);
  const Row inner = InnerF32(NormF32(mid, W(kPostNorm), eps_), W(kGateProj), W(kUpProj));
  Expect(Inner(weights_, 1, M(mid), &declared_), inner);
  Expect(AddInner(weights_, 1, M(mid), M(inner), &declared_),
         Sum(mid, ProductF32(inner, W(kDownProj))));
  Expect(Logits(weights_, M(x_), &declared_),
         ProductF32(NormF32(x_, map_.at(kFinalNorm), eps_), map_.at(kHead)));
}

INSTANTIATE_TEST_SUITE_P(Seeds, Steps, testing::Range<uint64_t>(1, 13));

TEST(DecoderArithmetic, BlocksCutTheDepthOfASum) {
  DecoderArithmetic a;
  a.sum_block = 64;
  EXPECT_EQ(a.Depth(63), 63);
  EXPECT_EQ(a.Depth(64), 64);
  EXPECT_EQ(a.Depth(65), 64 + 2);
  EXPECT_EQ(a.Depth(704), 64 + 11);
  a.sum_block = 0;
  EXPECT_EQ(a.Depth(704), 704);
}

TEST(Project, ARotationByAWrongPositionFails) {
  const DecoderConfig c = small_model::Config();
  const DecoderWeights weights(c, small_model::Weights(c));
  const DecoderArithmetic declared;
  Matrix x(1, c.hidden);
  std::iota(x.values.begin(), x.values.end(), 1.0);
  const std::vector<int64_t> here = {5}, there = {6};
  const StepValues q = Project(weights, 0, x, here, &declared).q;
  const StepValues other = Project(weights, 0, x, there, &declared).q;
  const StepSource expected({{"q", q}});
  TensorMap answer;
  answer["q"] = Tensor(DType::kFloat32, Shape::Unnamed({1, c.query_width()}));
  for (size_t i = 0; i < other.value.values.size(); ++i) {
    answer["q"].As<float>()[i] = static_cast<float>(other.value.values[i]);
  }
  EXPECT_EQ(Judge(expected, MemorySink(std::move(answer))).outcome, Outcome::kFail);
}

}  // namespace
}  // namespace kvcheck
