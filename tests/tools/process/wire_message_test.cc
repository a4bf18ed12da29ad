// MessagePack as kvcheck writes and reads it, beside a library that does the same.

#include "tools/process/wire_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tools/process/message_frame.h"
#include "tools/process/wire_writer.h"

namespace kvcheck {
namespace {

using nlohmann::json;

std::span<const std::byte> AsBytes(const std::vector<uint8_t>& bytes) {
  return std::as_bytes(std::span(bytes));
}

// The value as the library holds it; kOther is a null here.
json ToJson(const WireValue& value) {
  switch (value.kind()) {
    case WireKind::kNil:
    case WireKind::kOther:
      return nullptr;
    case WireKind::kBool:
      return value.AsBool("");
    case WireKind::kInteger:
      return value.AsInteger("");
    case WireKind::kFloat:
      return value.AsFloat("");
    case WireKind::kText:
      return std::string(value.AsText(""));
    case WireKind::kBytes: {
      const std::span<const std::byte> bytes = value.AsBytes("");
      const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
      return json::binary({data, data + bytes.size()});
    }
    case WireKind::kArray: {
      json array = json::array();
      for (const WireValue& entry : value.Entries("")) array.push_back(ToJson(entry));
      return array;
    }
    case WireKind::kMap: {
      json map = json::object();
      value.ForEach("", [&](std::string_view key, const WireValue& entry) {
        map[std::string(key)] = ToJson(entry);
      });
      return map;
    }
  }
  return nullptr;
}

json Drawn(std::mt19937_64& random, int depth) {
  const auto below = [&](uint64_t n) { return random() % n; };
  switch (below(depth > 3 ? 6 : 8)) {
    case 0:
      return nullptr;
    case 1:
      return below(2) == 0;
    case 2:
      return static_cast<int64_t>(random() >> below(64));
    case 3:
      return -static_cast<int64_t>(random() >> (1 + below(63)));
    case 4:
      return std::ldexp(static_cast<double>(random()), -static_cast<int>(below(80)));
    case 5:
      if (below(2) == 0) return std::string(below(below(8) == 0 ? 70'000 : 300), 'x');
      return json::binary(std::vector<uint8_t>(below(below(8) == 0 ? 70'000 : 300), 7));
    case 6: {
      json array = json::array();
      for (uint64_t n = below(below(8) == 0 ? 300 : 20); n > 0; --n) {
        array.push_back(Drawn(random, depth + 1));
      }
      return array;
    }
    default: {
      json map = json::object();
      for (uint64_t n = below(20); n > 0; --n) {
        map["key " + std::to_string(n)] = Drawn(random, depth + 1);
      }
      return map;
    }
  }
}

TEST(WireMessage, ReadsWhatALibraryWrites) {
  std::mt19937_64 random(1);
  WireMessage message;
  for (int i = 0; i < 500; ++i) {
    json value = json::object();
    value["a"] = Drawn(random, 0);
    value["b"] = Drawn(random, 0);
    const std::vector<uint8_t> bytes = json::to_msgpack(value);
    EXPECT_EQ(ToJson(message.Read(AsBytes(bytes))), value) << i;
  }
}

// Damaged frames end in a value or in an error; a sanitizer looks on.
TEST(WireMessage, SurvivesDamage) {
  std::mt19937_64 random(2);
  WireMessage message;
  int values = 0;
  int errors = 0;
  for (int i = 0; i < 20'000; ++i) {
    json value = json::object();
    value["states"] = {{{"rows", 3}, {"k", {{"f32", {1, 2, 3}, json::binary({1, 2, 3, 4})}}}}};
    std::vector<uint8_t> bytes = json::to_msgpack(value);
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    try {
      const WireValue read = message.Read(AsBytes(bytes));
      ToJson(read);
      read.Get("states").Entries("'states'").at(0).Get("k").AsArray("'k'");
      ++values;
    } catch (const WireError&) {
      ++errors;
    } catch (const std::out_of_range&) {
      ++errors;  // of at(): there are no states
    }
  }
  EXPECT_GT(errors, 10'000);
  EXPECT_EQ(values + errors, 20'000);
}

TEST(WireWriter, WritesWhatALibraryReads) {
  WireWriter writer;
  for (int round = 0; round < 2; ++round) {
    writer.StartFrame();
    writer.StartMap();
    json wanted = json::object();
    std::vector<int64_t> numbers;
    for (int bits = 0; bits < 63; ++bits) {
      for (const int64_t off : {-1, 0, 1}) {
        numbers.push_back((int64_t{1} << bits) + off);
        numbers.push_back(-(int64_t{1} << bits) + off);
      }
    }
    numbers.push_back(INT64_MIN);
    numbers.push_back(INT64_MAX);
    writer.Key("numbers");
    writer.Integers(numbers);
    wanted["numbers"] = numbers;
    for (const size_t size : {0u, 1u, 31u, 32u, 255u, 256u, 65535u, 65536u}) {
      const std::string key = "size " + std::to_string(size);
      writer.Key(key);
      writer.StartArray(2);
      writer.Text(std::string(size, 't'));
      writer.Bytes(std::vector<std::byte>(size, std::byte{9}));
      wanted[key] = {std::string(size, 't'), json::binary(std::vector<uint8_t>(size, 9))};
    }
    writer.Key("rest");
    writer.StartArray(5);
    writer.Nil();
    writer.Bool(true);
    writer.Bool(false);
    writer.Float(-0.1);
    writer.Unsigned(~uint64_t{0});
    wanted["rest"] = {nullptr, true, false, -0.1, ~uint64_t{0}};
    writer.Key("array");
    const int64_t extents[] = {2, 0, 3};
    EXPECT_TRUE(writer.Array(DType::kFloat32, extents).empty());
    wanted["array"] = {"f32", {2, 0, 3}, json::binary({})};
    writer.EndMap();
    const std::span<const std::byte> frame = writer.FinishFrame();
    FrameHeader header;
    std::copy_n(frame.begin(), header.size(), header.begin());
    ASSERT_EQ(DecodeFrameHeader(header), frame.size() - header.size());
    const auto* data = reinterpret_cast<const uint8_t*>(frame.data());
    EXPECT_EQ(json::from_msgpack(data + header.size(), data + frame.size()), wanted);
  }
}

// The bytes in tools/process/protocol.md are what they are said to be.
TEST(WireMessage, IsAsTheProtocolShowsIt) {
  std::ifstream file(std::string(KVCHECK_SOURCE_DIR) + "/tools/process/protocol.md");
  std::vector<std::vector<uint8_t>> frames;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("    ")) continue;
    std::istringstream words(line);
    std::vector<uint8_t> bytes;
    for (std::string word; words >> word;) {
      if (word.size() != 2 || word.find_first_not_of("0123456789abcdef") != std::string::npos)
        break;
      bytes.push_back(static_cast<uint8_t>(std::stoi(word, nullptr, 16)));
    }
    if (bytes.empty()) continue;
    const bool starts = bytes.size() >= 8 && bytes[1] == 0 && bytes[7] == 0;
    if (starts) frames.emplace_back();
    ASSERT_FALSE(frames.empty()) << line;
    frames.back().insert(frames.back().end(), bytes.begin(), bytes.end());
  }
  ASSERT_EQ(frames.size(), 2u);
  const json wanted[] = {{{"do", "trim"}, {"cache", 3}, {"count", 2}}, {{"trimmed", 2}}};
  for (size_t i = 0; i < frames.size(); ++i) {
    FrameHeader header;
    std::copy_n(AsBytes(frames[i]).begin(), header.size(), header.begin());
    ASSERT_EQ(DecodeFrameHeader(header), frames[i].size() - header.size());
    WireMessage message;
    EXPECT_EQ(ToJson(message.Read(AsBytes(frames[i]).subspan(header.size()))), wanted[i]);
  }
}

TEST(WireArrays, FitTheirBytes) {
  const auto read = [](const json& array) {
    const std::vector<uint8_t> bytes = json::to_msgpack({{"a", array}});
    WireMessage message;
    return message.Read(AsBytes(bytes)).Get("a").AsArray("'a'").rank;
  };
  const auto binary = [](size_t size) { return json::binary(std::vector<uint8_t>(size)); };
  EXPECT_EQ(read({"f32", {2, 3}, binary(24)}), 2u);
  EXPECT_EQ(read({"b8", json::array(), binary(1)}), 0u);
  EXPECT_EQ(read({"bf16", {7, 0, 9}, binary(0)}), 3u);
  for (const json& wrong : std::vector<json>{{"f32", {2, 3}, binary(23)},
                                             {"f32", {2, 3}, binary(0)},
                                             {"f32", {0, 3}, binary(4)},
                                             {"f32", {-2, -3}, binary(24)},
                                             {"f32", {2.0, 3}, binary(24)},
                                             {"f32", {2, 3}, "bytes"},
                                             {"float32", {2, 3}, binary(24)},
                                             {"f32", 6, binary(24)},
                                             {"f32", {{2, 3}}, binary(24)},
                                             {"f32", {2, 3}},
                                             {"f32", {INT64_MAX, INT64_MAX, 2}, binary(24)},
                                             {"f32", {INT64_MAX, 0}, binary(0)},
                                             {"f32", {1, 1, 1, 1, 1, 1, 1, 1, 6}, binary(24)},
                                             7}) {
    EXPECT_THROW(read(wrong), WireError) << wrong.dump();
  }
}

TEST(CleanText, IsPrintable) {
  EXPECT_EQ(CleanText("a\nb\x01\xff~", 10), "a b??~");
  EXPECT_EQ(CleanText("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace kvcheck
