// Integers, texts and index records as bytes of a message. The decoder trusts nothing.

#ifndef TOOLS_PROCESS_MESSAGE_CODEC_H_
#define TOOLS_PROCESS_MESSAGE_CODEC_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "golden/file_index.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {

class MessageEncoder {
 public:
  void Byte(char value) { message_.push_back(static_cast<std::byte>(value)); }
  void Integer(int64_t value);
  void Text(std::string_view text);
  void Record(const ObjectRecord& record);

  const Message& message() const { return message_; }

 private:
  Message message_;
};

// Errors of all: kUnreadableFile, when the message ends early or a value has no meaning.
class MessageDecoder {
 public:
  explicit MessageDecoder(std::span<const std::byte> message) : rest_(message) {}

  char Byte();
  int64_t Integer();
  std::string Text();
  // Extents are held to the limits, a data_offset to the size of the file.
  ObjectRecord Record(const ReadLimits& limits, int64_t file_bytes);
  bool AtEnd() const { return rest_.empty(); }
  // Errors: also when something is left.
  void ExpectEnd() const;

 private:
  std::span<const std::byte> Take(size_t size);

  std::span<const std::byte> rest_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_MESSAGE_CODEC_H_
