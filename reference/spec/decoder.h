// A decoder of Llama's architecture as its files describe it: the numbers of config.json and the
// tensors of the weights. Per layer
//
//   n = RMSNorm(x)    q, k = RoPE(Wq n), RoPE(Wk n)    v = Wv n
//   x = x + Wo attention(q, K, V)
//   n = RMSNorm(x)    x = x + Wdown (silu(Wgate n) * (Wup n))
//
// and logits = Whead RMSNorm(x). RoPE rotates channel i of a head with channel i + head_dim / 2 by
// position theta^(-2 i / head_dim) (transformers' convention).
//
// Source: transformers, models/llama/modeling_llama.py and models/ministral/modeling_ministral.py.

#ifndef REFERENCE_SPEC_DECODER_H_
#define REFERENCE_SPEC_DECODER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/spec/tensor.h"

namespace kvcheck {

struct DecoderConfig {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  bool tied_embeddings = false;  // Whead is the embedding
  int64_t bos = 0;               // the token that every sequence begins with
  // Per layer: the newest so many tokens are seen, the query's own included; 0: all.
  std::vector<int64_t> windows;

  int64_t layers() const { return static_cast<int64_t>(windows.size()); }
  int64_t query_width() const { return query_heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  // Score scale, 1 / sqrt(head_dim).
  double scale() const;
};

// Errors: kIllegalCase for extents below 1, query heads that are no multiple of the key/value
// heads, an odd head_dim, numbers that are not positive, a BOS token outside the vocabulary.
void Validate(const DecoderConfig& config, const std::string& context);

// Names of the tensors of one layer, behind "model.layers.N.".
inline constexpr const char* kInputNorm = "input_layernorm.weight";
inline constexpr const char* kPostNorm = "post_attention_layernorm.weight";
inline constexpr const char* kQProj = "self_attn.q_proj.weight";
inline constexpr const char* kKProj = "self_attn.k_proj.weight";
inline constexpr const char* kVProj = "self_attn.v_proj.weight";
inline constexpr const char* kOProj = "self_attn.o_proj.weight";
inline constexpr const char* kGateProj = "mlp.gate_proj.weight";
inline constexpr const char* kUpProj = "mlp.up_proj.weight";
inline constexpr const char* kDownProj = "mlp.down_proj.weight";
inline constexpr const char* kEmbedding = "model.embed_tokens.weight";
inline constexpr const char* kFinalNorm = "model.norm.weight";
inline constexpr const char* kHead = "lm_head.weight";
std::string LayerTensor(int64_t layer, const char* name);

// Every tensor that the weights hold, and its extents: matrices (out, in).
std::map<std::string, std::vector<int64_t>> DecoderTensors(const DecoderConfig& config);
// Errors: kMissingData for a tensor that is absent, of other extents or not of a real type;
// kUnsupported for one that the architecture does not have (a bias).
void CheckWeights(const DecoderConfig& config, const TensorMap& weights,
                  const std::string& context);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_DECODER_H_
