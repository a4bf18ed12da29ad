#include "optimized/model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "optimized/cache/cache_factory.h"
#include "optimized/model/product.h"
#include "reference/model/steps.h"
#include "tests/optimized/on_target.h"
#include "tests/reference/model/small_model.h"

namespace kvcheck::optimized {
namespace {

// The instruction sets that this build has and this processor runs.
std::vector<int64_t> Targets() {
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

TEST(Product, IsWithinItsDepthOnEveryTargetForAnyExtents) {
  small_model::Draw draw(1);
  size_t judged = 0;
  for (const int64_t target : Targets()) {
    const OnTarget on(target);
    for (const int64_t rows : {1, 3, 4, 5}) {
      for (const int64_t in : {1, 63, 64, 65, 129}) {
        for (const int64_t out : {1, 7, 33, 65}) {
          std::vector<float> x(static_cast<size_t>(rows * in)), w(static_cast<size_t>(in * out));
          for (float& value : x) value = static_cast<float>(draw());
          for (float& value : w) value = static_cast<float>(draw());
          std::vector<float> y(static_cast<size_t>(rows * out), NAN), pieces(y.size(), NAN);
          Product({x.data(), rows, in, w.data(), out, y.data()}, 0, out);
          for (int64_t first = 0; first < out; first += 5) {
            Product({x.data(), rows, in, w.data(), out, pieces.data()}, first,
                    std::min<int64_t>(5, out - first));
          }
          // What reference/model/bound.md calls the depth; gamma_h = h u / (1 - h u).
          DecoderArithmetic declared;
          declared.sum_block = kSumBlock;
          const double hu = declared.Depth(in) * 0x1p-24;
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t o = 0; o < out; ++o, ++judged) {
              double sum = 0;
              double mass = 0;
              for (int64_t i = 0; i < in; ++i) {
                const double product = static_cast<double>(x[static_cast<size_t>(r * in + i)]) *
                                       w[static_cast<size_t>(i * out + o)];
                sum += product;
                mass += std::fabs(product);
              }
              const auto at = static_cast<size_t>(r * out + o);
              // The sum in double is off by 129 2^-53 mass at most.
              const double bound = (hu / (1 - hu) + 129 * 0x1p-53) * mass;
              ASSERT_TRUE(std::fabs(y[at] - sum) <= bound)
                  << hwy::TargetName(target) << " " << rows << " " << in << " " << out;
              ASSERT_EQ(y[at], pieces[at]) << hwy::TargetName(target);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(judged, 0u);
}

// Logits of one sequence, which is row `row` of a batch of `rows` with other padding.
std::vector<float> LogitsOf(Decoder* decoder, const std::vector<int64_t>& tokens, int64_t chunk,
                            int64_t rows, int64_t row, int64_t padding) {
  const DecoderConfig& c = decoder->config();
  OptimizedCacheFactory factory;
  CacheSetup setup;
  setup.kv_heads = c.kv_heads;
  setup.query_heads = c.query_heads;
  setup.k_dim = setup.v_dim = c.head_dim;
  EXPECT_TRUE(factory.Start(setup).ok());
  const PlainFormat f32 = {DType::kFloat32};
  std::vector<int64_t> paddings(static_cast<size_t>(rows), 0);
  paddings[static_cast<size_t>(row)] = padding;
  std::vector<std::unique_ptr<Cache>> caches(static_cast<size_t>(c.layers()));
  std::vector<Cache*> layers;
  for (auto& cache : caches) {
    EXPECT_TRUE(factory.New({}, f32, f32, rows, paddings, &cache).ok());
    layers.push_back(cache.get());
  }
  const int64_t length = static_cast<int64_t>(tokens.size()) + padding;
  std::vector<float> result, logits;
  for (int64_t column = 0; column < length; column += chunk) {
    const int64_t columns = std::min(chunk, length - column);
    std::vector<int64_t> fed, positions;
    for (int64_t b = 0; b < rows; ++b) {
      for (int64_t i = column; i < column + columns; ++i) {
        const int64_t position = i - paddings[static_cast<size_t>(b)];
        positions.push_back(position < 0 ? kPadding : position);
        // Other rows say something else.
        fed.push_back(b == row && position >= 0 ? tokens[static_cast<size_t>(position)]
                                                : (3 * i + b) % c.vocabulary);
      }
    }
    EXPECT_TRUE(
        decoder->Forward({rows, columns, fed, positions, layers, true}, nullptr, &logits).ok());
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t token = row * columns + i;
      if (positions[static_cast<size_t>(token)] == kPadding) continue;
      const auto from = logits.begin() + static_cast<ptrdiff_t>(token * c.vocabulary);
      result.insert(result.end(), from, from + c.vocabulary);
    }
  }
  return result;
}

TEST(Decoder, ARowHasTheSameBitsInAnyChunksBatchPaddingAndNumberOfThreads) {
  const DecoderConfig c = small_model::Config();
  const TensorMap weights = small_model::Weights(c);
  const std::vector<int64_t> tokens = small_model::Tokens(23);
  Decoder one(c, weights, 1);
  Decoder three(c, weights, 3);
  const std::vector<float> expected = LogitsOf(&one, tokens, 23, 1, 0, 0);
  ASSERT_EQ(expected.size(), 23u * 11u);
  for (const int64_t chunk : {1, 4, 9}) {
    EXPECT_EQ(LogitsOf(&three, tokens, chunk, 1, 0, 0), expected) << chunk;
    EXPECT_EQ(LogitsOf(&one, tokens, chunk, 3, 1, 5), expected) << chunk;
  }
}

TEST(Decoder, WhatACacheRefusesIsReturned) {
  const DecoderConfig c = small_model::Config();
  Decoder decoder(c, small_model::Weights(c), 1);
  OptimizedCacheFactory factory;
  CacheSetup setup;  // of another head_dim
  setup.kv_heads = c.kv_heads;
  setup.query_heads = c.query_heads;
  ASSERT_TRUE(factory.Start(setup).ok());
  std::unique_ptr<Cache> cache;
  const PlainFormat f32 = {DType::kFloat32};
  ASSERT_TRUE(factory.New({}, f32, f32, 1, {}, &cache).ok());
  const std::vector<Cache*> layers(2, cache.get());
  const std::vector<int64_t> token = {1}, position = {0};
  std::vector<float> logits;
  const OpResult result = decoder.Forward({1, 1, token, position, layers, true}, nullptr, &logits);
  EXPECT_EQ(result.status, OpStatus::kRefused);
}

}  // namespace
}  // namespace kvcheck::optimized
