#include "tools/kvcheck/optimized_codec.h"

#include <bit>
#include <cstring>
#include <vector>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck {
namespace {

using optimized::RowBytes;
using optimized::RowCodec;
using optimized::StoredRows;
using optimized::StoredRowsView;

// Rows as tensors hold them: codes, scales and biases apart.
struct Rows {
  std::vector<std::byte> codes, scales, biases;

  Rows(const RowBytes& bytes, int64_t count)
      : codes(static_cast<size_t>(bytes.codes * count)),
        scales(static_cast<size_t>(bytes.scales * count)),
        biases(scales.size()) {}
};

StoredRows To(Rows* rows, const RowBytes& bytes) {
  return {rows->codes.data(), rows->scales.data(), rows->biases.data(), bytes.codes, bytes.scales};
}

Rows Encode(const CodecCase& c, const KvFormat& format, DType from, const std::byte* x) {
  RowCodec codec;
  codec.Start(format, from, c.head_dim);
  Rows rows(codec.bytes(), c.rows);
  codec.Encode(x, c.head_dim * static_cast<int64_t>(SizeInBytes(from)), c.rows,
               To(&rows, codec.bytes()));
  return rows;
}

float Rounded(float value, DType type) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (type == DType::kFloat16) {
    return std::bit_cast<float>(optimized::F32FromF16(optimized::F16FromF32(bits)));
  }
  if (type == DType::kBFloat16) {
    return std::bit_cast<float>(optimized::F32FromBF16(optimized::BF16FromF32(bits)));
  }
  return value;
}

// Numbers of a storage type as f32, which holds each exactly.
std::vector<float> Widened(DType type, const std::byte* codes, int64_t count) {
  RowCodec codec;
  codec.Start(PlainFormat{type}, DType::kFloat32, count);
  std::vector<float> values(static_cast<size_t>(count));
  codec.Decode({codes, nullptr, nullptr, codec.bytes().codes, 0}, 1, values.data());
  return values;
}

// Affine rows: the codes as numbers, by the codec itself with scale 1 and bias 0; then c s and
// + b, each rounded to the row type. c s has at most 8 + 24 bits and is rounded once in f32 where
// the row type is f32; for f16 and bf16 it is exact in f32 (8 + 11 bits), and the sum, rounded to
// 24 bits first, is that of one rounding since 24 >= 2 11 + 2 (Figueroa, "When is double rounding
// innocuous?", 1995).
std::vector<float> DecodeAffine(const AffineFormat& format, const CodecCase& c,
                                const StoredRowsView& rows) {
  const int64_t d = c.head_dim;
  const int64_t groups = d / format.group_size;
  AffineFormat numbers = format;
  numbers.scale_dtype = DType::kFloat32;
  RowCodec codec;
  codec.Start(numbers, DType::kFloat32, d);
  std::vector<float> ones(static_cast<size_t>(groups), 1.0F);
  std::vector<float> zeros(static_cast<size_t>(groups), 0.0F);
  std::vector<float> values(static_cast<size_t>(d * c.rows));
  const auto bytes = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  codec.Decode({rows.codes, bytes(ones), bytes(zeros), rows.code_stride, 0}, c.rows, values.data());
  const std::vector<float> scales = Widened(format.scale_dtype, rows.scales, groups * c.rows);
  const std::vector<float> biases = Widened(format.scale_dtype, rows.biases, groups * c.rows);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t group = i / static_cast<size_t>(format.group_size);
    const float product = Rounded(values[i] * scales[group], format.scale_dtype);
    values[i] = Rounded(product + biases[group], format.scale_dtype);
  }
  return values;
}

// y: of affine rows in the row type, of plain ones in the type of x.
std::vector<std::byte> Decode(const CodecCase& c, const StoredRowsView& rows) {
  const auto* affine = std::get_if<AffineFormat>(&c.format);
  const DType type = RowDType(c.format);
  const PlainFormat y{affine != nullptr ? type : c.x};
  // f32 does not hold f64: one rounding from code to code.
  if (type == DType::kFloat64) return Encode(c, y, type, rows.codes).codes;
  std::vector<float> values = affine != nullptr ? DecodeAffine(*affine, c, rows)
                                                : Widened(type, rows.codes, c.rows * c.head_dim);
  return Encode(c, y, DType::kFloat32, reinterpret_cast<std::byte*>(values.data())).codes;
}

const std::byte* Bytes(const TensorMap& tensors, const std::string& name) {
  return Get(tensors, name).bytes.data();
}

}  // namespace

Profile OptimizedCodec::StatedProfile() {
  Profile profile;
  profile.decode = DecodeRounding::kTwoRoundings;
  return profile;
}

Capabilities OptimizedCodec::GetCapabilities() const {
  return {"optimized", "1", {"codec"}, {}, StatedProfile()};
}

RunOutcome OptimizedCodec::Run(const Case& c, const TensorMap& inputs, Sink& sink) {
  const auto* codec = std::get_if<CodecCase>(&c);
  if (codec == nullptr) return RunOutcome::kUnsupported;
  const Profile stated = StatedProfile();
  const bool affine = !IsPlain(codec->format);
  if (affine && profile_.encode != stated.encode) return RunOutcome::kUnsupported;
  if (!affine && profile_.fp8_overflow != stated.fp8_overflow) return RunOutcome::kUnsupported;
  if (affine && codec->direction != CodecDirection::kEncode && profile_.decode != stated.decode) {
    return RunOutcome::kUnsupported;
  }
  const auto give = [&](const std::string& name, std::span<const std::byte> bytes) {
    const TensorSpec spec = OutputSpecs(c).at(name);
    sink.Declare(name, spec.dtype, spec.shape);
    sink.Write(name, 0, bytes);
  };
  const RowBytes bytes = optimized::RowBytesOf(codec->format, codec->head_dim);
  Rows rows({}, 0);
  StoredRowsView stored;
  if (codec->direction == CodecDirection::kDecode) {
    stored = {Bytes(inputs, "codes"), affine ? Bytes(inputs, "scales") : nullptr,
              affine ? Bytes(inputs, "biases") : nullptr, bytes.codes, bytes.scales};
  } else {
    rows = Encode(*codec, codec->format, codec->x, Bytes(inputs, "x"));
    stored = {rows.codes.data(), rows.scales.data(), rows.biases.data(), bytes.codes, bytes.scales};
  }
  if (codec->direction == CodecDirection::kEncode) {
    give("codes", rows.codes);
    if (affine) {
      give("scales", rows.scales);
      give("biases", rows.biases);
    }
    return RunOutcome::kAnswered;
  }
  give("y", Decode(*codec, stored));
  return RunOutcome::kAnswered;
}

}  // namespace kvcheck
