// Failures of an implementation that are known, so that a gate can go on past them: by the
// signature of what broke and by the implementation that breaks it. A line of the file, "#" at its
// start for comments:
//
//   signature="append visible_missing" impl=optimized version=1.* reason="TEXT" expires=2027-03-31
//   and perhaps case=SUITE/NAME, the case that shows it
//
// version is a glob (tools/compare/glob.h). From the day after `expires` on (UTC) the line is as if
// it were not there. Values with blanks stand in quotes, in which \" and \\ are characters.

#ifndef TOOLS_CAMPAIGN_KNOWN_FAILURES_H_
#define TOOLS_CAMPAIGN_KNOWN_FAILURES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

struct KnownFailure {
  std::string signature;
  std::string implementation;
  std::string version;  // a glob
  std::string reason;
  std::string expires;    // YYYY-MM-DD, the last day
  std::string case_name;  // "": wherever it shows
  int64_t line = 0;
};

// "YYYY-MM-DD", UTC.
std::string Today();

class KnownFailures {
 public:
  KnownFailures() = default;
  // Errors: kParse with FILE:LINE and the reason.
  KnownFailures(std::string_view content, const std::string& file);

  // Whether the entry speaks of this implementation, and whether it is too old to count.
  static bool IsOf(const KnownFailure& known, const std::string& implementation,
                   const std::string& version);
  static bool HasExpired(const KnownFailure& known, const std::string& today);

  // The entry that excuses this failure; nullptr: none. An expired one excuses nothing.
  const KnownFailure* Find(const std::string& signature, const std::string& implementation,
                           const std::string& version, const std::string& today) const;
  const std::vector<KnownFailure>& entries() const { return entries_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::vector<KnownFailure> entries_;
};

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_KNOWN_FAILURES_H_
