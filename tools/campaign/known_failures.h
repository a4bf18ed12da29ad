// Failures of an implementation that are known, so that a gate can go on past them: by the
// signature of what broke, by the implementation that breaks it, and by the shrunk cases that show
// the cause. A line of the file, "#" at its start for comments:
//
//   signature="append visible_missing" impl=optimized version=1.* reason="TEXT" expires=2027-03-31
//     trace cache layout=ring:w=4:keep=2 k=f32 dk=8 data=tokens:1; new A; append A 4; append A 2
//   and perhaps case=SUITE/NAME, the case that shows it
//
// Lines that begin with a blank belong to the entry above: shrunk cases, of which the canonical
// form counts (canonical_form.h). An entry without them excuses by its signature alone. version is
// a glob (reference/spec/glob.h). From the day after `expires` on (UTC) the line is as if it were
// not there. Values with blanks stand in quotes, in which \" and \\ are characters.

#ifndef TOOLS_CAMPAIGN_KNOWN_FAILURES_H_
#define TOOLS_CAMPAIGN_KNOWN_FAILURES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/campaign/canonical_form.h"

namespace kvcheck {

struct KnownTrace {
  std::string text;   // of the case, as it stands in the file
  std::string form;   // CanonicalForm
  CaseTraits traits;  // TraitsOf
};

struct KnownFailure {
  std::string signature;
  std::string implementation;
  std::string version;  // a glob
  std::string reason;
  std::string expires;    // YYYY-MM-DD, the last day
  std::string case_name;  // "": wherever it shows
  int64_t line = 0;
  std::vector<KnownTrace> traces;

  bool Holds(const std::string& form) const;
};

// A line of the file, and its traces under it.
std::string Print(const KnownFailure& known);

// "YYYY-MM-DD", UTC.
std::string Today();
// Whether a text is a day that exists, so written.
bool IsDate(const std::string& text);

class KnownFailures {
 public:
  KnownFailures() = default;
  // Errors: kParse with FILE:LINE and the reason.
  KnownFailures(std::string_view content, const std::string& file);

  // Whether the entry speaks of this implementation, and whether it is too old to count.
  static bool IsOf(const KnownFailure& known, const std::string& implementation,
                   const std::string& version);
  static bool HasExpired(const KnownFailure& known, const std::string& today);

  const std::vector<KnownFailure>& entries() const { return entries_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::vector<KnownFailure> entries_;
};

// What is known of one implementation on one day. Keeps pointers into the file's entries.
class KnownCauses {
 public:
  KnownCauses() = default;
  KnownCauses(const KnownFailures& known, const std::string& implementation,
              const std::string& version, const std::string& today);

  // Whether an entry of this signature says by traces what its cause is: then a failure is known by
  // its shrunk case, and by nothing less.
  bool HasTraces(const std::string& signature) const;
  // The entry that excuses a failure whose case was shrunk to this form; of a signature without
  // traces, the one of that signature. nullptr: none.
  const KnownFailure* Find(const std::string& signature, const std::string& form) const;
  // Whether a case may fail for a cause that is known, before it is shrunk.
  bool MayBeKnown(const std::string& signature, const CaseTraits& drawn) const;

 private:
  std::vector<const KnownFailure*> entries_;
};

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_KNOWN_FAILURES_H_
