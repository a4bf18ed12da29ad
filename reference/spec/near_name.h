// The known name that a mistyped one is nearest to: one rule for the messages about keys, plans,
// formats, regimes, implementations, options and tensors.

#ifndef REFERENCE_SPEC_NEAR_NAME_H_
#define REFERENCE_SPEC_NEAR_NAME_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

// "" when none is near. Near is a name with few characters changed, left out, added or swapped with
// their neighbour (at most a third of the longer name; upper and lower case count as alike), or one
// that the other begins.
std::string NearestName(std::string_view given, std::span<const std::string> known);

// " (did you mean 'NAME'?)", or "" when none is near.
std::string DidYouMean(std::string_view given, std::span<const std::string> known);
// known: names separated by ", ".
std::string DidYouMean(std::string_view given, std::string_view known);

// The letters A to Z as a to z.
std::string LowerCase(std::string_view text);

// Long and short names of all types, for messages about what is none.
std::vector<std::string> TypeNames();

// The names of a list "a, b, c".
std::vector<std::string> ListedNames(std::string_view known);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_NEAR_NAME_H_
