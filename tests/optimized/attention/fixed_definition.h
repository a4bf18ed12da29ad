// What kernels with integers (fixed_point.h) compute, written out.

#ifndef TESTS_OPTIMIZED_ATTENTION_FIXED_DEFINITION_H_
#define TESTS_OPTIMIZED_ATTENTION_FIXED_DEFINITION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "optimized/attention/fixed_point.h"
#include "reference/formats/codec.h"
#include "tests/optimized/attention/horizontal_sum.h"
#include "tests/optimized/attention/stored_block.h"

namespace kvcheck {

inline int32_t IntegerOf(float x, const optimized::FixedStep& step) {
  return static_cast<int32_t>(std::nearbyint(x * step.lift * step.inverse));
}

// What the kernels compute of a block's codes, scales and biases.
class FixedDefinition {
 public:
  explicit FixedDefinition(const StoredBlock& block)
      : group_(GridOf(block.format)->group), dim_(block.dim), count_(block.count) {
    if (block.scales.empty()) {
      ReadBlocks(block);
      return;
    }
    codes_ = block.Codes();
    scales_ = StoredBlock::Floats(block.scales);
    biases_ = StoredBlock::Floats(block.biases);
  }
  int64_t groups() const { return dim_ / group_; }

  float Dot(const float* q, int64_t key) const {
    float score = 0;
    std::vector<float> parts;
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t first = g * group_;
      float largest = 0;
      for (int64_t c = first; c < first + group_; ++c) {
        largest = std::max(largest, std::fabs(q[c]));
      }
      const optimized::FixedStep step = optimized::FixedStepOf(largest);
      int64_t sum = 0;
      Parts products;
      for (int64_t c = first; c < first + group_; ++c) {
        const int32_t n = IntegerOf(q[c], step);
        sum += n;
        products.Add(n, Code(key, c));
      }
      const auto query =
          static_cast<float>(static_cast<double>(sum) * static_cast<double>(step.step));
      const float bias = Get(biases_, key, g);
      score = g == 0 ? bias * query : std::fma(bias, query, score);
      parts.push_back(products.Sum() * step.step);
    }
    for (int64_t g = 0; g < groups(); ++g) {
      score = std::fma(parts[static_cast<size_t>(g)], Get(scales_, key, g), score);
    }
    return score;
  }
  // Shapes: weights (count).
  float Sum(const float* weights, int64_t channel, float kept) const {
    const int64_t g = channel / group_;
    std::vector<float> lanes(16);
    float largest = 0;
    for (int64_t i = 0; i < count_; ++i) {
      float& bias = lanes[static_cast<size_t>(i) % 16];
      bias = std::fma(weights[i], Get(biases_, i, g), bias);
      largest = std::max(largest, std::fabs(weights[i] * Get(scales_, i, g)));
    }
    const optimized::FixedStep step = optimized::FixedStepOf(largest);
    Parts products;
    for (int64_t i = 0; i < count_; ++i) {
      products.Add(IntegerOf(weights[i] * Get(scales_, i, g), step), Code(i, channel));
    }
    return kept + std::fma(products.Sum(), step.step, HorizontalSum(lanes));
  }

 private:
  // Sums of products of the upper part and of the lower two.
  struct Parts {
    void Add(int32_t n, int64_t code) {
      const uint32_t bytes = optimized::FixedBytes(n);
      const auto part = [&](int i) { return static_cast<int8_t>(bytes >> (8 * i) & 0xff); };
      high += part(2) * code;
      low += (part(1) * 256 + part(0)) * code;
    }
    float Sum() const {
      return std::fma(static_cast<float>(high), 0x1p16f, static_cast<float>(low));
    }
    int64_t high = 0, low = 0;
  };
  // Of ggml, as the reference reads them.
  void ReadBlocks(const StoredBlock& block) {
    Tensor tensor(DType::kUInt8,
                  Shape::Unnamed({count_, static_cast<int64_t>(block.codes.size()) / count_}));
    tensor.bytes = block.codes;
    const std::vector<double> numbers = CodesAsNumbers(block.format, {{&tensor}}, 0, count_);
    auto next = numbers.begin();
    const auto take = [&](int64_t count, auto* to) {
      for (; count > 0; --count) to->push_back(static_cast<float>(*next++));
    };
    for (int64_t i = 0; i < count_; ++i) {
      for (int64_t c = 0; c < dim_; ++c) codes_.push_back(static_cast<int>(*next++));
      take(groups(), &scales_);
      take(groups(), &biases_);
    }
  }
  float Get(const std::vector<float>& of, int64_t key, int64_t g) const {
    return of[static_cast<size_t>(key * groups() + g)];
  }
  int64_t Code(int64_t key, int64_t channel) const {
    return codes_[static_cast<size_t>(key * dim_ + channel)];
  }

  int64_t group_, dim_, count_;
  std::vector<int> codes_;
  std::vector<float> scales_, biases_;
};

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_ATTENTION_FIXED_DEFINITION_H_
