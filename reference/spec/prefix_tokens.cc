#include "reference/spec/prefix_tokens.h"

#include <fmt/format.h>

#include <array>

#include "reference/spec/prefix_limits.h"

namespace kvcheck {
namespace {

namespace limits = prefix_limits;

bool IsPlainByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-/@:").find(c) != std::string_view::npos;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Ids that are drawn: below 2^17, as a vocabulary has them. Stands here so that a text means the
// same tokens whoever reads it; the output function of SplitMix64 over a counter.
int32_t DrawnToken(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<int32_t>((z ^ (z >> 31)) >> 47);
}

}  // namespace

TokenRuns ParseTokenRuns(Piece piece) {
  TokenRuns runs;
  int64_t count = 0;
  for (const Piece& part : Split(piece, ',')) {
    TokenRun run;
    run.drawn = part.text.starts_with('r');
    const Piece rest = {part.text.substr(run.drawn ? 1 : 0), part.whole};
    const size_t mark = rest.text.find(run.drawn ? ':' : 'x');
    const Piece value = {rest.text.substr(0, mark), part.whole};
    run.value = ParseInt(value, 0, limits::kMaxNumber);
    if (mark != std::string_view::npos) {
      run.count = ParseInt({rest.text.substr(mark + 1), part.whole}, 1, limits::kMaxTokens);
    } else if (run.drawn) {
      part.Refuse("drawn tokens are rSEED:COUNT");
    }
    count += run.count;
    if (count > limits::kMaxTokens) {
      piece.Refuse(fmt::format("more than {} tokens", limits::kMaxTokens));
    }
    runs.push_back(run);
  }
  return runs;
}

int64_t CountTokens(const TokenRuns& runs) {
  int64_t count = 0;
  for (const TokenRun& run : runs) count += run.count;
  return count;
}

std::string Print(const TokenRuns& runs) {
  std::string text;
  for (const TokenRun& run : runs) {
    if (!text.empty()) text += ',';
    if (run.drawn) {
      text += fmt::format("r{}:{}", run.value, run.count);
    } else {
      text += fmt::format("{}", run.value);
      if (run.count != 1) text += fmt::format("x{}", run.count);
    }
  }
  return text;
}

std::vector<int32_t> Expand(const TokenRuns& runs) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(CountTokens(runs)));
  for (const TokenRun& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      tokens.push_back(run.drawn
                           ? DrawnToken(static_cast<uint64_t>(run.value), static_cast<uint64_t>(i))
                           : static_cast<int32_t>(run.value));
    }
  }
  return tokens;
}

TokenRuns RunsOf(const std::vector<int32_t>& tokens) {
  TokenRuns runs;
  for (const int32_t token : tokens) {
    if (!runs.empty() && runs.back().value == token) {
      ++runs.back().count;
    } else {
      runs.push_back({token, 1, false});
    }
  }
  return runs;
}

std::string EncodePercent(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (IsPlainByte(c)) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string DecodePercent(Piece piece) {
  std::string decoded;
  for (size_t i = 0; i < piece.text.size(); ++i) {
    const char c = piece.text[i];
    if (c != '%') {
      if (!IsPlainByte(c)) {
        Piece{piece.text.substr(i, 1), piece.whole}.Refuse(
            fmt::format("'{}' is written %{:02X} here", c, static_cast<unsigned char>(c)));
      }
      decoded += c;
      continue;
    }
    const bool whole = i + 2 < piece.text.size();
    const int high = whole ? HexDigit(piece.text[i + 1]) : -1;
    const int low = whole ? HexDigit(piece.text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      Piece{piece.text.substr(i, 1), piece.whole}.Refuse(
          "% is followed by two hexadecimal digits, as %2F");
    }
    const char byte = static_cast<char>(high * 16 + low);
    if (IsPlainByte(byte)) {
      Piece{piece.text.substr(i, 1), piece.whole}.Refuse(
          fmt::format("'{}' is written as it is", byte));
    }
    decoded += byte;
    i += 2;
  }
  if (decoded.size() > limits::kMaxIdentityBytes) {
    piece.Refuse(fmt::format("more than {} bytes", limits::kMaxIdentityBytes));
  }
  return decoded;
}

std::string_view IdentityField(int field) {
  constexpr std::array<std::string_view, kIdentityFields> kNames = {"model", "salt", "adapter",
                                                                    "version", "image"};
  return kNames[static_cast<size_t>(field)];
}

bool HasField(const PrefixIdentity& who, int field) {
  switch (field) {
    case 0:
      return who.model.has_value();
    case 1:
      return who.salt.has_value();
    case 2:
      return who.adapter.has_value();
    case 3:
      return who.version != 0;
    default:
      return who.image.has_value();
  }
}

std::string Print(const PrefixIdentity& who) {
  std::string text;
  const auto add = [&](int field, const std::string& value) {
    if (!HasField(who, field)) return;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", IdentityField(field), value);
  };
  add(0, EncodePercent(who.model.value_or("")));
  add(1, EncodePercent(who.salt.value_or("")));
  add(2, EncodePercent(who.adapter.value_or("")));
  add(3, fmt::format("{}", who.version));
  add(4, EncodePercent(who.image.value_or("")));
  return text.empty() ? "nobody" : text;
}

}  // namespace kvcheck
