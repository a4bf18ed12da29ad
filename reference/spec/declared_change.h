// A change of what is declared of an implementation (its plan or profile), word by word. Only
// reports make sentences of it.

#ifndef REFERENCE_SPEC_DECLARED_CHANGE_H_
#define REFERENCE_SPEC_DECLARED_CHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kvcheck {

// One word that would have another value.
struct DeclaredWord {
  std::string word;    // "p"
  std::string former;  // "f32"; several where any of them may have been: "ocp, up or mlx"
  std::string value;   // "bf16"
  // What the kernel would have to do: "P were rounded to bf16". Empty of conventions, which say it
  // themselves.
  std::string meaning{};
  bool is_default = false;  // `former` was not said, and is what is taken then
  bool operator==(const DeclaredWord&) const = default;
};

// Words that change together, of the plan or of the profile.
struct DeclaredChange {
  bool of_profile = false;
  std::vector<DeclaredWord> words{};
  // Whether every word of `part` has the same new value here.
  bool Contains(const DeclaredChange& part) const;
  bool operator==(const DeclaredChange&) const = default;
};

// "p=bf16".
std::string Print(const DeclaredWord& word);
// "p=bf16 instead of p=f32"; words are joined by "and".
std::string Print(const DeclaredChange& change);
// Only what it says: "p=bf16".
std::string PrintValues(const DeclaredChange& change);
// Each one printed.
std::vector<std::string> Texts(const std::vector<DeclaredChange>& changes);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_DECLARED_CHANGE_H_
