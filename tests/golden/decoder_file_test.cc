#include "golden/decoder_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kModelFolder = KVCHECK_SOURCE_DIR "/golden/model";

json Config() { return json::parse(golden_samples::ReadBytes(kModelFolder + "/config.json")); }

std::string Refusal(const std::string& text) {
  try {
    ParseDecoderConfig(text, "config.json");
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(DecoderFile, ReadsTheTrainedModel) {
  const DecoderFile model = ReadDecoderFile(kModelFolder);
  EXPECT_EQ(model.config.layers(), 4);
  EXPECT_EQ(model.config.windows, (std::vector<int64_t>{0, 256, 0, 0}));
  EXPECT_EQ(model.config.query_width(), 256);
  EXPECT_EQ(model.config.kv_width(), 128);
  EXPECT_TRUE(model.config.tied_embeddings);
  EXPECT_EQ(model.config.scale(), 0.125);
  EXPECT_EQ(model.weights.size(), 2u + 4u * 9u);
  // The file itself, by its name.
  EXPECT_EQ(ReadDecoderFile(kModelFolder + "/model.safetensors").config.layers(), 4);
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
      {"attention_multiplier", 0.1, "attention_multiplier"},
      {"embedding_multiplier", 12, "embedding_multiplier"},
      {"residual_multiplier", 0.2, "residual_multiplier"},
      {"logits_scaling", 8, "logits_scaling"},
      {"logit_scale", 0.0625, "logit_scale"},
      {"scale_emb", 12, "scale_emb"},
      {"scale_depth", 1.4, "scale_depth"},
      {"dim_model_base", 256, "dim_model_base"},
      {"final_logit_softcapping", 30, "final_logit_softcapping"},
      {"attn_logit_softcapping", 50, "attn_logit_softcapping"},
      {"query_pre_attn_scalar", 256, "query_pre_attn_scalar"},
      {"clip_qkv", 8, "clip_qkv"},
      {"rope_interleaved", true, "rope_interleaved"},
      {"qk_norm", true, "qk_norm"},
      {"use_qk_norm", true, "use_qk_norm"},
      {"attention_sinks", true, "attention_sinks"},
      {"attn_temperature_tuning", true, "attn_temperature_tuning"},
      {"no_rope_layers", {1, 0, 1, 0}, "no_rope_layers"},
      {"num_experts", 8, "num_experts"},
      {"num_local_experts", 8, "num_local_experts"},
      {"use_sliding_window", false, "use_sliding_window"},
      {"max_window_layers", 2, "max_window_layers"},
      {"sliding_window_pattern", 2, "sliding_window_pattern"},
      {"interleaved_sliding_window", {1}, "interleaved_sliding_window"},
  };
  for (const auto& c : kCases) {
    json config = Config();
    config[c.key] = c.value;
    EXPECT_THAT(Refusal(config.dump()), HasSubstr(c.message)) << c.key;
  }
  EXPECT_THAT(Refusal("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(Refusal("{"), HasSubstr("no JSON object"));
}

TEST(DecoderFile, WhatChangesNothingIsAccepted) {
  json config = Config();
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling"}) {
    config[key] = 1.0;
  }
  config["final_logit_softcapping"] = nullptr;
  config["rope_interleaved"] = config["qk_norm"] = false;
  config["num_experts"] = 0;
  config["max_position_embeddings"] = 16;
  EXPECT_EQ(Refusal(config.dump()), "");
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
  fs::copy_file(kModelFolder + "/model.safetensors", folder + "/model.safetensors",
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

TEST(DecoderFile, AWeightThatIsNoNumberIsRefusedByItsPlace) {
  namespace fs = std::filesystem;
  const std::string folder = golden_samples::TemporaryPath("decoder_weights");
  fs::create_directories(folder);
  fs::copy_file(kModelFolder + "/config.json", folder + "/config.json",
                fs::copy_options::overwrite_existing);
  std::string bytes = golden_samples::ReadBytes(kModelFolder + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const json tensors = json::parse(bytes.substr(8, header));
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  ASSERT_EQ(tensors[name]["dtype"], "BF16");
  const size_t element = 8 + header + tensors[name]["data_offsets"][0].get<size_t>() + 2 * 5;
  for (const uint16_t wrong : std::initializer_list<uint16_t>{0x7fc0, 0x7f80, 0xff80}) {
    std::memcpy(bytes.data() + element, &wrong, sizeof(wrong));
    golden_samples::WriteBytes(folder + "/model.safetensors", bytes);
    try {
      ReadDecoderFile(folder);
      ADD_FAILURE() << "read with " << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMissingData);
      EXPECT_THAT(error.message(), HasSubstr(name + " is NaN or infinite at element 5"));
    }
  }
  // The largest finite one is a weight.
  const uint16_t largest = 0x7f7f;
  std::memcpy(bytes.data() + element, &largest, sizeof(largest));
  golden_samples::WriteBytes(folder + "/model.safetensors", bytes);
  EXPECT_NO_THROW(ReadDecoderFile(folder));
  fs::remove_all(folder);
}

TEST(DecoderFile, AFolderThatIsNotThereIsNamed) {
  try {
    ReadDecoderFile("/nonexistent");
    ADD_FAILURE() << "read from nowhere";
  } catch (const Error& error) {
    EXPECT_EQ(error.context(), "/nonexistent");
    EXPECT_THAT(error.message(), HasSubstr("config.json"));
  }
}

}  // namespace
}  // namespace kvcheck
