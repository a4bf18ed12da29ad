#include "tools/process/message_codec.h"

#include <variant>

#include "golden/schema.h"
#include "reference/spec/error.h"
#include "tools/process/message_frame.h"

namespace kvcheck {
namespace {

// No data_offset.
constexpr int64_t kNowhere = -1;

[[noreturn]] void Refuse() {
  throw Error(ErrorCode::kUnreadableFile, "the process that reads the file sent nonsense");
}

}  // namespace

void MessageEncoder::Integer(int64_t value) {
  const FrameHeader bytes = EncodeFrameHeader(static_cast<uint64_t>(value));
  message_.insert(message_.end(), bytes.begin(), bytes.end());
}

void MessageEncoder::Text(std::string_view text) {
  Integer(static_cast<int64_t>(text.size()));
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  message_.insert(message_.end(), data, data + text.size());
}

void MessageEncoder::Record(const ObjectRecord& record) {
  Byte(record.is_dataset ? 1 : 0);
  Integer(static_cast<int64_t>(record.attributes.size()));
  for (const auto& [name, value] : record.attributes) {
    Text(name);
    const auto* text = std::get_if<std::string>(&value);
    Byte(text != nullptr ? 'S' : 'I');
    if (text != nullptr) {
      Text(*text);
    } else {
      Integer(std::get<int64_t>(value));
    }
  }
  Text(Name(record.dtype));
  Integer(static_cast<int64_t>(record.shape.axes.size()));
  for (const Axis& axis : record.shape.axes) {
    Text(axis.name);
    Integer(axis.extent);
  }
  Integer(record.data_offset.value_or(kNowhere));
  Text(record.problem);
}

std::span<const std::byte> MessageDecoder::Take(size_t size) {
  if (size > rest_.size()) Refuse();
  const auto taken = rest_.first(size);
  rest_ = rest_.subspan(size);
  return taken;
}

char MessageDecoder::Byte() { return static_cast<char>(Take(1)[0]); }

int64_t MessageDecoder::Integer() {
  FrameHeader bytes;
  const auto taken = Take(bytes.size());
  std::copy(taken.begin(), taken.end(), bytes.begin());
  return static_cast<int64_t>(DecodeFrameHeader(bytes));
}

std::string MessageDecoder::Text() {
  const int64_t size = Integer();
  if (size < 0) Refuse();
  const auto bytes = Take(static_cast<size_t>(size));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

ObjectRecord MessageDecoder::Record(const ReadLimits& limits, int64_t file_bytes) {
  ObjectRecord record;
  record.is_dataset = Byte() != 0;
  for (int64_t left = Integer(); left > 0; --left) {
    std::string name = Text();
    const char kind = Byte();
    if (kind == 'S') {
      record.attributes[std::move(name)] = Text();
    } else if (kind == 'I') {
      record.attributes[std::move(name)] = Integer();
    } else {
      Refuse();
    }
  }
  const std::optional<DType> dtype = ParseDType(Text());
  if (!dtype) Refuse();
  record.dtype = *dtype;
  const int64_t rank = Integer();
  if (rank < 0 || rank > kMaxTensorRank) Refuse();
  for (int64_t i = 0; i < rank; ++i) {
    Axis axis;
    axis.name = Text();
    axis.extent = Integer();
    if (!axis.name.empty() && !IsAxisLabel(axis.name)) Refuse();
    record.shape.axes.push_back(std::move(axis));
  }
  const std::optional<int64_t> bytes =
      BoundedBytes(record.shape, record.dtype, limits.max_tensor_bytes);
  if (!bytes) Refuse();
  const int64_t offset = Integer();
  if (offset != kNowhere) {
    if (offset < 0 || *bytes > file_bytes || offset > file_bytes - *bytes) Refuse();
    record.data_offset = offset;
  }
  record.problem = Text();
  return record;
}

void MessageDecoder::ExpectEnd() const {
  if (!rest_.empty()) Refuse();
}

}  // namespace kvcheck
