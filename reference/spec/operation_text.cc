#include "reference/spec/operation_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.h"
#include "reference/spec/white_space.h"

namespace kvcheck {
namespace {

// Where an operation ends: at a semicolon with white space behind it.
size_t EndOfOperation(std::string_view text, size_t begin) {
  for (size_t at = text.find(';', begin); at != std::string_view::npos;
       at = text.find(';', at + 1)) {
    if (at + 1 == text.size() || IsWhiteSpace(text[at + 1])) return at;
  }
  return text.size();
}

}  // namespace

void ReadOperations(std::string_view text, size_t most, const std::function<void(Piece)>& setup,
                    const std::function<void(Piece)>& operation) {
  bool has_setup = false;
  size_t count = 0;
  const auto read_line = [&](Piece line) {
    size_t begin = 0;
    while (true) {
      const size_t end = EndOfOperation(line.text, begin);
      const Piece piece = Stripped({line.text.substr(begin, end - begin), line.whole});
      if (!has_setup) {
        setup(piece);
        has_setup = true;
      } else {
        if (count++ == most) piece.Refuse(fmt::format("more than {} operations", most));
        operation(piece);
      }
      if (end == line.text.size()) return;
      begin = end + 1;
    }
  };
  if (text.ends_with('\n')) text.remove_suffix(1);
  size_t begin = 0;
  for (int64_t number = 1;; ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    try {
      read_line(WholeLine(text.substr(begin, end - begin)));
    } catch (const Error& error) {
      if (begin == 0 && end == text.size()) throw;
      throw Error(error.code(), error.message(),
                  fmt::format("line {}, {}", number, error.context()));
    }
    if (end == text.size()) break;
    begin = end + 1;
  }
}

Fields SetupFields(Piece line, std::string_view kind, std::string_view example,
                   std::string_view known_keys) {
  Piece rest = line;
  if (TakeWord(&rest).text != kind) {
    line.Refuse(fmt::format("expected {} and its fields", kind));
  }
  if (rest.text.empty()) rest.Refuse(fmt::format("expected fields, as: {}", example));
  return Fields(rest, known_keys);
}

int ParseStateKey(Piece piece, int count) {
  if (piece.text.size() != 2 || piece.text[0] != 's' || piece.text[1] < '0' ||
      piece.text[1] >= '0' + count) {
    piece.Refuse(
        fmt::format("'{}' is not a saved state; states are s0 to s{}", piece.text, count - 1));
  }
  return piece.text[1] - '0';
}

DType ParseVectorType(Piece piece) {
  const auto dtype = ParseDType(piece.text);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    piece.Refuse("expected f32, f16 or bf16");
  }
  return *dtype;
}

Words::Words(Piece line) : line_(line), words_(SplitWords(line)) {
  for (size_t i = 0; i < line.text.size(); ++i) {
    const auto c = static_cast<unsigned char>(line.text[i]);
    if ((c < 0x20 || c > 0x7e) && !IsWhiteSpace(line.text[i])) {
      Piece{line.text.substr(i, 1), line.whole}.Refuse(
          fmt::format("byte 0x{:02x} is not printable ASCII", c));
    }
  }
  if (words_.empty()) line.Refuse("an operation is missing");
}

Piece Words::Take(std::string_view what) {
  if (next_ == words_.size()) End().Refuse(fmt::format("{} is missing", what));
  return words_[next_++];
}

bool Words::TakeIfAny(Piece* word) {
  if (next_ == words_.size()) return false;
  *word = Take("");
  return true;
}

bool Words::TakeIfWord(std::string_view word) {
  if (next_ == words_.size() || words_[next_].text != word) return false;
  ++next_;
  return true;
}

void Words::TakeArrow() {
  const Piece word = Take("-> and a name");
  if (word.text != "->") word.Refuse("expected ->");
}

Fields Words::TakeFields(std::string_view known_keys) {
  if (next_ == words_.size()) return Fields(End(), known_keys);
  const size_t begin = static_cast<size_t>(words_[next_].text.data() - line_.text.data());
  next_ = words_.size();
  return Fields({line_.text.substr(begin), line_.whole}, known_keys);
}

void Words::Finish() {
  if (next_ == words_.size()) return;
  words_[next_].Refuse("nothing may follow here");
}

}  // namespace kvcheck
