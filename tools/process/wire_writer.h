// A frame of the process protocol (protocol.md) as it is written: one MessagePack value behind the
// header, in one piece of memory that is used again for the next frame.

#ifndef TOOLS_PROCESS_WIRE_WRITER_H_
#define TOOLS_PROCESS_WIRE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"

namespace kvcheck {

class WireWriter {
 public:
  // Forgets what was written.
  void StartFrame();
  // The frame with its header, valid until the next call. Precondition: no map is open.
  std::span<const std::byte> FinishFrame();
  // Bytes of the frame so far, without the header.
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) - 8; }

  // Entries are Key and one value, up to EndMap; at most 65535.
  void StartMap();
  void EndMap();
  void Key(std::string_view key);
  // `count` values follow.
  void StartArray(size_t count);
  void Nil();
  void Bool(bool value);
  void Integer(int64_t value);
  void Unsigned(uint64_t value);
  void Float(double value);
  void Text(std::string_view text);
  void Integers(std::span<const int64_t> values);
  void Bytes(std::span<const std::byte> bytes);
  // [type, [extents], bytes]; the place of the bytes is returned for the caller to fill, before the
  // next call. Precondition: the extents are not negative, and their bytes are below 2^32.
  std::span<std::byte> Array(DType dtype, std::span<const int64_t> extents);

 private:
  void Byte(unsigned value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void BigEndian(uint64_t value, int width);
  void BytesHeader(size_t size);

  std::vector<std::byte> bytes_;
  struct OpenMap {
    size_t at;  // of its count
    uint32_t entries;
  };
  std::vector<OpenMap> open_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_WIRE_WRITER_H_
