#include "reference/spec/pattern.h"

#include <algorithm>

namespace kvcheck {

// Only the last star is tried again: one further left could take no more than it has already.
bool MatchesPattern(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t behind_star = std::string_view::npos;
  size_t star_end = 0;  // the star has taken text up to here
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      behind_star = ++p;
      star_end = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (behind_star != std::string_view::npos) {
      p = behind_star;
      t = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool MatchesAnyPattern(const std::vector<std::string>& patterns, std::string_view text) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesPattern(pattern, text); });
}

}  // namespace kvcheck
