#include "tools/process/wire_writer.h"

#include <algorithm>
#include <bit>

#include "reference/spec/error.h"
#include "tools/process/message_frame.h"

namespace kvcheck {

void WireWriter::StartFrame() {
  bytes_.assign(FrameHeader().size(), std::byte{0});
  open_.clear();
}

std::span<const std::byte> WireWriter::FinishFrame() {
  KVCHECK_CHECK(open_.empty(), "a map of the frame is still open");
  const FrameHeader header = EncodeFrameHeader(bytes_.size() - FrameHeader().size());
  std::copy(header.begin(), header.end(), bytes_.begin());
  return bytes_;
}

void WireWriter::BigEndian(uint64_t value, int width) {
  for (int i = width - 1; i >= 0; --i) Byte(static_cast<unsigned>(value >> (8 * i) & 0xff));
}

void WireWriter::StartMap() {
  Byte(0xde);
  open_.push_back({bytes_.size(), 0});
  BigEndian(0, 2);
}

void WireWriter::EndMap() {
  const OpenMap map = open_.back();
  open_.pop_back();
  KVCHECK_CHECK(map.entries <= 0xffff, "a map of too many entries");
  bytes_[map.at] = static_cast<std::byte>(map.entries >> 8);
  bytes_[map.at + 1] = static_cast<std::byte>(map.entries & 0xff);
}

void WireWriter::Key(std::string_view key) {
  ++open_.back().entries;
  Text(key);
}

void WireWriter::StartArray(size_t count) {
  if (count < 16) {
    Byte(0x90 | static_cast<unsigned>(count));
  } else if (count <= 0xffff) {
    Byte(0xdc);
    BigEndian(count, 2);
  } else {
    Byte(0xdd);
    BigEndian(count, 4);
  }
}

void WireWriter::Nil() { Byte(0xc0); }
void WireWriter::Bool(bool value) { Byte(value ? 0xc3 : 0xc2); }

void WireWriter::Integer(int64_t value) {
  if (value >= 0) return Unsigned(static_cast<uint64_t>(value));
  const auto bits = static_cast<uint64_t>(value);
  if (value >= -32) {
    Byte(static_cast<unsigned>(bits & 0xff));
  } else if (value >= INT32_MIN) {
    Byte(0xd2);
    BigEndian(bits, 4);
  } else {
    Byte(0xd3);
    BigEndian(bits, 8);
  }
}

void WireWriter::Unsigned(uint64_t value) {
  if (value < 128) {
    Byte(static_cast<unsigned>(value));
  } else if (value <= 0xff) {
    Byte(0xcc);
    BigEndian(value, 1);
  } else if (value <= 0xffff) {
    Byte(0xcd);
    BigEndian(value, 2);
  } else if (value <= 0xffffffff) {
    Byte(0xce);
    BigEndian(value, 4);
  } else {
    Byte(0xcf);
    BigEndian(value, 8);
  }
}

void WireWriter::Float(double value) {
  Byte(0xcb);
  BigEndian(std::bit_cast<uint64_t>(value), 8);
}

void WireWriter::Text(std::string_view text) {
  if (text.size() < 32) {
    Byte(0xa0 | static_cast<unsigned>(text.size()));
  } else if (text.size() <= 0xff) {
    Byte(0xd9);
    BigEndian(text.size(), 1);
  } else if (text.size() <= 0xffff) {
    Byte(0xda);
    BigEndian(text.size(), 2);
  } else {
    Byte(0xdb);
    BigEndian(text.size(), 4);
  }
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  bytes_.insert(bytes_.end(), data, data + text.size());
}

void WireWriter::Integers(std::span<const int64_t> values) {
  StartArray(values.size());
  for (const int64_t value : values) Integer(value);
}

void WireWriter::BytesHeader(size_t size) {
  if (size <= 0xff) {
    Byte(0xc4);
    BigEndian(size, 1);
  } else if (size <= 0xffff) {
    Byte(0xc5);
    BigEndian(size, 2);
  } else {
    KVCHECK_CHECK(size <= 0xffffffff, "more bytes than MessagePack holds");
    Byte(0xc6);
    BigEndian(size, 4);
  }
}

void WireWriter::Bytes(std::span<const std::byte> bytes) {
  BytesHeader(bytes.size());
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::span<std::byte> WireWriter::Array(DType dtype, std::span<const int64_t> extents) {
  StartArray(3);
  Text(ShortName(dtype));
  Integers(extents);
  size_t size = SizeInBytes(dtype);
  for (const int64_t extent : extents) size *= static_cast<size_t>(extent);
  BytesHeader(size);
  const size_t at = bytes_.size();
  bytes_.resize(at + size);
  return {bytes_.data() + at, size};
}

}  // namespace kvcheck
