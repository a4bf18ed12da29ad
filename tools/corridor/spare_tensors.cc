#include "tools/corridor/spare_tensors.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

struct SpareRole {
  std::string_view name;
  std::string_view others;  // as libraries call it, separated by spaces
};

// FlashAttention, vLLM, SGLang, FlashInfer, transformers, TransformerEngine, JAX.
constexpr SpareRole kSpareRoles[] = {
    {"sinks",
     "sinks sink s_aux attn_sink attn_sinks attention_sink attention_sinks sink_logits "
     "learnable_sink softmax_offset"},
    {"mask", "mask attn_mask attention_mask attn_bias attention_bias custom_mask"},
    {"alibi_slopes", "alibi_slopes alibi slopes"},
    {"k_scale", "k_scale k_scales k_descale descale_k scale_k key_scale k_scale_inv"},
    {"v_scale", "v_scale v_scales v_descale descale_v scale_v value_scale v_scale_inv"},
    {"cu_seqlens_q", "cu_seqlens_q cu_seqlens cu_seq_lens_q qo_indptr query_start_loc"},
    {"cu_seqlens_k", "cu_seqlens_k cu_seqlens_kv cu_seq_lens_k cu_seq_lens_kv kv_indptr"},
};

bool IsWordOf(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

std::vector<int64_t> WithoutOnes(const Shape& shape) {
  std::vector<int64_t> extents;
  for (const Axis& axis : shape.axes) {
    if (axis.extent != 1) extents.push_back(axis.extent);
  }
  return extents;
}

// The shape that a mask of these extents has in a case, axes of one element aside.
std::optional<Shape> ShapeOfMask(const AttentionCase& c, const Shape& shape) {
  for (const MaskAxes axes :
       {MaskAxes::kLT, MaskAxes::kT, MaskAxes::kB1LT, MaskAxes::kBHLT, MaskAxes::kB11T}) {
    const Shape wanted = MaskShape(axes, c.batch, c.query_heads, c.query_len, c.kv_len);
    if (WithoutOnes(wanted) == WithoutOnes(shape)) return wanted;
  }
  return std::nullopt;
}

bool IsNumberType(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

}  // namespace

std::optional<std::string> SpareName(const Case& c, std::string_view path, DType dtype,
                                     const Shape& shape) {
  const auto* attention = std::get_if<AttentionCase>(&c);
  if (attention == nullptr) return std::nullopt;
  const std::string last = LowerCase(path.substr(path.find_last_of("/.") + 1));
  for (const SpareRole& role : kSpareRoles) {
    if (!IsWordOf(role.others, last)) continue;
    const std::string name(role.name);
    const auto specs = InputSpecs(c);
    if (specs.contains(name) || specs.contains(last)) return std::nullopt;
    const int64_t count = shape.ElementCount();
    const bool is_per_head = role.name == "sinks" || role.name == "alibi_slopes";
    const bool is_scale = role.name == "k_scale" || role.name == "v_scale";
    const bool fits = is_per_head      ? IsNumberType(dtype) && count == attention->query_heads
                      : is_scale       ? IsNumberType(dtype) && count > 0
                      : name == "mask" ? ShapeOfMask(*attention, shape).has_value()
                                       : !IsFloat(dtype) && shape.axes.size() == 1 && count > 2;
    if (fits) return name;
  }
  return std::nullopt;
}

std::optional<std::string> AddSpare(const Case& c, std::string_view path, Tensor tensor,
                                    TensorMap* inputs) {
  const auto name = SpareName(c, path, tensor.dtype, tensor.shape);
  if (!name || inputs->contains(*name)) return std::nullopt;
  const auto& attention = std::get<AttentionCase>(c);
  const auto as = [&](DType dtype) {
    std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
    DecodeTo(tensor, 0, values);
    Tensor other(dtype, tensor.shape);
    EncodeFrom(values, dtype, other.bytes.data());
    tensor = std::move(other);
  };
  if (*name == "sinks") tensor.shape = {{"Hq", attention.query_heads}};
  if (*name == "alibi_slopes") {
    tensor.shape = {{"Hq", attention.query_heads}};
    if (tensor.dtype != DType::kFloat32) as(DType::kFloat32);
  }
  if (*name == "mask") {
    tensor.shape = *ShapeOfMask(attention, tensor.shape);
    if (!IsNumberType(tensor.dtype) && tensor.dtype != DType::kBool) {
      // Integers of 0 and 1 are a mask of true and false.
      std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
      DecodeTo(tensor, 0, values);
      const bool is_bool = std::all_of(values.begin(), values.end(),
                                       [](double value) { return value == 0 || value == 1; });
      if (!is_bool) return std::nullopt;
      Tensor mask(DType::kBool, tensor.shape);
      for (size_t i = 0; i < values.size(); ++i) {
        mask.bytes[i] = static_cast<std::byte>(values[i] != 0);
      }
      tensor = std::move(mask);
    }
  }
  (*inputs)[*name] = std::move(tensor);
  return name;
}

}  // namespace kvcheck
