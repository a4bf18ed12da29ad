#include "optimized/formats/codec_implementation.h"

#include <vector>

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

// Numbers of a storage type as f32, which holds each exactly.
std::vector<float> Widened(DType type, const std::byte* codes, int64_t count) {
  RowCodec codec;
  codec.Start(PlainFormat{type}, DType::kFloat32, count);
  std::vector<float> values(static_cast<size_t>(count));
  codec.Decode({codes, nullptr, nullptr, codec.bytes().codes, 0}, 1, values.data());
  return values;
}

// y: of affine rows in the row type, of plain ones in the type of x.
std::vector<std::byte> Decode(const CodecCase& c, const StoredRowsView& rows) {
  const DType type = RowDType(c.format);
  if (!IsPlain(c.format)) {
    RowCodec codec;
    codec.Start(c.format, type, c.head_dim);
    std::vector<std::byte> y(static_cast<size_t>(c.rows * c.head_dim) * SizeInBytes(type));
    codec.DecodeToRowType(rows, c.rows, y.data());
    return y;
  }
  const PlainFormat y{c.x};
  // f32 does not hold f64: one rounding from code to code.
  if (type == DType::kFloat64) return Encode(c, y, type, rows.codes).codes;
  std::vector<float> values = Widened(type, rows.codes, c.rows * c.head_dim);
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
  Capabilities capabilities = {"optimized", "1", {"codec"}, {}, StatedProfile()};
  capabilities.conventions = Conventions::kOwn;
  return capabilities;
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
