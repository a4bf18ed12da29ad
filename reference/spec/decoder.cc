#include "reference/spec/decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "reference/spec/error.h"

namespace kvcheck {

double DecoderConfig::scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }

void Validate(const DecoderConfig& c, const std::string& context) {
  const auto demand = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(ErrorCode::kIllegalCase, what, context);
  };
  // No product of two of them leaves 64 bits.
  constexpr int64_t kMost = int64_t{1} << 24;
  for (const int64_t extent :
       {c.vocabulary, c.hidden, c.intermediate, c.query_heads, c.kv_heads, c.head_dim}) {
    demand(extent >= 1 && extent <= kMost,
           fmt::format("an extent of the model is {}: it must be from 1 to {}", extent, kMost));
  }
  demand(!c.windows.empty() && c.windows.size() <= 65536, "a model has 1 to 65536 layers");
  demand(c.query_heads % c.kv_heads == 0,
         fmt::format("{} query heads are no multiple of {} key/value heads", c.query_heads,
                     c.kv_heads));
  demand(c.head_dim % 2 == 0,
         fmt::format("head_dim {} is odd, and RoPE rotates pairs", c.head_dim));
  demand(c.rms_norm_eps > 0 && std::isfinite(c.rms_norm_eps), "rms_norm_eps is not positive");
  demand(c.rope_theta > 1 && std::isfinite(c.rope_theta), "rope_theta is not above 1");
  demand(c.bos >= 0 && c.bos < c.vocabulary,
         fmt::format("bos_token_id {} is outside the vocabulary", c.bos));
  for (const int64_t window : c.windows) demand(window >= 0, "a window is negative");
}

std::string LayerTensor(int64_t layer, const char* name) {
  return fmt::format("model.layers.{}.{}", layer, name);
}

std::map<std::string, std::vector<int64_t>> DecoderTensors(const DecoderConfig& c) {
  std::map<std::string, std::vector<int64_t>> tensors;
  tensors[kEmbedding] = {c.vocabulary, c.hidden};
  tensors[kFinalNorm] = {c.hidden};
  if (!c.tied_embeddings) tensors[kHead] = {c.vocabulary, c.hidden};
  for (int64_t layer = 0; layer < c.layers(); ++layer) {
    const auto add = [&](const char* name, std::vector<int64_t> extents) {
      tensors[LayerTensor(layer, name)] = std::move(extents);
    };
    add(kInputNorm, {c.hidden});
    add(kPostNorm, {c.hidden});
    add(kQProj, {c.query_width(), c.hidden});
    add(kKProj, {c.kv_width(), c.hidden});
    add(kVProj, {c.kv_width(), c.hidden});
    add(kOProj, {c.hidden, c.query_width()});
    add(kGateProj, {c.intermediate, c.hidden});
    add(kUpProj, {c.intermediate, c.hidden});
    add(kDownProj, {c.hidden, c.intermediate});
  }
  return tensors;
}

void CheckWeights(const DecoderConfig& config, const TensorMap& weights,
                  const std::string& context) {
  const auto expected = DecoderTensors(config);
  for (const auto& [name, extents] : expected) {
    const auto found = weights.find(name);
    if (found == weights.end()) {
      throw Error(ErrorCode::kMissingData, fmt::format("the model has no tensor {}", name),
                  context);
    }
    const Tensor& tensor = found->second;
    if (!tensor.shape.SameExtents(Shape::Unnamed(extents))) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("{} is {}, and config.json makes it {}", name, ToString(tensor.shape),
                              fmt::join(extents, "x")),
                  context);
    }
    if (tensor.dtype != DType::kFloat32 && tensor.dtype != DType::kFloat16 &&
        tensor.dtype != DType::kBFloat16) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("{} is {}: weights are f32, f16 or bf16", name, Name(tensor.dtype)),
                  context);
    }
  }
  for (const auto& [name, tensor] : weights) {
    if (expected.count(name) == 0) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("the model has a tensor {}, which a decoder of Llama's architecture "
                              "without biases does not use",
                              name),
                  context);
    }
  }
}

}  // namespace kvcheck
