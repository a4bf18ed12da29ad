#include "golden/decoder_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "golden/safetensors_file.h"
#include "golden/text_file.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using nlohmann::json;

constexpr size_t kMostConfigBytes = size_t{1} << 20;
constexpr std::array<std::string_view, 3> kModelTypes = {"llama", "ministral", "mistral"};

class ConfigReader {
 public:
  ConfigReader(const json& config, const std::string& path) : config_(config), path_(path) {}

  // A key that is there and not null; else nullptr.
  const json* Find(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }
  int64_t Whole(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr || !value->is_number_integer()) Missing(key, "a whole number");
    return value->get<int64_t>();
  }
  int64_t Whole(const char* key, int64_t otherwise) const {
    return Find(key) == nullptr ? otherwise : Whole(key);
  }
  double Number(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr || !value->is_number()) Missing(key, "a number");
    return value->get<double>();
  }
  std::string Text(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr || !value->is_string()) Missing(key, "a text");
    return value->get<std::string>();
  }
  bool Flag(const char* key, bool otherwise) const {
    const json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) Missing(key, "true or false");
    return value->get<bool>();
  }
  [[noreturn]] void Missing(const char* key, const char* what) const {
    throw Error(ErrorCode::kMissingData, fmt::format("\"{}\" has to be {}", key, what), path_);
  }
  [[noreturn]] void Unsupported(const std::string& what) const {
    throw Error(ErrorCode::kUnsupported, what, path_);
  }

 private:
  const json& config_;
  const std::string& path_;
};

double ThetaOf(const ConfigReader& reader) {
  const json* scaling = reader.Find("rope_scaling");
  if (scaling != nullptr) reader.Unsupported("\"rope_scaling\" is not supported");
  // transformers 5 keeps theta in an object of its own.
  const json* parameters = reader.Find("rope_parameters");
  if (parameters == nullptr) return reader.Number("rope_theta");
  if (!parameters->is_object()) reader.Missing("rope_parameters", "an object");
  if (parameters->value("rope_type", json("default")) != json("default")) {
    reader.Unsupported("\"rope_type\" in \"rope_parameters\" is not \"default\"");
  }
  const auto theta = parameters->find("rope_theta");
  if (theta == parameters->end() || !theta->is_number()) {
    reader.Missing("rope_theta", "a number in \"rope_parameters\"");
  }
  return theta->get<double>();
}

std::vector<int64_t> WindowsOf(const ConfigReader& reader, const std::string& model_type,
                               int64_t layers) {
  if (layers < 1 || layers > 65536) reader.Missing("num_hidden_layers", "from 1 to 65536");
  const int64_t window = reader.Whole("sliding_window", 0);
  const json* types = reader.Find("layer_types");
  if (types == nullptr) {
    return std::vector<int64_t>(static_cast<size_t>(layers), model_type == "llama" ? 0 : window);
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != layers) {
    reader.Missing("layer_types", "a list of one name per layer");
  }
  std::vector<int64_t> windows;
  for (const json& type : *types) {
    if (type == json("full_attention")) {
      windows.push_back(0);
    } else if (type == json("sliding_attention")) {
      if (window < 1) reader.Missing("sliding_window", "at least 1");
      windows.push_back(window);
    } else {
      reader.Unsupported(fmt::format("a layer of type {} is not supported", type.dump()));
    }
  }
  return windows;
}

// A key that changes the forward pass of the architectures that have it, and the value with which
// it changes nothing.
struct OtherArithmetic {
  const char* key;
  json neutral;
};

// Source: configurations of transformers: Gemma 2 and 3, Granite, Cohere, GPT-OSS, Qwen 2 and 3,
// Llama 4, SmolLM 3, Mixtral, MiniCPM, Ministral.
const std::vector<OtherArithmetic>& OtherArithmetics() {
  static const std::vector<OtherArithmetic> rows = {{"attention_multiplier", nullptr},
                                                    {"embedding_multiplier", 1},
                                                    {"residual_multiplier", 1},
                                                    {"logits_scaling", 1},
                                                    {"logit_scale", 1},
                                                    {"scale_emb", 1},
                                                    {"scale_depth", nullptr},
                                                    {"dim_model_base", nullptr},
                                                    {"final_logit_softcapping", nullptr},
                                                    {"attn_logit_softcapping", nullptr},
                                                    {"query_pre_attn_scalar", nullptr},
                                                    {"clip_qkv", nullptr},
                                                    {"rope_interleaved", false},
                                                    {"qk_norm", false},
                                                    {"use_qk_norm", false},
                                                    {"attention_sinks", false},
                                                    {"attn_temperature_tuning", false},
                                                    {"no_rope_layers", nullptr},
                                                    {"num_experts", 0},
                                                    {"num_local_experts", 0},
                                                    {"use_sliding_window", true},
                                                    {"max_window_layers", nullptr},
                                                    {"sliding_window_pattern", nullptr},
                                                    {"interleaved_sliding_window", nullptr}};
  return rows;
}

void RefuseOtherArithmetic(const ConfigReader& reader) {
  for (const OtherArithmetic& other : OtherArithmetics()) {
    const json* value = reader.Find(other.key);
    if (value == nullptr || *value == other.neutral) continue;
    reader.Unsupported(
        fmt::format("\"{}\" is {:.60}, and is not computed", other.key, value->dump()));
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (reader.Flag(key, false)) reader.Unsupported(fmt::format("\"{}\" is not supported", key));
  }
  if (reader.Text("hidden_act") != "silu") {
    reader.Unsupported("\"hidden_act\" is not \"silu\", the one that is supported");
  }
  if (reader.Find("quantization_config") != nullptr || reader.Find("quantization") != nullptr) {
    reader.Unsupported("the weights are quantized: give them in f32, f16 or bf16");
  }
  const json* partial = reader.Find("partial_rotary_factor");
  if (partial != nullptr && *partial != json(1.0)) {
    reader.Unsupported("\"partial_rotary_factor\" is not 1, the one that is supported");
  }
}

// NaN and infinities have all bits of the exponent.
template <typename Bits>
int64_t FirstNotFinite(const Tensor& tensor, Bits exponent) {
  const Bits* bits = tensor.As<Bits>();
  const auto size = static_cast<int64_t>(tensor.bytes.size() / sizeof(Bits));
  for (int64_t i = 0; i < size; ++i) {
    if ((bits[i] & exponent) == exponent) return i;
  }
  return -1;
}

// What a model of other weights says is defined by nobody. Precondition: CheckWeights.
void RefuseNotFinite(const DecoderFile& model) {
  for (const auto& [name, tensor] : model.weights) {
    int64_t first = -1;
    if (tensor.dtype == DType::kFloat32) {
      first = FirstNotFinite<uint32_t>(tensor, 0x7f800000);
    } else {
      first = FirstNotFinite<uint16_t>(tensor, tensor.dtype == DType::kFloat16 ? 0x7c00 : 0x7f80);
    }
    if (first < 0) continue;
    throw Error(ErrorCode::kMissingData,
                fmt::format("{} is NaN or infinite at element {}: a model of such weights says "
                            "nothing; convert or train it anew",
                            name, first),
                model.path);
  }
}

}  // namespace

DecoderConfig ParseDecoderConfig(std::string_view text, const std::string& path) {
  const json config = json::parse(text, nullptr, false);
  if (!config.is_object()) {
    throw Error(ErrorCode::kUnreadableFile, "it is no JSON object: give a model's config.json",
                path);
  }
  const ConfigReader reader(config, path);
  const std::string model_type = reader.Text("model_type");
  if (std::find(kModelTypes.begin(), kModelTypes.end(), model_type) == kModelTypes.end()) {
    reader.Unsupported(fmt::format("model_type {} is not supported: {} are",
                                   json(model_type).dump(), fmt::join(kModelTypes, ", ")));
  }
  RefuseOtherArithmetic(reader);
  DecoderConfig result;
  result.vocabulary = reader.Whole("vocab_size");
  result.hidden = reader.Whole("hidden_size");
  result.intermediate = reader.Whole("intermediate_size");
  result.query_heads = reader.Whole("num_attention_heads");
  result.kv_heads = reader.Whole("num_key_value_heads", result.query_heads);
  if (result.query_heads < 1) reader.Missing("num_attention_heads", "at least 1");
  result.head_dim = reader.Whole("head_dim", result.hidden / result.query_heads);
  result.rms_norm_eps = reader.Number("rms_norm_eps");
  result.rope_theta = ThetaOf(reader);
  result.tied_embeddings = reader.Flag("tie_word_embeddings", false);
  result.bos = reader.Whole("bos_token_id");
  result.windows = WindowsOf(reader, model_type, reader.Whole("num_hidden_layers"));
  Validate(result, path);
  return result;
}

DecoderFile ReadDecoderFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw Error(ErrorCode::kUnreadableFile,
                "there is no such file or folder: give a folder of config.json and "
                "model.safetensors, or the latter",
                path);
  }
  const fs::path weights =
      fs::is_directory(path, ignored) ? fs::path(path) / "model.safetensors" : fs::path(path);
  const std::string config_path = (weights.parent_path() / "config.json").string();
  DecoderFile model;
  model.path = weights.string();
  model.config = ParseDecoderConfig(ReadWholeText(config_path, kMostConfigBytes), config_path);
  SafetensorsFile file(model.path);
  for (const ListedTensor& listed : ListTensors(file.index())) {
    if (!listed.problem.empty()) {
      throw Error(ErrorCode::kUnsupported, listed.problem, model.path + ":" + listed.path);
    }
    model.weights[listed.path.substr(1)] = ReadTensor(file, listed.path);
  }
  CheckWeights(model.config, model.weights, model.path);
  RefuseNotFinite(model);
  return model;
}

}  // namespace kvcheck
