#include "optimized/formats/codec_implementation.h"

#include <algorithm>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "reference/spec/codec_choices.h"

namespace kvcheck {
namespace {

using optimized::RowBytes;
using optimized::RowCodec;
using optimized::StoredRowsView;

// The planes of rows, as tensors hold them.
using Rows = std::vector<std::vector<std::byte>>;

template <typename Byte>
optimized::RowSpan<Byte> SpanOf(const std::vector<Byte*>& planes, const RowBytes& bytes) {
  const auto at = [&](size_t i) { return i < planes.size() ? planes[i] : nullptr; };
  return {at(0), at(1), at(2), bytes.codes, bytes.scales};
}

// Give(first row, step, rows, the planes from it on): all rows at once, or those of each head that
// the format names, which are those of one token after the other.
template <typename Byte, typename Give>
void ForEachHead(const KvFormat& format, int64_t rows, optimized::RowSpan<Byte> span,
                 RowCodec* codec, Give give) {
  const int64_t heads = std::min(rows, HeadsOf(format));
  for (int64_t head = 0; head < heads; ++head) {
    codec->SetHead(head);
    optimized::RowSpan<Byte> of_head = span;
    of_head.codes += head * span.code_stride;
    of_head.code_stride *= HeadsOf(format);
    give(head, HeadsOf(format), (rows - head + HeadsOf(format) - 1) / HeadsOf(format), of_head);
  }
}

Rows Encode(const CodecCase& c, const KvFormat& format, DType from, const std::byte* x,
            AffineEncoder affine = AffineEncoder::kMlxCpu) {
  RowCodec codec;
  codec.Start(format, from, c.head_dim, affine);
  Rows rows;
  std::vector<std::byte*> to;
  for (const Plane& plane : PlanesOf(format, c.head_dim)) {
    to.push_back(rows.emplace_back(static_cast<size_t>(c.rows) * plane.Bytes()).data());
  }
  const int64_t x_stride = c.head_dim * static_cast<int64_t>(SizeInBytes(from));
  ForEachHead(format, c.rows, SpanOf(to, codec.bytes()), &codec,
              [&](int64_t first, int64_t step, int64_t count, const auto& of_head) {
                codec.Encode(x + first * x_stride, step * x_stride, count, of_head);
              });
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

// y: of coded rows in the row type, of plain ones in the type of x.
std::vector<std::byte> Decode(const CodecCase& c, const StoredRowsView& rows) {
  const DType type = RowDType(c.format);
  if (!IsPlain(c.format)) {
    RowCodec codec;
    codec.Start(c.format, type, c.head_dim);
    std::vector<std::byte> y(static_cast<size_t>(c.rows * c.head_dim) * SizeInBytes(type));
    if (HeadsOf(c.format) == 1) {
      codec.DecodeToRowType(rows, c.rows, y.data());
      return y;
    }
    const size_t row = y.size() / static_cast<size_t>(c.rows);
    ForEachHead(c.format, c.rows, rows, &codec,
                [&](int64_t first, int64_t step, int64_t count, StoredRowsView of_head) {
                  for (int64_t i = 0; i < count; ++i, of_head.codes += of_head.code_stride) {
                    codec.DecodeToRowType(of_head, 1,
                                          y.data() + static_cast<size_t>(first + i * step) * row);
                  }
                });
    return y;
  }
  const PlainFormat y{c.x};
  // f32 does not hold f64: one rounding from code to code.
  if (type == DType::kFloat64) return Encode(c, y, type, rows.codes)[0];
  std::vector<float> values = Widened(type, rows.codes, c.rows * c.head_dim);
  return Encode(c, y, DType::kFloat32, reinterpret_cast<std::byte*>(values.data()))[0];
}

// Whether what the field says is done here.
bool Follows(const CodecField& field, const Profile& profile) {
  return field.Same(profile, OptimizedCodec::StatedProfile()) ||
         (field.choice == CodecChoice::kEncode && profile.encode == AffineEncoder::kKivi);
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
  answer_.reset();
  const bool encodes = codec->direction == CodecDirection::kEncode;
  const bool encodes_any = codec->direction != CodecDirection::kDecode;
  for (const CodecField& field : CodecFields()) {
    const bool acts = field.acts_on == ActsOn::kBoth ||
                      (field.acts_on == ActsOn::kEncoding ? encodes_any : !encodes);
    if (acts && Leaves(codec->format, field.choice) && !Follows(field, profile_)) {
      return RunOutcome::kUnsupported;
    }
  }
  if (encodes_any && Leaves(codec->format, CodecChoice::kEncode) &&
      profile_.encode != StatedProfile().encode) {
    answer_ = profile_;
  }
  const auto give = [&](const std::string& name, std::span<const std::byte> bytes) {
    const TensorSpec spec = OutputSpecs(c).at(name);
    sink.Declare(name, spec.dtype, spec.shape);
    sink.Write(name, 0, bytes);
  };
  const std::vector<std::string> names = PlaneNames(codec->format);
  Rows rows;
  std::vector<const std::byte*> stored;
  if (codec->direction == CodecDirection::kDecode) {
    for (const std::string& name : names) stored.push_back(Bytes(inputs, name));
  } else {
    rows = Encode(*codec, codec->format, codec->x, Bytes(inputs, "x"), profile_.encode);
    for (const std::vector<std::byte>& plane : rows) stored.push_back(plane.data());
  }
  if (encodes) {
    for (size_t i = 0; i < names.size(); ++i) give(names[i], rows[i]);
    return RunOutcome::kAnswered;
  }
  give("y", Decode(*codec, SpanOf(stored, optimized::RowBytesOf(codec->format, codec->head_dim))));
  return RunOutcome::kAnswered;
}

}  // namespace kvcheck
