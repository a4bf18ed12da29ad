// What the example saves: a mark, a version, fields one after the other, and a checksum of all.

#ifndef KVCHECK_EXAMPLE_RECORD_H_
#define KVCHECK_EXAMPLE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kvcheck_adapter.h"

// FNV-1a.
inline uint64_t ChecksumOf(const std::byte* bytes, size_t size) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size; ++i) sum = (sum ^ static_cast<uint64_t>(bytes[i])) * 0x100000001b3u;
  return sum;
}

class RecordWriter {
 public:
  static constexpr int64_t kMark = 0x3070636b76637865;
  static constexpr int64_t kVersion = 1;

  explicit RecordWriter(int64_t version = kVersion) {
    Integer(kMark);
    Integer(version);
  }
  void Integer(int64_t value) { Raw(&value, sizeof value); }
  void Bytes(const std::vector<std::byte>& bytes) {
    Integer(static_cast<int64_t>(bytes.size()));
    Raw(bytes.data(), bytes.size());
  }
  void Text(const std::string& text) {
    Integer(static_cast<int64_t>(text.size()));
    Raw(text.data(), text.size());
  }
  std::vector<std::byte> Finish() {
    const uint64_t sum = ChecksumOf(bytes_.data(), bytes_.size());
    Raw(&sum, sizeof sum);
    return bytes_;
  }

 private:
  void Raw(const void* from, size_t size) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + size);
  }
  std::vector<std::byte> bytes_;
};

// Errors of all: Refused.
class RecordReader {
 public:
  explicit RecordReader(const std::vector<std::byte>& bytes) : bytes_(&bytes), end_(bytes.size()) {
    uint64_t sum = 0;
    if (end_ < sizeof sum) Refuse("it is too short");
    end_ -= sizeof sum;
    std::memcpy(&sum, bytes.data() + end_, sizeof sum);
    if (sum != ChecksumOf(bytes.data(), end_)) Refuse("its checksum is wrong");
    if (Integer() != RecordWriter::kMark) Refuse("somebody else wrote it");
    if (Integer() != RecordWriter::kVersion) Refuse("it has an unknown version");
  }
  int64_t Integer() {
    int64_t value = 0;
    std::memcpy(&value, Raw(sizeof value), sizeof value);
    return value;
  }
  std::vector<std::byte> Bytes() {
    const size_t size = Size();
    const std::byte* first = Raw(size);
    return {first, first + size};
  }
  std::string Text() {
    const size_t size = Size();
    return {reinterpret_cast<const char*>(Raw(size)), size};
  }

 private:
  [[noreturn]] static void Refuse(const char* why) {
    throw kvcheck_adapter::Refused(std::string("what is saved is damaged: ") + why);
  }
  size_t Size() {
    const int64_t size = Integer();
    if (size < 0) Refuse("a size is negative");
    return static_cast<size_t>(size);
  }
  const std::byte* Raw(size_t size) {
    if (size > end_ - at_) Refuse("it ends early");
    at_ += size;
    return bytes_->data() + at_ - size;
  }
  const std::vector<std::byte>* bytes_;
  size_t at_ = 0, end_ = 0;
};

// The same record with another version, and a checksum that is right.
inline void ChangeRecordVersion(std::vector<std::byte>* bytes) {
  const int64_t version = 999;
  if (bytes->size() < 24) return;  // truncated: it has none any more
  const size_t end = bytes->size() - 8;
  std::memcpy(bytes->data() + 8, &version, sizeof version);
  const uint64_t sum = ChecksumOf(bytes->data(), end);
  std::memcpy(bytes->data() + end, &sum, sizeof sum);
}

#endif  // KVCHECK_EXAMPLE_RECORD_H_
