#include "reference/formats/generate_inputs.h"

#include <string>
#include <utility>
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

// Content of a plane that nobody encoded: any bits are codes, scales and biases are numbers.
Tensor AnyPlane(const Plane& plane, uint64_t seed, const std::string& name, Shape leading) {
  const TensorSpec spec = SpecOf(plane, std::move(leading));
  Tensor tensor(spec.dtype, spec.shape);
  if (plane.name == "codes" || !IsFloat(plane.dtype)) {
    FillBits(seed, name, &tensor);
  } else {
    FillGauss(seed, name, plane.name == "scales" ? 0x1p-4 : 1.0, &tensor);
  }
  return tensor;
}

// The parameters of a format, called as `name_of` says.
template <typename NameOf>
TensorMap Parameters(const KvFormat& format, int64_t dim, uint64_t seed, NameOf name_of) {
  TensorMap tensors;
  for (const Plane& plane : PlanesOf(format, dim)) {
    if (plane.scope != PlaneScope::kTensor) continue;
    const std::string name = name_of(plane);
    tensors[name] = AnyPlane(plane, seed, name, {});
  }
  return tensors;
}

std::string OwnName(const Plane& plane) { return std::string(plane.name); }

TensorMap Generate(const CodecCase& c, const Profile& profile) {
  TensorMap tensors = Parameters(c.format, c.head_dim, c.data.seed, OwnName);
  if (c.direction != CodecDirection::kDecode) {
    tensors["x"] = GenerateRows(c.data.regime, c.data.seed, c.x, c.rows, c.head_dim);
    return tensors;
  }
  if (c.data.regime != kCodes) {
    return EncodeRows(
        c.format, profile,
        GenerateRows(c.data.regime, c.data.seed, RowDType(c.format), c.rows, c.head_dim), tensors);
  }
  for (const Plane& plane : PlanesOf(c.format, c.head_dim)) {
    if (plane.scope != PlaneScope::kRow) continue;
    const std::string name(plane.name);
    tensors[name] = AnyPlane(plane, c.data.seed, name, {{"", c.rows}});
  }
  return tensors;
}

// Stores K or V; the original stays where the case asks for it.
void Store(const std::string& name, const KvFormat& format, bool keep_original, uint64_t seed,
           const Profile& profile, TensorMap* tensors) {
  auto original = tensors->extract(name + "_original");
  Profile saturating = profile;
  saturating.fp8_overflow = Fp8Overflow::kSaturate;
  const int64_t dim = original.mapped().shape.RowLength();
  TensorMap stored =
      EncodeRows(format, saturating, original.mapped(), Parameters(format, dim, seed, OwnName));
  for (const Plane& plane : PlanesOf(format, dim)) {
    (*tensors)[PlaneTensor(format, name, plane)] = std::move(stored.at(std::string(plane.name)));
  }
  if (keep_original && !IsPlain(format)) tensors->insert(std::move(original));
}

TensorMap Generate(const AttentionCase& c, const Profile& profile) {
  TensorMap tensors = GenerateAttention(c);
  Store("k", c.k, c.against_original, c.data.seed, profile, &tensors);
  Store("v", c.v, c.against_original, c.data.seed, profile, &tensors);
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

TensorMap Generate(const CacheCase& c, const Profile&) {
  const auto of = [&](const std::string& name, const KvFormat& format, int64_t dim) {
    return Parameters(format, dim, c.setup.data.seed,
                      [&](const Plane& plane) { return PlaneTensor(format, name, plane); });
  };
  TensorMap tensors = of("k", c.setup.k, c.setup.k_dim);
  tensors.merge(of("v", c.setup.v, c.setup.v_dim));
  return tensors;
}

TensorMap Generate(const PrefixCase&, const Profile&) { return {}; }

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
