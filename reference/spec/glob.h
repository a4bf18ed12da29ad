// Patterns of names and of texts (tensors, cases, layouts, formats, masks, versions), as a shell
// writes them, without a locale and in bounded time.
//
//   *       any characters, "/" and "." among them (names nest by "/" in HDF5 and by "." in
//           safetensors, so that no character could mean "level" in both)
//   ?       one character
//   [abc]   one of these characters; [a-z] a range, [!a-z] none of them
//   \x      the character x
// A name that starts with "/" is a path: a pattern that starts with "/" is matched against the
// whole path ("/layers/3/keys"), any other one against the path without its leading "/", which is
// how h5py and safetensors spell names.

#ifndef REFERENCE_SPEC_GLOB_H_
#define REFERENCE_SPEC_GLOB_H_

#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

class Glob {
 public:
  // Matching takes at most this many times the length of the name, in steps.
  static constexpr size_t kMostBytes = 4096;

  // Errors: kUsage, for a pattern that is empty, too long, ends in a backslash, or does not close a
  // bracket.
  explicit Glob(std::string pattern);

  bool Matches(std::string_view path) const;
  const std::string& text() const { return text_; }

  // A pattern that matches this path and no other.
  static std::string Of(std::string_view path);

 private:
  std::string text_;
};

std::vector<Glob> ParseGlobs(const std::vector<std::string>& patterns);
bool MatchesAny(const std::vector<Glob>& globs, std::string_view path);

// Errors: as the constructor.
bool MatchesGlob(const std::string& pattern, std::string_view text);
// One of them; true of no patterns.
bool MatchesAnyGlob(const std::vector<std::string>& patterns, std::string_view text);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_GLOB_H_
