#include "reference/spec/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/white_space.h"

namespace kvcheck {

namespace {

// Of a reason, which may quote the text and lists all that is known.
constexpr size_t kMostReasonBytes = 800;
// Of the text around its first offending character.
constexpr size_t kShownBefore = 80;
constexpr size_t kShownAfter = 120;

// The text around a place.
std::string Around(std::string_view text, size_t place) {
  if (text.size() <= 2 * (kShownBefore + kShownAfter)) return std::string(text);
  const size_t begin = place > kShownBefore ? place - kShownBefore : 0;
  const size_t end = std::min(text.size(), place + kShownAfter);
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", text.substr(begin, end - begin),
                     end < text.size() ? fmt::format("... of {} bytes", text.size()) : "");
}

}  // namespace

std::string Shortened(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  const size_t end = most_bytes / 2;
  const size_t begin = most_bytes - end;
  return fmt::format("{} ...({} bytes)... {}", text.substr(0, begin), text.size() - most_bytes,
                     text.substr(text.size() - end));
}

void Piece::Refuse(std::string_view reason) const {
  ThrowParseError(Around(whole, Column() - 1), Column(), Shortened(reason, kMostReasonBytes));
}

Piece WholeLine(std::string_view line) { return {line, line}; }

std::vector<Piece> Split(Piece piece, char separator) {
  std::vector<Piece> parts;
  size_t begin = 0;
  for (size_t i = 0; i <= piece.text.size(); ++i) {
    if (i == piece.text.size() || piece.text[i] == separator) {
      parts.push_back({piece.text.substr(begin, i - begin), piece.whole});
      begin = i + 1;
    }
  }
  return parts;
}

Fields::Fields(Piece line, std::string_view known_keys) : line_(line), known_keys_(known_keys) {
  for (size_t i = 0; i < line.text.size(); ++i) {
    const auto c = static_cast<unsigned char>(line.text[i]);
    if ((c < 0x20 || c > 0x7e) && !IsWhiteSpace(line.text[i])) {
      Piece{line.text.substr(i, 1), line.whole}.Refuse(
          fmt::format("byte 0x{:02x} is not printable ASCII", c));
    }
  }
  for (const Piece& token : SplitWords(line)) {
    const size_t equals = token.text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      token.Refuse(fmt::format("expected key=value, got '{}'", token.text));
    }
    const Field field = {{token.text.substr(0, equals), token.whole},
                         {token.text.substr(equals + 1), token.whole}};
    if (Has(field.key.text)) {
      field.key.Refuse(fmt::format("'{}' is given twice", field.key.text));
    }
    fields_.push_back(field);
    taken_.push_back(false);
  }
  const std::vector<std::string> known = ListedNames(known_keys_);
  for (const Field& field : fields_) {
    if (std::find(known.begin(), known.end(), field.key.text) == known.end()) RefuseKey(field);
  }
}

void Fields::RefuseKey(const Field& field) const {
  const std::string_view key = field.key.text;
  const std::vector<std::string> known = ListedNames(known_keys_);
  const bool has_mask = std::find(known.begin(), known.end(), "mask") != known.end();
  const bool is_window = key.find("window") != std::string_view::npos;
  if (has_mask && (is_window || key == "causal" || key == "is_causal")) {
    const bool is_number = !field.value.text.empty() && field.value.text.find_first_not_of(
                                                            "0123456789") == std::string_view::npos;
    field.key.Refuse(fmt::format(
        "unknown key '{}': a term of the mask says it: {}", key,
        is_window
            ? fmt::format("mask=causal_bottom_right+window:{} (a query sees itself and the "
                          "keys before it, {} in all)",
                          is_number ? field.value.text : "8", is_number ? field.value.text : "8")
            : "mask=causal_bottom_right (the last query sees every key, as the kernels of "
              "LLMs mean it) or mask=causal_top_left (the first query sees the first key)"));
  }
  field.key.Refuse(fmt::format("unknown key '{}'{}; known: {}", field.key.text,
                               DidYouMean(field.key.text, known_keys_), known_keys_));
}

bool Fields::Has(std::string_view key) const {
  for (const Field& field : fields_) {
    if (field.key.text == key) return true;
  }
  return false;
}

bool Fields::TakeIf(std::string_view key, Piece* value) {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].key.text == key) {
      taken_[i] = true;
      *value = fields_[i].value;
      return true;
    }
  }
  return false;
}

Piece Fields::Take(std::string_view key) {
  Piece value;
  if (TakeIf(key, &value)) return value;
  Piece{line_.text.substr(line_.text.size()), line_.whole}.Refuse(
      fmt::format("'{}=' is missing", key));
}

void Fields::Finish() const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (!taken_[i]) RefuseKey(fields_[i]);
  }
}

namespace {

template <typename T>
T ParseWhole(Piece piece, const char* what) {
  T value{};
  const char* end = piece.text.data() + piece.text.size();
  const auto [rest, error] = std::from_chars(piece.text.data(), end, value);
  if (error == std::errc::result_out_of_range && rest == end) {
    piece.Refuse(fmt::format("'{}' is out of range", piece.text));
  }
  if (error != std::errc() || rest != end) {
    piece.Refuse(fmt::format("'{}' is not {}", piece.text, what));
  }
  return value;
}

}  // namespace

int64_t ParseInt(Piece piece, int64_t lowest, int64_t highest) {
  const auto value = ParseWhole<int64_t>(piece, "an integer");
  if (value < lowest || value > highest) {
    piece.Refuse(fmt::format("{} is outside {}..{}", value, lowest, highest));
  }
  return value;
}

uint64_t ParseUnsigned(Piece piece) {
  return ParseWhole<uint64_t>(piece, "a non-negative integer");
}

double ParseReal(Piece piece) {
  if (piece.text.substr(0, 2) == "2^") {
    const int64_t exponent = ParseInt({piece.text.substr(2), piece.whole}, -1074, 1023);
    return std::ldexp(1.0, static_cast<int>(exponent));
  }
  const auto value = ParseWhole<double>(piece, "a number");
  if (!std::isfinite(value)) piece.Refuse("the number must be finite");
  return value;
}

std::string PrintReal(double value) {
  int exponent = 0;
  if (value > 0 && std::frexp(value, &exponent) == 0.5 && (exponent < -9 || exponent > 17)) {
    return fmt::format("2^{}", exponent - 1);
  }
  return fmt::format("{}", value);
}

}  // namespace kvcheck
