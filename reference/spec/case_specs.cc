// The tensors of a case: which inputs it needs and which outputs answer it, with types and axes.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using Specs = std::map<std::string, TensorSpec>;

// Inputs of K or V: rows (B, Hkv, T, D) in their format.
void AddRows(const std::string& name, const KvFormat& format, const AttentionCase& c, int64_t dim,
             const std::string& dim_axis, Specs* specs) {
  const Shape leading = {{"B", c.batch}, {"Hkv", c.kv_heads}, {"T", c.kv_len}};
  for (Plane plane : PlanesOf(format, dim)) {
    if (IsPlain(format)) plane.axis = dim_axis;
    specs->insert_or_assign(PlaneTensor(format, name, plane), SpecOf(plane, leading));
  }
  if (c.against_original && !IsPlain(format)) {
    Shape original = leading;
    original.axes.push_back({dim_axis, dim});
    (*specs)[name + "_original"] = {c.q, original};
  }
}

void AddPlanes(const CodecCase& c, PlaneScope scope, Specs* specs) {
  for (const Plane& plane : PlanesOf(c.format, c.head_dim)) {
    if (plane.scope != scope) continue;
    specs->insert_or_assign(std::string(plane.name), SpecOf(plane, {{"", c.rows}}));
  }
}

Specs Inputs(const CodecCase& c) {
  Specs specs;
  AddPlanes(c, PlaneScope::kTensor, &specs);
  if (c.direction == CodecDirection::kDecode) {
    AddPlanes(c, PlaneScope::kRow, &specs);
  } else {
    specs["x"] = {c.x, {{"", c.rows}, {"", c.head_dim}}};
  }
  return specs;
}

Specs Inputs(const AttentionCase& c) {
  Specs specs;
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

Specs Inputs(const TensorCase& c) { return {{"expected", {c.dtype, c.shape}}}; }

Specs Inputs(const CacheCase& c) {
  Specs specs;
  const auto add = [&](const std::string& name, const KvFormat& format, int64_t dim) {
    for (const Plane& plane : PlanesOf(format, dim)) {
      if (plane.scope != PlaneScope::kTensor) continue;
      specs.insert_or_assign(PlaneTensor(format, name, plane), SpecOf(plane, {}));
    }
  };
  add("k", c.setup.k, c.setup.k_dim);
  add("v", c.setup.v, c.setup.v_dim);
  return specs;
}

Specs Inputs(const PrefixCase&) { return {}; }

Specs Outputs(const CodecCase& c) {
  Specs specs;
  if (c.direction == CodecDirection::kEncode) {
    AddPlanes(c, PlaneScope::kRow, &specs);
  } else {
    const DType row = IsPlain(c.format) ? c.x : RowDType(c.format);
    specs["y"] = {row, {{"", c.rows}, {"", c.head_dim}}};
  }
  return specs;
}

}  // namespace

DType LseType(const AttentionCase& c) {
  return c.lse_type.value_or(c.out == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
}

namespace {

Specs Outputs(const AttentionCase& c) {
  Specs specs;
  specs["out"] = {c.out,
                  {{"B", c.batch}, {"Hq", c.query_heads}, {"L", c.query_len}, {"Dv", c.v_dim}}};
  if (c.lse != LseKind::kNone) {
    specs["lse"] = {LseType(c), {{"B", c.batch}, {"Hq", c.query_heads}, {"L", c.query_len}}};
  }
  return specs;
}

Specs Outputs(const TensorCase& c) { return {{"got", {c.dtype, c.shape}}}; }

Specs Outputs(const CacheCase&) { return {}; }

Specs Outputs(const PrefixCase&) { return {}; }

}  // namespace

TensorSpec SpecOf(const Plane& plane, Shape leading) {
  if (plane.scope == PlaneScope::kTensor) leading.axes.clear();
  leading.axes.push_back({std::string(plane.axis), plane.elements});
  return {plane.dtype, std::move(leading)};
}

std::map<std::string, TensorSpec> InputSpecs(const Case& c) {
  return std::visit([](const auto& kind) { return Inputs(kind); }, c);
}

std::map<std::string, TensorSpec> OutputSpecs(const Case& c) {
  return std::visit([](const auto& kind) { return Outputs(kind); }, c);
}

void CheckInputs(const Case& c, const TensorMap& inputs) {
  std::vector<std::string> missing;
  for (const auto& [name, spec] : InputSpecs(c)) {
    if (!inputs.contains(name)) missing.push_back(name);
  }
  if (missing.size() > 1) {
    std::vector<std::string> present;
    for (const auto& [name, tensor] : inputs) present.push_back(name);
    throw Error(
        ErrorCode::kMissingData,
        fmt::format("tensors {} are needed and absent; present: {}; add them under these "
                    "names",
                    fmt::join(missing, ", "),
                    present.empty() ? "none" : fmt::format("{}", fmt::join(present, ", "))));
  }
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
