// White space in the texts of the project: any of it separates fields and words.

#ifndef REFERENCE_SPEC_WHITE_SPACE_H_
#define REFERENCE_SPEC_WHITE_SPACE_H_

#include <algorithm>
#include <string_view>
#include <vector>

#include "reference/spec/text.h"

namespace kvcheck {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";

inline bool IsWhiteSpace(char c) { return kWhiteSpace.find(c) != std::string_view::npos; }

// Without white space at either end.
inline Piece Stripped(Piece piece) {
  while (!piece.text.empty() && IsWhiteSpace(piece.text.front())) piece.text.remove_prefix(1);
  while (!piece.text.empty() && IsWhiteSpace(piece.text.back())) piece.text.remove_suffix(1);
  return piece;
}

// The first word of a piece, and what follows the white space behind it.
inline Piece TakeWord(Piece* piece) {
  *piece = Stripped(*piece);
  const size_t end = std::min(piece->text.find_first_of(kWhiteSpace), piece->text.size());
  const Piece word = {piece->text.substr(0, end), piece->whole};
  piece->text.remove_prefix(end);
  *piece = Stripped(*piece);
  return word;
}

// Pieces between white space; none is empty.
inline std::vector<Piece> SplitWords(Piece piece) {
  std::vector<Piece> words;
  for (piece = Stripped(piece); !piece.text.empty();) words.push_back(TakeWord(&piece));
  return words;
}

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_WHITE_SPACE_H_
