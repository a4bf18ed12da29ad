// Names of GOT's tensors as GOLD spells them: substitutions (--map) and files of them (--map-file).
//
// A substitution is 's#REGEX#TEXT#FLAGS': any character in place of '#', a regular expression as
// ECMAScript has them, $1 or \1 for its groups, flags g (every occurrence, not the first alone) and
// i (upper and lower case alike). They are applied one after the other. A regex that starts with
// "^/" sees the leading "/" of a path, any other one does not.
//
// A map file has one entry a line, "#" at its start for comments:
//   GOT_NAME GOLD_NAME      that tensor, whatever the substitutions say of it; twice the same name
//                           keeps it from them
//   s#REGEX#TEXT#FLAGS      as above; a name that looks so is written with its leading "/"
// On the command line, the substitutions of --map-file come before those of --map.

#ifndef TOOLS_COMPARE_RENAMES_H_
#define TOOLS_COMPARE_RENAMES_H_

#include <cstdint>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

// Limits of what is matched; with them, and without back references, matching takes polynomial
// time.
inline constexpr size_t kMostRegexBytes = 256;
inline constexpr size_t kMostRenamedBytes = 1024;

class Substitution {
 public:
  // True when the text starts as one does.
  static bool IsOne(std::string_view text);
  // where: for messages. Errors: kUsage.
  Substitution(const std::string& text, const std::string& where);
  // The path after it. Errors: kUsage when the path or the result is too long.
  std::string Apply(const std::string& path) const;
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  std::regex regex_;
  std::string format_;  // of std::regex_replace
  bool everywhere_ = false;
  bool sees_slash_ = false;
};

class Renames {
 public:
  // Errors: kUsage.
  void AddSubstitution(const std::string& text);
  // file: for messages. Errors: kUsage with the line, also for a GOT_NAME that comes twice.
  void AddFile(std::string_view content, const std::string& file);
  bool empty() const { return substitutions_.empty() && names_.empty(); }

  // GOLD's path for each of GOT's.
  // Errors: kUsage, naming all tensors concerned, for an entry that changes no name of `paths`:
  // also for one that keeps a name which no substitution would change.
  std::map<std::string, std::string> Apply(const std::vector<std::string>& paths) const;

 private:
  struct Name {
    std::string gold;
    std::string where;
  };
  // After all substitutions.
  std::string Substituted(std::string path) const;

  std::vector<Substitution> substitutions_;
  std::map<std::string, Name> names_;
};

// "a/b" and "/a/b" are the same tensor.
std::string WithSlash(std::string_view name);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_RENAMES_H_
