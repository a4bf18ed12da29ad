#include "tools/process/wire_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

namespace kvcheck {
namespace {

std::string_view NameOf(WireKind kind) {
  constexpr std::array<std::string_view, 9> kNames = {
      "nil",      "a boolean", "an integer",
      "a number", "a text",    "bytes",
      "an array", "a map",     "a value that the protocol does not have"};
  return kNames[static_cast<size_t>(kind)];
}

class MessagePackScanner {
 public:
  MessagePackScanner(std::span<const std::byte> bytes, std::vector<WireNode>* nodes)
      : rest_(bytes), nodes_(nodes) {}

  void Scan() {
    nodes_->clear();
    std::array<Open, kMaxWireDepth> open;
    size_t depth = 0;
    while (true) {
      const bool is_key = depth > 0 && nodes_->at(open[depth - 1].at).kind == WireKind::kMap &&
                          open[depth - 1].left % 2 == 0;
      const uint64_t inside = ScanOne();
      const auto at = static_cast<uint32_t>(nodes_->size() - 1);
      if (is_key && (*nodes_)[at].kind != WireKind::kText) throw WireError("a key is no text");
      if (inside > 0) {
        if (depth == kMaxWireDepth) {
          throw WireError(fmt::format("values nest deeper than {}", kMaxWireDepth));
        }
        open[depth++] = {at, inside};
        continue;
      }
      Close(at);
      while (depth > 0 && --open[depth - 1].left == 0) Close(open[--depth].at);
      if (depth == 0) break;
    }
    if (!rest_.empty()) {
      throw WireError(fmt::format("{} bytes follow the value of the frame", rest_.size()));
    }
  }

 private:
  struct Open {
    uint32_t at = 0;
    uint64_t left = 0;  // values to come: of a map twice its entries
  };

  void Close(uint32_t at) { (*nodes_)[at].end = static_cast<uint32_t>(nodes_->size()); }

  std::span<const std::byte> Take(uint64_t size) {
    if (size > rest_.size()) throw WireError("no MessagePack value: it ends early");
    const std::span<const std::byte> taken = rest_.first(static_cast<size_t>(size));
    rest_ = rest_.subspan(static_cast<size_t>(size));
    return taken;
  }

  uint64_t BigEndian(int width) {
    uint64_t value = 0;
    for (const std::byte b : Take(static_cast<uint64_t>(width))) {
      value = value << 8 | static_cast<uint64_t>(b);
    }
    return value;
  }

  // Adds a node; gives how many values follow that belong to it.
  uint64_t ScanOne() {
    if (nodes_->size() >= kMaxWireValues) {
      throw WireError(fmt::format("a frame of more than {} values", kMaxWireValues));
    }
    WireNode& node = nodes_->emplace_back();
    const auto byte = static_cast<unsigned>(Take(1)[0]);
    const auto integer = [&](int64_t value) {
      node.kind = WireKind::kInteger;
      node.integer = value;
      return uint64_t{0};
    };
    const auto number = [&](double value) {
      node.kind = WireKind::kFloat;
      node.number = value;
      return uint64_t{0};
    };
    const auto bytes = [&](WireKind kind, uint64_t size) {
      node.kind = kind;
      node.bytes = Take(size);
      return uint64_t{0};
    };
    const auto container = [&](WireKind kind, uint64_t count) {
      const uint64_t inside = kind == WireKind::kMap ? 2 * count : count;
      // Each value has a byte at least.
      if (inside > rest_.size()) throw WireError("no MessagePack value: it ends early");
      node.kind = kind;
      node.count = static_cast<uint32_t>(count);
      return inside;
    };
    if (byte < 0x80) return integer(byte);
    if (byte < 0x90) return container(WireKind::kMap, byte & 0xf);
    if (byte < 0xa0) return container(WireKind::kArray, byte & 0xf);
    if (byte < 0xc0) return bytes(WireKind::kText, byte & 0x1f);
    if (byte >= 0xe0) return integer(static_cast<int8_t>(byte));
    switch (byte) {
      case 0xc0:
        return 0;
      case 0xc2:
      case 0xc3:
        node.kind = WireKind::kBool;
        node.integer = byte == 0xc3 ? 1 : 0;
        return 0;
      case 0xc4:
        return bytes(WireKind::kBytes, BigEndian(1));
      case 0xc5:
        return bytes(WireKind::kBytes, BigEndian(2));
      case 0xc6:
        return bytes(WireKind::kBytes, BigEndian(4));
      case 0xc7:
        return bytes(WireKind::kOther, BigEndian(1) + 1);
      case 0xc8:
        return bytes(WireKind::kOther, BigEndian(2) + 1);
      case 0xc9:
        return bytes(WireKind::kOther, BigEndian(4) + 1);
      case 0xca:
        return number(std::bit_cast<float>(static_cast<uint32_t>(BigEndian(4))));
      case 0xcb:
        return number(std::bit_cast<double>(BigEndian(8)));
      case 0xcc:
        return integer(static_cast<int64_t>(BigEndian(1)));
      case 0xcd:
        return integer(static_cast<int64_t>(BigEndian(2)));
      case 0xce:
        return integer(static_cast<int64_t>(BigEndian(4)));
      case 0xcf: {
        const uint64_t value = BigEndian(8);
        if (value <= INT64_MAX) return integer(static_cast<int64_t>(value));
        node.kind = WireKind::kOther;
        return 0;
      }
      case 0xd0:
        return integer(static_cast<int8_t>(BigEndian(1)));
      case 0xd1:
        return integer(static_cast<int16_t>(BigEndian(2)));
      case 0xd2:
        return integer(static_cast<int32_t>(BigEndian(4)));
      case 0xd3:
        return integer(static_cast<int64_t>(BigEndian(8)));
      case 0xd4:
        return bytes(WireKind::kOther, 2);
      case 0xd5:
        return bytes(WireKind::kOther, 3);
      case 0xd6:
        return bytes(WireKind::kOther, 5);
      case 0xd7:
        return bytes(WireKind::kOther, 9);
      case 0xd8:
        return bytes(WireKind::kOther, 17);
      case 0xd9:
        return bytes(WireKind::kText, BigEndian(1));
      case 0xda:
        return bytes(WireKind::kText, BigEndian(2));
      case 0xdb:
        return bytes(WireKind::kText, BigEndian(4));
      case 0xdc:
        return container(WireKind::kArray, BigEndian(2));
      case 0xdd:
        return container(WireKind::kArray, BigEndian(4));
      case 0xde:
        return container(WireKind::kMap, BigEndian(2));
      case 0xdf:
        return container(WireKind::kMap, BigEndian(4));
      default:
        throw WireError(fmt::format("no MessagePack value: it has a byte {:#x}", byte));
    }
  }

  std::span<const std::byte> rest_;
  std::vector<WireNode>* nodes_;
};

}  // namespace

bool WireArray::HasExtents(std::span<const int64_t> wanted) const {
  return std::equal(extents, extents + rank, wanted.begin(), wanted.end());
}

void WireValue::Expect(WireKind wanted, std::string_view what) const {
  if (kind() == wanted) return;
  throw WireError(fmt::format("{} is {} where {} belongs", what, NameOf(kind()), NameOf(wanted)));
}

bool WireValue::AsBool(std::string_view what) const {
  Expect(WireKind::kBool, what);
  return node().integer != 0;
}

int64_t WireValue::AsInteger(std::string_view what) const {
  Expect(WireKind::kInteger, what);
  return node().integer;
}

int64_t WireValue::AsCount(std::string_view what) const {
  const int64_t value = AsInteger(what);
  if (value < 0) throw WireError(fmt::format("{} is {}, below 0", what, value));
  return value;
}

double WireValue::AsFloat(std::string_view what) const {
  if (kind() == WireKind::kInteger) return static_cast<double>(node().integer);
  Expect(WireKind::kFloat, what);
  return node().number;
}

std::string_view WireValue::AsText(std::string_view what) const {
  Expect(WireKind::kText, what);
  return {reinterpret_cast<const char*>(node().bytes.data()), node().bytes.size()};
}

std::span<const std::byte> WireValue::AsBytes(std::string_view what) const {
  Expect(WireKind::kBytes, what);
  return node().bytes;
}

size_t WireValue::CountEntries(std::string_view what) const {
  Expect(WireKind::kArray, what);
  return node().count;
}

std::vector<WireValue> WireValue::Entries(std::string_view what) const {
  std::vector<WireValue> entries;
  entries.reserve(CountEntries(what));
  uint32_t at = at_ + 1;
  for (uint32_t i = 0; i < node().count; ++i) {
    entries.emplace_back(nodes_, at);
    at = (*nodes_)[at].end;
  }
  return entries;
}

std::vector<int64_t> WireValue::AsIntegers(std::string_view what) const {
  std::vector<int64_t> values;
  for (const WireValue& entry : Entries(what)) values.push_back(entry.AsInteger(what));
  return values;
}

std::vector<std::string> WireValue::AsTexts(std::string_view what) const {
  std::vector<std::string> values;
  for (const WireValue& entry : Entries(what)) values.emplace_back(entry.AsText(what));
  return values;
}

WireArray WireValue::AsArray(std::string_view what) const {
  if (CountEntries(what) != 3) {
    throw WireError(fmt::format("{} is no array [type, extents, bytes]", what));
  }
  const WireValue type(nodes_, at_ + 1);
  const WireValue extents(nodes_, type.node().end);
  const WireValue bytes(nodes_, extents.node().end);
  WireArray array;
  const std::string_view name = type.AsText(what);
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype || ShortName(*dtype) != name) {
    throw WireError(fmt::format("{} has an unknown type '{}'", what, CleanText(name, 40)));
  }
  array.dtype = *dtype;
  array.rank = extents.CountEntries(what);
  if (array.rank > WireArray::kMaxRank) {
    throw WireError(fmt::format("{} has {} axes, at most {} are allowed", what, array.rank,
                                WireArray::kMaxRank));
  }
  array.bytes = bytes.AsBytes(what);
  // Extents of an array without elements are bounded too, so that nobody's product of some
  // overflows.
  constexpr int64_t kMostElements = int64_t{1} << 48;
  const auto bytes_there = static_cast<int64_t>(array.bytes.size());
  int64_t product = 1;
  bool is_empty = false;
  for (size_t i = 0; i < array.rank; ++i) {
    const WireValue entry(nodes_, extents.at_ + 1 + static_cast<uint32_t>(i));
    const int64_t extent = entry.AsInteger(what);
    if (extent < 0) throw WireError(fmt::format("{} has the extent {}", what, extent));
    array.extents[i] = extent;
    is_empty = is_empty || extent == 0;
    if (extent > kMostElements / product) {
      throw WireError(fmt::format("{} has extents whose product no frame holds", what));
    }
    product *= std::max<int64_t>(1, extent);
  }
  const int64_t wanted = is_empty ? 0 : product * static_cast<int64_t>(SizeInBytes(array.dtype));
  if (wanted != bytes_there) {
    throw WireError(
        fmt::format("{} has {} bytes where its extents need {}", what, bytes_there, wanted));
  }
  return array;
}

std::optional<WireValue> WireValue::Find(std::string_view key) const {
  Expect(WireKind::kMap, "what should have keys");
  uint32_t at = at_ + 1;
  for (uint32_t i = 0; i < node().count; ++i) {
    const WireNode& name = (*nodes_)[at];
    const WireValue value(nodes_, at + 1);
    if (std::string_view(reinterpret_cast<const char*>(name.bytes.data()), name.bytes.size()) ==
        key) {
      return value.IsNil() ? std::nullopt : std::optional(value);
    }
    at = value.node().end;
  }
  return std::nullopt;
}

WireValue WireValue::Get(std::string_view key) const {
  const std::optional<WireValue> value = Find(key);
  if (!value) throw WireError(fmt::format("'{}' is missing", key));
  return *value;
}

WireValue WireMessage::Read(std::span<const std::byte> bytes) {
  MessagePackScanner(bytes, &nodes_).Scan();
  if (nodes_[0].kind != WireKind::kMap) {
    throw WireError(fmt::format("the frame holds {}, no map", NameOf(nodes_[0].kind)));
  }
  return {&nodes_, 0};
}

std::string CleanText(std::string_view text, size_t most) {
  std::string clean(text.substr(0, most));
  for (char& c : clean) {
    if (c == '\n' || c == '\t' || c == '\r') {
      c = ' ';
    } else if (c < ' ' || c > '~') {
      c = '?';
    }
  }
  if (text.size() > most) clean += "...";
  return clean;
}

}  // namespace kvcheck
