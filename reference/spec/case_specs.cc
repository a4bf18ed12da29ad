// The tensors of a case: which inputs it needs and which outputs answer it, with types and axes.

#include <fmt/format.h>

#include "reference/spec/case.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// Inputs of K or V: rows (B, Hkv, T, D) in their format.
void AddRows(const std::string& name, const KvFormat& format, const AttentionCase& c, int64_t dim,
             const std::string& dim_axis, std::map<std::string, TensorSpec>* specs) {
  const auto shape = [&](const std::string& axis, int64_t extent) {
    return Shape{{"B", c.batch}, {"Hkv", c.kv_heads}, {"T", c.kv_len}, {axis, extent}};
  };
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    (*specs)[name] = {plain->dtype, shape(dim_axis, dim)};
    return;
  }
  const auto& affine = std::get<AffineFormat>(format);
  (*specs)[name + "_codes"] = {DType::kUInt32, shape("W", dim * affine.bits / 32)};
  (*specs)[name + "_scales"] = {affine.scale_dtype, shape("G", dim / affine.group_size)};
  (*specs)[name + "_biases"] = {affine.scale_dtype, shape("G", dim / affine.group_size)};
  if (c.against_original) (*specs)[name + "_original"] = {c.q, shape(dim_axis, dim)};
}

void AddCodes(const CodecCase& c, std::map<std::string, TensorSpec>* specs) {
  if (const auto* plain = std::get_if<PlainFormat>(&c.format)) {
    (*specs)["codes"] = {plain->dtype, {{"", c.rows}, {"", c.head_dim}}};
    return;
  }
  const auto& affine = std::get<AffineFormat>(c.format);
  (*specs)["codes"] = {DType::kUInt32, {{"", c.rows}, {"W", c.head_dim * affine.bits / 32}}};
  const Shape groups = {{"", c.rows}, {"G", c.head_dim / affine.group_size}};
  (*specs)["scales"] = {affine.scale_dtype, groups};
  (*specs)["biases"] = {affine.scale_dtype, groups};
}

std::map<std::string, TensorSpec> Inputs(const CodecCase& c) {
  std::map<std::string, TensorSpec> specs;
  if (c.direction == CodecDirection::kDecode) {
    AddCodes(c, &specs);
  } else {
    specs["x"] = {c.x, {{"", c.rows}, {"", c.head_dim}}};
  }
  return specs;
}

std::map<std::string, TensorSpec> Inputs(const AttentionCase& c) {
  std::map<std::string, TensorSpec> specs;
  specs["q"] = {c.q, {{"B", c.batch}, {"Hq", c.query_heads}, {"L", c.query_len}, {"Dk", c.k_dim}}};
  AddRows("k", c.k, c, c.k_dim, "Dk", &specs);
  AddRows("v", c.v, c, c.v_dim, "Dv", &specs);
  if (c.mask.array != MaskArrayKind::kNone) {
    specs["mask"] = {c.mask.array == MaskArrayKind::kBoolean ? DType::kBool : c.mask.additive_dtype,
                     MaskShape(c.mask.axes, c.batch, c.query_heads, c.query_len, c.kv_len)};
  }
  if (c.sinks) specs["sinks"] = {*c.sinks, {{"Hq", c.query_heads}}};
  if (c.alibi) specs["alibi_slopes"] = {DType::kFloat32, {{"Hq", c.query_heads}}};
  return specs;
}

std::map<std::string, TensorSpec> Inputs(const TensorCase& c) {
  return {{"expected", {c.dtype, c.shape}}};
}

std::map<std::string, TensorSpec> Inputs(const CacheCase&) { return {}; }

std::map<std::string, TensorSpec> Outputs(const CodecCase& c) {
  std::map<std::string, TensorSpec> specs;
  if (c.direction == CodecDirection::kEncode) {
    AddCodes(c, &specs);
  } else {
    const DType row = IsPlain(c.format) ? c.x : RowDType(c.format);
    specs["y"] = {row, {{"", c.rows}, {"", c.head_dim}}};
  }
  return specs;
}

std::map<std::string, TensorSpec> Outputs(const AttentionCase& c) {
  std::map<std::string, TensorSpec> specs;
  specs["out"] = {c.out,
                  {{"B", c.batch}, {"Hq", c.query_heads}, {"L", c.query_len}, {"Dv", c.v_dim}}};
  if (c.lse != LseKind::kNone) {
    specs["lse"] = {c.out == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32,
                    {{"B", c.batch}, {"Hq", c.query_heads}, {"L", c.query_len}}};
  }
  return specs;
}

std::map<std::string, TensorSpec> Outputs(const TensorCase& c) {
  return {{"got", {c.dtype, c.shape}}};
}

std::map<std::string, TensorSpec> Outputs(const CacheCase&) { return {}; }

}  // namespace

std::map<std::string, TensorSpec> InputSpecs(const Case& c) {
  return std::visit([](const auto& kind) { return Inputs(kind); }, c);
}

std::map<std::string, TensorSpec> OutputSpecs(const Case& c) {
  return std::visit([](const auto& kind) { return Outputs(kind); }, c);
}

void CheckInputs(const Case& c, const TensorMap& inputs) {
  for (const auto& [name, spec] : InputSpecs(c)) {
    const Tensor& tensor = Get(inputs, name);
    if (tensor.dtype != spec.dtype) {
      throw Error(ErrorCode::kMissingData, fmt::format("input '{}' is {}, the case says {}", name,
                                                       Name(tensor.dtype), Name(spec.dtype)));
    }
    if (!tensor.shape.SameExtents(spec.shape)) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("input '{}' has shape {}, the case says {}", name,
                              ToString(tensor.shape), ToString(spec.shape)));
    }
    const size_t bytes = static_cast<size_t>(spec.shape.ElementCount()) * SizeInBytes(spec.dtype);
    if (tensor.bytes.size() != bytes) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("input '{}' holds {} bytes, its shape needs {}", name,
                              tensor.bytes.size(), bytes));
    }
  }
}

}  // namespace kvcheck
