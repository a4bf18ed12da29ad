// The header of a message between a supervised child and its parent: its length in 8 bytes, little
// endian.

#ifndef TOOLS_PROCESS_MESSAGE_FRAME_H_
#define TOOLS_PROCESS_MESSAGE_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kvcheck {

using FrameHeader = std::array<std::byte, 8>;

inline FrameHeader EncodeFrameHeader(uint64_t length) {
  FrameHeader header;
  for (size_t i = 0; i < header.size(); ++i) {
    header[i] = static_cast<std::byte>(length >> (8 * i) & 0xff);
  }
  return header;
}

inline uint64_t DecodeFrameHeader(const FrameHeader& header) {
  uint64_t length = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    length |= static_cast<uint64_t>(header[i]) << (8 * i);
  }
  return length;
}

// What most often stands where a header belongs: something that was printed. "" of others.
inline std::string PrintedText(const FrameHeader& header) {
  std::string text;
  for (const std::byte b : header) {
    const auto c = static_cast<char>(b);
    if (c != '\n' && c != '\t' && (c < ' ' || c > '~')) return "";
    text += c < ' ' ? ' ' : c;
  }
  return "; its first bytes are the text '" + text + "': nothing may be printed among messages";
}

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_MESSAGE_FRAME_H_
