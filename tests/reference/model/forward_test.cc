#include "reference/model/forward.h"

#include <gtest/gtest.h>

#include "tests/reference/model/small_model.h"

namespace kvcheck {
namespace {

// Rows and columns that no tile divides: the same sum, the same order, the same bits.
TEST(Multiply, IsTheSumOfProductsInTheOrderOfTheInputs) {
  small_model::Draw draw(3);
  for (const int64_t rows : {1, 2, 4, 5, 9}) {
    for (const int64_t out : {1, 7, 8, 9, 17}) {
      Tensor w(DType::kFloat32, Shape::Unnamed({out, 13}));
      for (int64_t i = 0; i < w.ElementCount(); ++i) {
        w.As<float>()[i] = static_cast<float>(draw());
      }
      Matrix x(rows, 13);
      for (double& value : x.values) value = draw();
      const Linear linear(w);
      const Matrix y = Multiply(x, linear);
      const Matrix magnitudes = MultiplyMagnitudes(x, linear);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < out; ++o) {
          double sum = 0;
          double of_magnitudes = 0;
          for (int64_t i = 0; i < 13; ++i) {
            const double weight = w.As<float>()[o * 13 + i];
            sum += x.Row(r)[i] * weight;
            of_magnitudes += x.Row(r)[i] * std::abs(weight);
          }
          ASSERT_EQ(y.Row(r)[o], sum) << rows << " " << out;
          ASSERT_EQ(magnitudes.Row(r)[o], of_magnitudes);
        }
      }
    }
  }
}

TEST(MultiplyTransposed, IsTheProductWithTheTransposedMatrix) {
  Tensor w(DType::kFloat32, Shape::Unnamed({2, 3}));
  for (int64_t i = 0; i < 6; ++i) w.As<float>()[i] = static_cast<float>(i + 1);
  // (1, 10) [[1 2 3] [4 5 6]]
  EXPECT_EQ(MultiplyTransposed({1, 10}, Linear(w)), (std::vector<double>{41, 52, 63}));
}

class Forward : public testing::Test {
 protected:
  const DecoderWeights weights_{small_model::Config(), small_model::Weights(small_model::Config())};
  const std::vector<int64_t> tokens_ = small_model::Tokens(19);
};

TEST_F(Forward, ChunksAndThreadsDoNotChangeABit) {
  DecoderSequence whole(weights_);
  const Matrix expected = whole.Forward(tokens_);
  for (const size_t chunk : {1U, 4U, 7U}) {
    DecoderSequence sequence(weights_, 3);
    std::vector<double> logits;
    for (size_t t = 0; t < tokens_.size(); t += chunk) {
      const Matrix part =
          sequence.Forward(std::span(tokens_).subspan(t, std::min(chunk, tokens_.size() - t)));
      logits.insert(logits.end(), part.values.begin(), part.values.end());
    }
    EXPECT_EQ(logits, expected.values);
  }
}

TEST_F(Forward, StoredRowsTakeThePlaceOfComputedOnes) {
  DecoderSequence own(weights_);
  const Matrix expected = own.Forward(tokens_);
  std::vector<LayerRows> stored = own.computed();
  DecoderSequence same(weights_);
  EXPECT_EQ(same.Forward(tokens_, stored).values, expected.values);
  // Another V of token 2 in the first layer: tokens before it say the same, later ones do not.
  stored[0].v.Row(2)[0] += 1;
  DecoderSequence changed(weights_);
  const Matrix other = changed.Forward(tokens_, stored);
  for (int64_t t = 0; t < 19; ++t) {
    const bool equal = std::equal(other.Row(t), other.Row(t) + 11, expected.Row(t));
    EXPECT_EQ(equal, t < 2) << t;
  }
}

TEST_F(Forward, AWindowHidesOlderKeys) {
  DecoderSequence own(weights_);
  own.Forward(tokens_);
  EXPECT_EQ(own.FirstKey(0, 18), 0);
  EXPECT_EQ(own.FirstKey(1, 18), 16);
  EXPECT_EQ(own.FirstKey(1, 1), 0);
  // K and V of layer 1 that no window reaches any more: nothing changes from there on.
  std::vector<LayerRows> stored = own.computed();
  for (int64_t i = 0; i < stored[1].k.columns; ++i) stored[1].k.Row(4)[i] = 100;
  DecoderSequence base(weights_), changed(weights_);
  const Matrix expected = base.Forward(tokens_, own.computed());
  const Matrix other = changed.Forward(tokens_, stored);
  for (int64_t t = 0; t < 19; ++t) {
    const bool equal = std::equal(other.Row(t), other.Row(t) + 11, expected.Row(t));
    EXPECT_EQ(equal, t < 4 || t > 6) << t;
  }
}

}  // namespace
}  // namespace kvcheck
