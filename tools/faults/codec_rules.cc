#include "tools/faults/codec_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/formats/codec.h"
#include "reference/formats/plain.h"
#include "reference/formats/scaled_codes.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

float Levels(int bits) { return static_cast<float>((1 << bits) - 1); }

void Range(AffineEncoder encoder, std::span<const float> x, float* mn, float* mx) {
  *mx = encoder == AffineEncoder::kMlxGpu ? 0.0F : -std::numeric_limits<float>::infinity();
  *mn = std::numeric_limits<float>::infinity();
  for (const float value : x) {  // NaN is skipped
    if (value > *mx) *mx = value;
    if (value < *mn) *mn = value;
  }
}

uint8_t Code(float steps, float n) {
  return !(steps > 0) ? uint8_t{0} : static_cast<uint8_t>(std::min(steps, n));
}

AffineGroup EncodeGroup(const AffineSteps& steps, int bits, AffineEncoder encoder,
                        std::span<const float> x, std::span<uint8_t> codes) {
  const auto round = [&](float value) {
    if (steps.round != nullptr) return steps.round(encoder, value);
    return encoder == AffineEncoder::kMlxCpu ? std::nearbyint(value) : std::round(value);
  };
  const float n = steps.levels != nullptr ? steps.levels(bits) : Levels(bits);
  const float most = Levels(bits);  // what a code can hold
  float mn = 0, mx = 0;
  if (steps.range != nullptr) {
    steps.range(x, &mn, &mx);
  } else {
    Range(encoder, x, &mn, &mx);
  }
  AffineGroup group;
  const float step = (mx - mn) / n;
  group.scale = step < kAffineSmallestStep ? kAffineSmallestStep : step;
  float edge = mn;
  if (!(std::fabs(mn) > std::fabs(mx))) {
    edge = mx;
    group.scale = -group.scale;
  }
  const float k = round(edge / group.scale);
  if (!steps.keeps_zero) {
    group.bias = edge;
  } else if (k != 0) {
    group.scale = edge / k;
    group.bias = edge;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const float code = round((x[i] - group.bias) / group.scale);
    codes[i] = steps.code != nullptr ? steps.code(code, most) : Code(code, std::min(n, most));
  }
  return group;
}

template <typename Elements>
void Store(Tensor* tensor, int64_t at, const Elements& values) {
  const std::vector<double> numbers(values.begin(), values.end());
  EncodeFrom(numbers, tensor->dtype,
             tensor->bytes.data() + static_cast<size_t>(at) * SizeInBytes(tensor->dtype));
}

void Give(const std::string& name, const Tensor& tensor, Sink* sink) {
  sink->Declare(name, tensor.dtype, tensor.shape);
  sink->Write(name, 0, tensor.bytes);
}

}  // namespace

Capabilities FaultyCodec::GetCapabilities() const {
  return {"fault", "1", {"codec"}, {}, profile_};
}

TensorMap FaultyCodec::Encode(const AffineFormat& format, const CodecCase& c,
                              const Tensor& x) const {
  // The steps are those of MLX's encoders.
  if (profile_.encode == AffineEncoder::kKivi) return EncodeRows(format, profile_, x);
  const auto group = static_cast<size_t>(format.group_size);
  const int64_t groups = c.rows * c.head_dim / format.group_size;
  CodecCase asked = c;
  asked.direction = CodecDirection::kEncode;
  TensorMap stored;
  for (const auto& [name, spec] : OutputSpecs(asked)) {
    stored.emplace(name, Tensor(spec.dtype, spec.shape));
  }
  std::vector<double> values(group);
  std::vector<float> rounded(group);
  std::vector<uint8_t> codes(group);
  std::vector<uint32_t> words(group * static_cast<size_t>(format.bits) / 32);
  for (int64_t g = 0; g < groups; ++g) {
    DecodeTo(x, g * format.group_size, values);
    RoundAll(values, format.scale_dtype);
    for (size_t i = 0; i < group; ++i) rounded[i] = static_cast<float>(values[i]);
    AffineGroup encoded = EncodeGroup(rules_.affine, format.bits, profile_.encode, rounded, codes);
    if (rules_.affine.stored != nullptr) rules_.affine.stored(format.scale_dtype, &encoded);
    PackCodes(codes, format.bits, words);
    const std::vector<uint32_t>& row = words;
    Store(&stored.at("codes"), g * static_cast<int64_t>(words.size()), row);
    Store(&stored.at("scales"), g, std::span(&encoded.scale, 1));
    Store(&stored.at("biases"), g, std::span(&encoded.bias, 1));
  }
  return stored;
}

TensorMap FaultyCodec::Encode(const PlainFormat& format, const CodecCase&, const Tensor& x) const {
  const DType dtype = format.dtype;
  std::vector<double> values(static_cast<size_t>(x.ElementCount()));
  DecodeTo(x, 0, values);
  ConvertRule rule = StoreRule(dtype, profile_);
  if (rules_.store != nullptr) {
    for (double& value : values) value = rules_.store(dtype, profile_, value);
  }
  Tensor codes(dtype, x.shape);
  EncodeFrom(values, dtype, codes.bytes.data(), rule);
  return {{"codes", std::move(codes)}};
}

TensorMap FaultyCodec::Encode(const ScaledFormat& format, const CodecCase&, const Tensor& x) const {
  // Planes of the right shapes, whose contents are written anew where a step is replaced.
  TensorMap stored = EncodeRows(format, profile_, x);
  const ScaledSteps& steps = rules_.scaled;
  if (!steps.IsReplaced()) return stored;
  const auto dim = static_cast<size_t>(x.shape.RowLength());
  const bool is_inline = format.place == ScalePlace::kInline;
  std::vector<double> row(dim);
  std::byte* codes = stored.at(is_inline ? "cells" : "codes").bytes.data();
  for (int64_t r = 0; r < x.shape.RowCount(); ++r) {
    DecodeTo(x, r * static_cast<int64_t>(dim), row);
    RoundAll(row, format.row_type);
    float largest = 0;
    for (const double value : row) {
      largest = std::max(largest, static_cast<float>(std::fabs(value)));
    }
    const auto most = static_cast<float>(LargestOf(format.code));
    float scale = format.IsDynamic() ? largest / most : format.scale;
    if (steps.scale != nullptr) scale = steps.scale(format, largest);
    for (size_t i = 0; i < dim; ++i) {
      const auto value = static_cast<float>(row[i]);
      float q = steps.position != nullptr ? steps.position(value, scale) : value / scale;
      if (std::isnan(q) || scale == 0) q = 0;
      if (format.code == ScaledCode::kInt8 && steps.round != nullptr) q = steps.round(q);
      if (steps.clamps && format.IsDynamic()) q = std::clamp(q, -most, most);
      codes[i] = static_cast<std::byte>(NearestCode(format.code, q, profile_.fp8_overflow));
    }
    codes += dim;
    if (is_inline) {
      std::memcpy(codes, &scale, sizeof(scale));
      codes += sizeof(scale);
    } else if (format.IsDynamic()) {
      Store(&stored.at("scales"), r, std::span(&scale, 1));
    }
  }
  return stored;
}

std::vector<double> FaultyCodec::Decode(const ScaledFormat& format, const CodecCase& c,
                                        const TensorMap& stored) const {
  ScaledFormat read = format;
  if (rules_.scaled.read_as != nullptr) read.code = rules_.scaled.read_as(format.code);
  return DecodeToRowType(read, profile_, CodecRows(read, stored), 0, c.rows);
}

std::vector<double> FaultyCodec::Decode(const Int4zpFormat& format, const CodecCase& c,
                                        const TensorMap& stored) const {
  std::vector<double> values =
      DecodeToRowType(format, profile_, CodecRows(format, stored), 0, c.rows);
  if (rules_.nibble == nullptr) return values;
  const size_t half = static_cast<size_t>(c.head_dim) / 2;
  const size_t stride = format.is_inline ? half + 4 : half;
  const std::byte* codes = stored.at(format.is_inline ? "cells" : "codes").bytes.data();
  for (size_t r = 0; r < static_cast<size_t>(c.rows); ++r) {
    const std::byte* at =
        format.is_inline ? codes + r * stride + half : stored.at("scales").bytes.data() + 4 * r;
    uint32_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    for (size_t i = 0; i < 2 * half; ++i) {
      const int byte = std::to_integer<int>(codes[r * stride + i / 2]);
      const double value = rules_.nibble(bits, i % 2 == 0 ? byte & 15 : byte >> 4);
      values[r * 2 * half + i] = RoundTo(format.row_type, value);
    }
  }
  return values;
}

std::vector<double> FaultyCodec::Decode(const AffineFormat& format, const CodecCase& c,
                                        const TensorMap& stored) const {
  const EncodedRows rows = CodecRows(format, stored);
  if (rules_.value == nullptr && rules_.group_of == nullptr) {
    return DecodeToRowType(format, profile_, rows, 0, c.rows);
  }
  const int64_t groups = c.head_dim / format.group_size;
  const auto dim = static_cast<size_t>(c.head_dim);
  std::vector<uint8_t> codes(dim);
  std::vector<uint32_t> words(dim * static_cast<size_t>(format.bits) / 32);
  std::vector<double> scales(static_cast<size_t>(groups)), biases(scales), values;
  for (int64_t r = 0; r < c.rows; ++r) {
    const size_t bytes = words.size() * sizeof(uint32_t);
    std::memcpy(words.data(), rows.planes[0]->bytes.data() + static_cast<size_t>(r) * bytes, bytes);
    UnpackCodes(words, format.bits, codes);
    DecodeTo(*rows.planes[1], r * groups, scales);
    DecodeTo(*rows.planes[2], r * groups, biases);
    for (int64_t i = 0; i < c.head_dim; ++i) {
      const auto group = static_cast<size_t>(rules_.group_of != nullptr
                                                 ? rules_.group_of(i, format.group_size, groups)
                                                 : i / format.group_size);
      const uint8_t code = codes[static_cast<size_t>(i)];
      if (rules_.value != nullptr) {
        values.push_back(RoundTo(format.scale_dtype, rules_.value(format, profile_, code,
                                                                  scales[group], biases[group])));
        continue;
      }
      double value = 0;
      DecodeAffineGroup(profile_.decode, format.scale_dtype, {&code, 1}, scales[group],
                        biases[group], {&value, 1});
      values.push_back(value);
    }
  }
  return values;
}

TensorMap FaultyCodec::Encode(const TurboquantFormat& format, const CodecCase& c,
                              const Tensor& x) const {
  if (!rules_.turboquant.ReplacesEncoding()) return EncodeRows(format, profile_, x);
  return EncodeTurboquant(rules_.turboquant, format, profile_, c, x);
}

std::vector<double> FaultyCodec::Decode(const TurboquantFormat& format, const CodecCase& c,
                                        const TensorMap& stored) const {
  if (!rules_.turboquant.ReplacesDecoding()) {
    return DecodeToRowType(format, profile_, CodecRows(format, stored), 0, c.rows);
  }
  return DecodeTurboquant(rules_.turboquant, format, profile_, stored);
}

template <typename Format>
TensorMap FaultyCodec::Encode(const Format& format, const CodecCase&, const Tensor& x) const {
  TensorMap stored = EncodeRows(format, profile_, x);
  const Planes planes = PlanesOf(KvFormat(format), format.Block());
  if (rules_.block == nullptr || planes.size() != 1) return stored;
  std::byte* block = stored.at(std::string(planes[0].name)).bytes.data();
  std::vector<double> values(static_cast<size_t>(format.Block()));
  for (int64_t at = 0; at < x.ElementCount(); at += format.Block(), block += planes[0].Bytes()) {
    DecodeTo(x, at, values);
    RoundAll(values, format.RowType());
    rules_.block(format, values, block);
  }
  return stored;
}

template <typename Format>
std::vector<double> FaultyCodec::Decode(const Format& format, const CodecCase& c,
                                        const TensorMap& stored) const {
  return DecodeToRowType(format, profile_, CodecRows(format, stored), 0, c.rows);
}

RunOutcome FaultyCodec::Run(const Case& c, const TensorMap& inputs, Sink& sink) {
  const auto* codec = std::get_if<CodecCase>(&c);
  if (codec == nullptr) return RunOutcome::kUnsupported;
  if (rules_.profile != nullptr) {
    CodecRules rest = rules_;
    rest.profile = nullptr;
    Profile profile = profile_;
    rules_.profile(&profile);
    return FaultyCodec(rest, profile).Run(c, inputs, sink);
  }
  const KvFormat taken = rules_.format != nullptr ? rules_.format(codec->format) : codec->format;
  TensorMap stored = inputs;
  if (codec->direction != CodecDirection::kDecode) {
    const Tensor& x = Get(inputs, "x");
    stored = rules_.encode != nullptr
                 ? rules_.encode(*codec, profile_, x)
                 : std::visit([&](const auto& format) { return Encode(format, *codec, x); }, taken);
  }
  if (rules_.tensors != nullptr) rules_.tensors(*codec, &stored);
  if (codec->direction == CodecDirection::kEncode) {
    for (const auto& [name, tensor] : stored) Give(name, tensor, &sink);
    return RunOutcome::kAnswered;
  }
  const TensorSpec spec = OutputSpecs(c).at("y");
  Tensor y(spec.dtype, spec.shape);
  const std::vector<double> values =
      std::visit([&](const auto& format) { return Decode(format, *codec, stored); }, taken);
  EncodeFrom(values, spec.dtype, y.bytes.data());
  Give("y", y, &sink);
  return RunOutcome::kAnswered;
}

}  // namespace kvcheck
