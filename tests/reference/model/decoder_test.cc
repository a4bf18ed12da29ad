#include "reference/spec/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/spec/error.h"
#include "tests/reference/model/small_model.h"

namespace kvcheck {
namespace {

std::string Refusal(const DecoderConfig& config, const TensorMap& weights) {
  try {
    Validate(config, "here");
    CheckWeights(config, weights, "here");
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(DecoderConfig, TheSmallModelIsLegal) {
  const DecoderConfig c = small_model::Config();
  EXPECT_EQ(Refusal(c, small_model::Weights(c)), "");
}

TEST(DecoderConfig, WhatNoDecoderHasIsRefused) {
  const auto refusal = [](auto change) {
    DecoderConfig c = small_model::Config();
    change(&c);
    return Refusal(c, {});
  };
  EXPECT_THAT(refusal([](DecoderConfig* c) { c->hidden = 0; }), testing::HasSubstr("from 1"));
  EXPECT_THAT(refusal([](DecoderConfig* c) { c->query_heads = 3; }),
              testing::HasSubstr("no multiple"));
  EXPECT_THAT(refusal([](DecoderConfig* c) { c->head_dim = 5; }), testing::HasSubstr("odd"));
  EXPECT_THAT(refusal([](DecoderConfig* c) { c->bos = 11; }), testing::HasSubstr("bos_token_id"));
  EXPECT_THAT(refusal([](DecoderConfig* c) { c->windows.clear(); }), testing::HasSubstr("layers"));
  EXPECT_THAT(refusal([](DecoderConfig* c) { c->rope_theta = 1; }), testing::HasSubstr("theta"));
}

TEST(CheckWeights, NamesTheTensorThatIsWrong) {
  const DecoderConfig c = small_model::Config();
  TensorMap weights = small_model::Weights(c);
  weights.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_THAT(Refusal(c, weights), testing::HasSubstr("model.layers.1.mlp.up_proj.weight"));
  weights = small_model::Weights(c);
  weights["model.norm.weight"] = Tensor(DType::kFloat32, Shape::Unnamed({13}));
  EXPECT_THAT(Refusal(c, weights), testing::HasSubstr("model.norm.weight is 13"));
  weights = small_model::Weights(c);
  weights["model.layers.0.self_attn.q_proj.bias"] = Tensor(DType::kFloat32, Shape::Unnamed({24}));
  EXPECT_THAT(Refusal(c, weights), testing::HasSubstr("q_proj.bias"));
  weights = small_model::Weights(c);
  weights["model.norm.weight"] = Tensor(DType::kInt32, Shape::Unnamed({12}));
  EXPECT_THAT(Refusal(c, weights), testing::HasSubstr("weights are f32"));
}

}  // namespace
}  // namespace kvcheck
