// What texts of operations share: a setup and operations, one a line, or on one line with "; "
// between; and the words of one operation.

#ifndef REFERENCE_SPEC_OPERATION_TEXT_H_
#define REFERENCE_SPEC_OPERATION_TEXT_H_

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Calls setup with the first piece and operation with each other one, at most `most` of them. A
// line end after the last one is allowed.
// Errors: kParse; those of the calls, with the line where there are several.
void ReadOperations(std::string_view text, size_t most, const std::function<void(Piece)>& setup,
                    const std::function<void(Piece)>& operation);

// The fields of a setup that begins with the kind's name. Errors: kParse, with an example of it.
Fields SetupFields(Piece line, std::string_view kind, std::string_view example,
                   std::string_view known_keys);

// A saved state: s0 to s(count - 1).
int ParseStateKey(Piece piece, int count);
// The type of vectors: f32, f16 or bf16.
DType ParseVectorType(Piece piece);

// The words of one operation, taken from left to right.
class Words {
 public:
  // Errors: kParse where the line has something that is not printable ASCII, or nothing.
  explicit Words(Piece line);

  Piece Take(std::string_view what);
  bool TakeIfAny(Piece* word);
  // Whether the next word is there and not of the form key=value.
  bool HasBareWord() const {
    return next_ < words_.size() && words_[next_].text.find('=') == std::string_view::npos;
  }
  // Takes the next word where it is this one.
  bool TakeIfWord(std::string_view word);
  void TakeArrow();
  // The rest as key=value fields.
  Fields TakeFields(std::string_view known_keys);
  void Finish();

 private:
  Piece End() const { return {line_.text.substr(line_.text.size()), line_.whole}; }
  Piece line_;
  std::vector<Piece> words_;
  size_t next_ = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_OPERATION_TEXT_H_
