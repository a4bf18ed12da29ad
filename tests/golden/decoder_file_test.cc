#include "golden/decoder_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kFolder = KVCHECK_SOURCE_DIR "/golden/model";

json Config() { return json::parse(golden_samples::ReadBytes(kFolder + "/config.json")); }

std::string Refusal(const std::string& text) {
  try {
    ParseDecoderConfig(text, "config.json");
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(DecoderFile, ReadsTheTrainedModel) {
  const DecoderFile model = ReadDecoderFile(kFolder);
  EXPECT_EQ(model.config.layers(), 4);
  EXPECT_EQ(model.config.windows, (std::vector<int64_t>{0, 256, 0, 0}));
  EXPECT_EQ(model.config.query_width(), 256);
  EXPECT_EQ(model.config.kv_width(), 128);
  EXPECT_TRUE(model.config.tied_embeddings);
  EXPECT_EQ(model.config.scale(), 0.125);
  EXPECT_EQ(model.weights.size(), 2u + 4u * 9u);
  // The file itself, by its name.
  EXPECT_EQ(ReadDecoderFile(kFolder + "/model.safetensors").config.layers(), 4);
}

TEST(DecoderFile, WhatChangesTheArithmeticIsRefusedByItsKey) {
  const struct {
    const char* key;
    json value;
    const char* message;
  } kCases[] = {
      {"model_type", "gpt2", "model_type \"gpt2\" is not supported"},
      {"attention_bias", true, "attention_bias"},
      {"mlp_bias", true, "mlp_bias"},
      {"hidden_act", "gelu", "hidden_act"},
      {"rope_scaling", {{"rope_type", "yarn"}}, "rope_scaling"},
      {"quantization_config", {{"bits", 4}}, "quantized"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor"},
      {"layer_types", {"full_attention"}, "one name per layer"},
      {"layer_types",
       {"full_attention", "chunked_attention", "full_attention", "full_attention"},
       "chunked_attention"},
      {"sliding_window", nullptr, "sliding_window"},
      {"hidden_size", "256", "\"hidden_size\" has to be a whole number"},
      {"num_attention_heads", 0, "num_attention_heads"},
      {"num_key_value_heads", 3, "no multiple"},
      {"bos_token_id", 256, "outside the vocabulary"},
      {"rms_norm_eps", nullptr, "rms_norm_eps"},
      {"num_hidden_layers", -1, "num_hidden_layers"},
  };
  for (const auto& c : kCases) {
    json config = Config();
    config[c.key] = c.value;
    EXPECT_THAT(Refusal(config.dump()), HasSubstr(c.message)) << c.key;
  }
  EXPECT_THAT(Refusal("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(Refusal("{"), HasSubstr("no JSON object"));
}

TEST(DecoderFile, ThetaMayStandWhereTransformers5KeepsIt) {
  json config = Config();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500.0}};
  EXPECT_EQ(ParseDecoderConfig(config.dump(), "").rope_theta, 500);
  config["rope_parameters"]["rope_type"] = "linear";
  EXPECT_THAT(Refusal(config.dump()), HasSubstr("rope_type"));
}

TEST(DecoderFile, LlamaHasNoWindowAndMistralHasItInEveryLayer) {
  json config = Config();
  config.erase("layer_types");
  config["model_type"] = "llama";
  EXPECT_EQ(ParseDecoderConfig(config.dump(), "").windows, std::vector<int64_t>(4, 0));
  config["model_type"] = "mistral";
  EXPECT_EQ(ParseDecoderConfig(config.dump(), "").windows, std::vector<int64_t>(4, 256));
}

TEST(DecoderFile, WeightsThatAreNotThoseOfTheConfigAreRefused) {
  namespace fs = std::filesystem;
  const std::string folder = golden_samples::TemporaryPath("decoder_file");
  fs::create_directories(folder);
  json config = Config();
  config["num_hidden_layers"] = 5;
  config["layer_types"].push_back("full_attention");
  golden_samples::WriteBytes(folder + "/config.json", config.dump());
  fs::copy_file(kFolder + "/model.safetensors", folder + "/model.safetensors",
                fs::copy_options::overwrite_existing);
  try {
    ReadDecoderFile(folder);
    ADD_FAILURE() << "a fifth layer was not missed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMissingData);
    EXPECT_THAT(error.message(), HasSubstr("model.layers.4."));
  }
  fs::remove_all(folder);
  EXPECT_THROW(ReadDecoderFile(folder), Error);
}

}  // namespace
}  // namespace kvcheck
