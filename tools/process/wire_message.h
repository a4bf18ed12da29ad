// A received frame of the process protocol (protocol.md): one MessagePack value, read without
// copying and without trust. Whatever the bytes are, reading them takes memory in proportion to
// them, no recursion, and ends in a value or in a WireError.

#ifndef TOOLS_PROCESS_WIRE_MESSAGE_H_
#define TOOLS_PROCESS_WIRE_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"

namespace kvcheck {

// What breaks the protocol, as a sentence without its subject: "'rows' is no integer".
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Values of one frame, and how deep they nest.
inline constexpr size_t kMaxWireValues = size_t{1} << 20;
inline constexpr size_t kMaxWireDepth = 16;

enum class WireKind : uint8_t {
  kNil,
  kBool,
  kInteger,
  kFloat,
  kText,
  kBytes,
  kArray,
  kMap,
  kOther,  // integers of 64 bits without a sign, extensions: nothing asks for them
};

struct WireNode {
  WireKind kind = WireKind::kNil;
  uint32_t count = 0;  // of an array or map: its entries
  uint32_t end = 0;    // the node behind this value
  int64_t integer = 0;
  double number = 0;
  std::span<const std::byte> bytes;  // of texts and bytes
};

// An array of the protocol: type, extents and little-endian bytes, which fit each other.
struct WireArray {
  static constexpr size_t kMaxRank = 8;
  DType dtype = DType::kFloat32;
  size_t rank = 0;
  int64_t extents[kMaxRank] = {};
  std::span<const std::byte> bytes;

  bool HasExtents(std::span<const int64_t> wanted) const;
};

// One value. Views are valid as long as the message's bytes, and the value until the message reads
// others. Errors of all: WireError, naming `what` was asked for.
class WireValue {
 public:
  WireValue(const std::vector<WireNode>* nodes, uint32_t at) : nodes_(nodes), at_(at) {}

  WireKind kind() const { return node().kind; }
  bool IsNil() const { return kind() == WireKind::kNil; }
  bool AsBool(std::string_view what) const;
  int64_t AsInteger(std::string_view what) const;
  // At least 0.
  int64_t AsCount(std::string_view what) const;
  double AsFloat(std::string_view what) const;  // an integer too
  std::string_view AsText(std::string_view what) const;
  std::span<const std::byte> AsBytes(std::string_view what) const;
  std::vector<int64_t> AsIntegers(std::string_view what) const;
  std::vector<std::string> AsTexts(std::string_view what) const;
  WireArray AsArray(std::string_view what) const;
  // The entries of an array.
  std::vector<WireValue> Entries(std::string_view what) const;
  size_t CountEntries(std::string_view what) const;

  // Of a map: what stands under the key; nullopt where nothing or nil does. The first of two.
  std::optional<WireValue> Find(std::string_view key) const;
  WireValue Get(std::string_view key) const;
  // Calls f(key, value) for each entry of a map.
  template <typename F>
  void ForEach(std::string_view what, F f) const {
    Expect(WireKind::kMap, what);
    uint32_t at = at_ + 1;
    for (uint32_t i = 0; i < node().count; ++i) {
      const WireValue key(nodes_, at);
      const WireValue value(nodes_, at + 1);
      f(key.AsText("a key"), value);
      at = value.node().end;
    }
  }

 private:
  const WireNode& node() const { return (*nodes_)[at_]; }
  void Expect(WireKind kind, std::string_view what) const;

  const std::vector<WireNode>* nodes_;
  uint32_t at_;
};

// Keeps its memory from frame to frame.
class WireMessage {
 public:
  // The value of the frame, a map; valid until the next call, and as long as the bytes.
  // Errors: WireError.
  WireValue Read(std::span<const std::byte> bytes);

 private:
  std::vector<WireNode> nodes_;
};

// A text of unknown origin as a message may show it, and a file of cases hold it: printable ASCII
// stays, ends of lines become blanks, anything else '?'; cut to `most` bytes.
std::string CleanText(std::string_view text, size_t most = 500);

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_WIRE_MESSAGE_H_
