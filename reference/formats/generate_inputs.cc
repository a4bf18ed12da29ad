#include "reference/formats/generate_inputs.h"

#include <vector>

#include "reference/data/attention_regime.h"
#include "reference/data/generator.h"
#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::string_view kCodes = "codes";

// Uniform bits; a boolean is 0 or 1.
void FillBits(uint64_t seed, std::string_view stream, Tensor* tensor) {
  const size_t size = SizeInBytes(tensor->dtype);
  const size_t row_bytes = static_cast<size_t>(tensor->shape.RowLength()) * size;
  const uint64_t mask = tensor->dtype == DType::kBool           ? 1
                        : tensor->dtype == DType::kFloat4E2M1FN ? 15
                                                                : 255;
  for (size_t at = 0; at < tensor->bytes.size(); at += row_bytes) {
    Generator random(seed, stream, at / row_bytes);
    for (size_t i = 0; i < row_bytes; ++i) {
      tensor->bytes[at + i] = static_cast<std::byte>((random.Bits() >> 56) & mask);
    }
  }
}

void FillGauss(uint64_t seed, std::string_view stream, double scale, Tensor* tensor) {
  const size_t row = static_cast<size_t>(tensor->shape.RowLength());
  const size_t row_bytes = row * SizeInBytes(tensor->dtype);
  std::vector<double> values(row);
  for (size_t at = 0; at < tensor->bytes.size(); at += row_bytes) {
    Generator random(seed, stream, at / row_bytes);
    for (double& x : values) x = random.Gauss() * scale;
    EncodeFrom(values, tensor->dtype, tensor->bytes.data() + at);
  }
}

TensorMap Generate(const CodecCase& c, const Profile& profile) {
  if (c.direction != CodecDirection::kDecode) {
    return {{"x", GenerateRows(c.data.regime, c.data.seed, c.x, c.rows, c.head_dim)}};
  }
  if (c.data.regime != kCodes) {
    return EncodeRows(
        c.format, profile,
        GenerateRows(c.data.regime, c.data.seed, RowDType(c.format), c.rows, c.head_dim));
  }
  TensorMap tensors;
  for (const auto& [name, spec] : InputSpecs(c)) {
    Tensor tensor(spec.dtype, spec.shape);
    if (name == "codes") {
      FillBits(c.data.seed, name, &tensor);
    } else {
      FillGauss(c.data.seed, name, name == "scales" ? 0x1p-4 : 1.0, &tensor);
    }
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

// Stores K or V; the original stays where the case asks for it.
void Store(const std::string& name, const KvFormat& format, bool keep_original,
           const Profile& profile, TensorMap* tensors) {
  auto original = tensors->extract(name + "_original");
  if (IsPlain(format)) {
    Profile saturating = profile;
    saturating.fp8_overflow = Fp8Overflow::kSaturate;
    (*tensors)[name] = EncodeRows(format, saturating, original.mapped()).at("codes");
    return;
  }
  for (auto& [part, tensor] : EncodeRows(format, profile, original.mapped())) {
    (*tensors)[name + "_" + part] = tensor;
  }
  if (keep_original) tensors->insert(std::move(original));
}

TensorMap Generate(const AttentionCase& c, const Profile& profile) {
  TensorMap tensors = GenerateAttention(c);
  Store("k", c.k, c.against_original, profile, &tensors);
  Store("v", c.v, c.against_original, profile, &tensors);
  return tensors;
}

TensorMap Generate(const TensorCase& c, const Profile&) {
  Tensor tensor(c.dtype, c.shape);
  if (IsFloat(c.dtype) && FloatTypeOf(c.dtype).is_signed) {
    tensor =
        GenerateRows(c.data.regime, c.data.seed, c.dtype, c.shape.RowCount(), c.shape.RowLength());
  } else if (!tensor.bytes.empty()) {
    FillBits(c.data.seed, "expected", &tensor);
  }
  return {{"expected", std::move(tensor)}};
}

TensorMap Generate(const CacheCase&, const Profile&) { return {}; }

}  // namespace

TensorMap GenerateInputs(const Case& c, const Profile& profile) {
  const DataSource& data = DataOf(c);
  if (data.IsFile()) {
    throw Error(ErrorCode::kMissingData,
                "data=file names attached tensors; give the file that holds them", Print(c));
  }
  TensorMap tensors = std::visit([&](const auto& kind) { return Generate(kind, profile); }, c);
  // Named axes, as the case declares them.
  for (const auto& [name, spec] : InputSpecs(c)) tensors.at(name).shape = spec.shape;
  CheckInputs(c, tensors);
  return tensors;
}

}  // namespace kvcheck
