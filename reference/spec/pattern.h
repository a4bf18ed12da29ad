// Patterns over short texts (layouts, formats, masks), as the command line and the spaces of
// implementations write them: `*` stands for any characters, every other character for itself.

#ifndef REFERENCE_SPEC_PATTERN_H_
#define REFERENCE_SPEC_PATTERN_H_

#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

// Whether `text` is the pattern with every `*` replaced by some characters, or none.
bool MatchesPattern(std::string_view pattern, std::string_view text);
// One of them; true of no patterns.
bool MatchesAnyPattern(const std::vector<std::string>& patterns, std::string_view text);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PATTERN_H_
