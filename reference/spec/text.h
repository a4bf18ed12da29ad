// The small lexical layer under every text of the project (cases, plans, profiles, formats, masks):
// one line of `key=value` fields separated by single spaces. Nothing is skipped: an unknown key, a
// key given twice, a stray character or a number with rest is refused with its column.

#ifndef REFERENCE_SPEC_TEXT_H_
#define REFERENCE_SPEC_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

// A piece of a text that remembers where it stands, for error messages.
struct Piece {
  std::string_view text;
  std::string_view whole;  // the line that it is part of

  size_t Column() const { return static_cast<size_t>(text.data() - whole.data()) + 1; }
  [[noreturn]] void Refuse(std::string_view reason) const;
};

Piece WholeLine(std::string_view line);

// The text where it is short; else its beginning and its end, with the number of bytes left out
// between them. Messages show what others wrote, which may be a file given by mistake.
std::string Shortened(std::string_view text, size_t most_bytes);

// Pieces between separators; "a::b" gives an empty piece, "" gives one empty piece.
std::vector<Piece> Split(Piece piece, char separator);

struct Field {
  Piece key;
  Piece value;
};

// Reads fields in any order and refuses what nobody took.
class Fields {
 public:
  // known_keys: all that the text may have, separated by ", ".
  // Errors: kParse on a token without '=', on a repeated or unknown key, on leading, trailing or
  // double spaces and on control characters. A mistyped key is said before the one that it leaves
  // missing.
  Fields(Piece line, std::string_view known_keys);

  bool Has(std::string_view key) const;
  // The value, marked as taken. Errors: kParse when the key is absent.
  Piece Take(std::string_view key);
  // True and the value, or false when the key is absent.
  bool TakeIf(std::string_view key, Piece* value);
  // Errors: kParse naming the first field that was not taken.
  void Finish() const;

 private:
  [[noreturn]] void RefuseKey(const Field& field) const;

  Piece line_;
  std::string_view known_keys_;
  std::vector<Field> fields_;
  std::vector<bool> taken_;
};

// Errors of all three: kParse when the piece is not wholly such a number, or out of range.
int64_t ParseInt(Piece piece, int64_t lowest, int64_t highest);
uint64_t ParseUnsigned(Piece piece);
// Decimal, or a power of two written 2^-23. Finite only.
double ParseReal(Piece piece);

// Shortest text that ParseReal reads back as the same double; exact powers of two other than small
// integers print as 2^k.
std::string PrintReal(double value);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TEXT_H_
