// Attention of the example in plain f32: scores, softmax and weighted sum, key by key in the order
// that is given. kPlan says to kvcheck what this very code computes; the bound of every output
// follows from it.

#ifndef KVCHECK_EXAMPLE_ATTENTION_H_
#define KVCHECK_EXAMPLE_ATTENTION_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "example_numbers.h"
#include "kvcheck_adapter.h"

// plain_f32: sums of f32, term by term; the scale is rounded to f32 and multiplied in; exp of the C
// library, within 1 ulp; one pass over all keys; P is not normalised before P.V; a division at
// last.
inline constexpr const char* kPlan = "base=plain_f32 sink=first name=cpp_example";

// Errors: Unsupported.
inline Number NumberOf(const std::string& type) {
  if (type == "f32") return Number::kF32;
  if (type == "f16") return Number::kF16;
  if (type == "bf16") return Number::kBF16;
  throw kvcheck_adapter::Unsupported("elements of " + type);
}

// One head's vectors, (T, dim) with the distance in bytes between two.
struct Vectors {
  Number number = Number::kF32;
  const std::byte* first = nullptr;
  int64_t stride = 0;
  int64_t dim = 0;
  float At(int64_t token, int64_t d) const { return Load(number, first + token * stride, d); }
};

struct VisibleKey {
  int64_t token;
  float bias;  // added to the score
};

// Attention of one query over the keys that it sees; with none of them it gives zeros.
class PlainAttention {
 public:
  // sink: the logit whose value is 0, or null. out: v.dim elements of its type.
  void Attend(Number number, const std::byte* q, const Vectors& k, const Vectors& v,
              const std::vector<VisibleKey>& keys, double scale, const float* sink,
              Number out_number, std::byte* out) {
    const float rounded_scale = static_cast<float>(scale);
    float largest = sink == nullptr ? -std::numeric_limits<float>::infinity() : *sink;
    scores_.clear();
    for (const VisibleKey& key : keys) {
      float dot = 0;
      for (int64_t d = 0; d < k.dim; ++d) dot += Load(number, q, d) * k.At(key.token, d);
      scores_.push_back(dot * rounded_scale + key.bias);
      largest = std::max(largest, scores_.back());
    }
    float denominator = sink == nullptr ? 0.0f : std::exp(*sink - largest);
    sums_.assign(static_cast<size_t>(v.dim), 0.0f);
    for (size_t i = 0; i < keys.size(); ++i) {
      const float p = std::exp(scores_[i] - largest);
      denominator += p;
      for (size_t d = 0; d < sums_.size(); ++d) {
        sums_[d] += p * v.At(keys[i].token, static_cast<int64_t>(d));
      }
    }
    for (size_t d = 0; d < sums_.size(); ++d) {
      Store(out_number, keys.empty() ? 0.0f : sums_[d] / denominator, out, static_cast<int64_t>(d));
    }
  }

 private:
  std::vector<float> scores_, sums_;
};

// Whether key j is visible to query l of row b and head h, and what is added to its score.
class CaseMask {
 public:
  explicit CaseMask(const kvcheck_adapter::CaseRequest& request)
      : queries_(request.fields.Get<int64_t>("query_len")),
        keys_(request.fields.Get<int64_t>("kv_len")),
        causal_(request.fields.Get<std::string>("causal")),
        padding_(request.fields.Get<kvcheck_adapter::Numbers>("left_padding")) {
    if (request.fields.Has("window")) window_ = request.fields.Get<int64_t>("window");
    const std::string kind = request.fields.Get<std::string>("mask_array");
    if (kind == "none") return;
    array_ = &request.inputs.at("mask");
    is_bool_ = kind == "bool";
    if (!is_bool_) number_ = NumberOf(array_->type);
  }

  bool Sees(int64_t b, int64_t h, int64_t l, int64_t j, float* bias) const {
    // Without a causal mask too, the last query stands at the last key.
    const int64_t position = causal_ == "top_left" ? l : keys_ - queries_ + l;
    if (causal_ != "none" && j > position) return false;
    if (window_ > 0 && j <= position - window_) return false;
    if (!padding_.empty() && j < padding_[static_cast<size_t>(b)]) return false;
    *bias = 0;
    if (array_ == nullptr) return true;
    // Axes (B, H, L, T), the first ones left out, an extent of 1 for all.
    const int64_t index[] = {b, h, l, j};
    const size_t missing = 4 - array_->extents.size();
    int64_t at = 0;
    for (size_t i = missing; i < 4; ++i) {
      const int64_t extent = array_->extents[i - missing];
      at = at * extent + (extent == 1 ? 0 : index[i]);
    }
    if (is_bool_) return array_->bytes[static_cast<size_t>(at)] != std::byte{0};
    *bias = Load(number_, array_->bytes.data(), at);
    return *bias != -std::numeric_limits<float>::infinity();
  }

 private:
  int64_t queries_, keys_;
  std::string causal_;
  std::vector<int64_t> padding_;
  int64_t window_ = 0;
  const kvcheck_adapter::Array* array_ = nullptr;
  bool is_bool_ = false;
  Number number_ = Number::kF32;
};

// A case of attention. Errors: Unsupported, for what the example's space leaves out.
inline kvcheck_adapter::CaseAnswer AnswerAttention(const kvcheck_adapter::CaseRequest& request) {
  using kvcheck_adapter::Array;
  const kvcheck_adapter::Fields& fields = request.fields;
  if (fields.Get<std::string>("lse") != "none" || fields.Has("softcap") ||
      fields.Get<bool>("alibi") || fields.Get<bool>("against_original")) {
    throw kvcheck_adapter::Unsupported("lse, softcap, ALiBi, originals of a quantized cache");
  }
  const Number q_number = NumberOf(fields.Get<std::string>("q")),
               out_number = NumberOf(fields.Get<std::string>("out"));
  const Number k_number = NumberOf(fields.Get<std::string>("k")),
               v_number = NumberOf(fields.Get<std::string>("v"));
  const Array& q = request.inputs.at("q");
  const Array& k = request.inputs.at("k");
  const Array& v = request.inputs.at("v");
  const int64_t heads = q.extents[1], queries = q.extents[2], kv_heads = k.extents[1];
  const int64_t tokens = k.extents[2], k_dim = k.extents[3], v_dim = v.extents[3];
  const int64_t q_row = k_dim * kvcheck_adapter::SizeOf(q.type);
  const int64_t k_row = k_dim * kvcheck_adapter::SizeOf(k.type);
  const int64_t v_row = v_dim * kvcheck_adapter::SizeOf(v.type);
  const Array* sinks = fields.Has("sinks") ? &request.inputs.at("sinks") : nullptr;
  const CaseMask mask(request);
  Array out(fields.Get<std::string>("out"), {q.extents[0], heads, queries, v_dim});
  const int64_t out_row = v_dim * kvcheck_adapter::SizeOf(out.type);
  PlainAttention attention;
  std::vector<VisibleKey> keys;
  for (int64_t b = 0; b < q.extents[0]; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t head = b * kv_heads + h / (heads / kv_heads);
      const Vectors ks{k_number, k.bytes.data() + head * tokens * k_row, k_row, k_dim};
      const Vectors vs{v_number, v.bytes.data() + head * tokens * v_row, v_row, v_dim};
      const float sink =
          sinks == nullptr ? 0.0f : Load(NumberOf(sinks->type), sinks->bytes.data(), h);
      for (int64_t l = 0; l < queries; ++l) {
        keys.clear();
        for (int64_t j = 0; j < tokens; ++j) {
          float bias = 0;
          if (mask.Sees(b, h, l, j, &bias)) keys.push_back({j, bias});
        }
        const int64_t row = (b * heads + h) * queries + l;
        attention.Attend(q_number, q.bytes.data() + row * q_row, ks, vs, keys,
                         fields.Get<double>("scale"), sinks == nullptr ? nullptr : &sink,
                         out_number, out.bytes.data() + row * out_row);
      }
      kvcheck_adapter::Progress();
    }
  }
  kvcheck_adapter::CaseAnswer answer;
  answer.outputs["out"] = std::move(out);
  return answer;
}

#endif  // KVCHECK_EXAMPLE_ATTENTION_H_
