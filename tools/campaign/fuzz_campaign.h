// A campaign: drawn cases on an implementation, in supervised workers, and what it found, each
// failure once and as small as it could be made. What is reported depends on the subject (its seed
// among it) and on the number of cases, never on workers, batches or time.

#ifndef TOOLS_CAMPAIGN_FUZZ_CAMPAIGN_H_
#define TOOLS_CAMPAIGN_FUZZ_CAMPAIGN_H_

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/campaign/fuzz_tally.h"
#include "tools/campaign/known_failures.h"
#include "tools/campaign/subject.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {

// A failure, as it was drawn and as it was shrunk.
struct FoundFailure {
  FailureSum sum;
  int64_t index = 0;         // of the case that was shrunk
  std::string form;          // canonical, of the shrunk case (canonical_form.h)
  int64_t variant = 0;       // which of the forms of its signature, in the order of shrinking
  int64_t of_this_form = 1;  // shrunk cases of the signature that came to this form
  int64_t looked_at = 1;     // shrunk cases of the signature
  CaseEntry drawn;
  CaseEntry shrunk;
  std::string reason;  // of the shrunk case
  int64_t runs = 0;    // of shrinking
  // Of the shrunk case with all that is said about it, where it could be had: not of what ends the
  // process.
  std::optional<Verdict> verdict;
  bool shrunk_whole = false;  // no step of the shrinker makes it smaller
  bool is_final = false;      // shrinking is over
  bool repeats = true;        // false: the drawn case did not fail so again in a process of its own
};

struct CampaignOptions {
  int workers = 1;
  int64_t cases = -1;                                // -1: until the time is over
  std::optional<std::chrono::milliseconds> time;     // begin no case after it
  bool keep_going = false;                           // not only up to the first failure
  std::chrono::milliseconds since_progress{10'000};  // then a case hangs
  int64_t shrink_runs = 20'000;                      // judged cases per failure, at most
  std::chrono::milliseconds shrink_time{60'000};     // per failure: begin no run after it
  // Failing cases that are shrunk of one signature. Each different canonical form is a failure of
  // its own. Of signatures that `causes` does not tell apart by traces: one.
  int64_t shrink_cases = 1;
  const KnownCauses* causes = nullptr;  // null: nothing is known, and every signature is told apart
  // Shrinks several cases of every signature, whether or not `causes` tells it apart.
  bool tells_all_apart = false;
  // Ends at the first failure that `causes` does not know: while cases are drawn by its signature,
  // afterwards by what it shrinks to. What was not looked at by then has no result.
  bool stop_at_new = false;
  // Cases of this run are offset + stride i of the sequence.
  int64_t stride = 1;
  int64_t offset = 0;
  int64_t largest_batch = 256;
  std::function<bool()> interrupted;
  // Told now and then how far it is: items delivered, what they add up to.
  std::function<void(const FuzzTally&)> progress;
  std::function<void(const std::string&)> shrinking;  // "append visible_missing"
  // Told of each failure twice: when its first case has been judged, as it was drawn, and when it
  // is as small as it gets. What is written then is not lost when the campaign is killed.
  std::function<void(const FoundFailure&)> found;
  // Told what the cases so far add up to, after each stretch of them.
  std::function<void(const FuzzTally&)> delivered;
  // Of the first cases of the sequence, from an earlier run that did not come to its end: the
  // campaign goes on behind them.
  FuzzTally earlier;
};

struct CampaignResult {
  FuzzTally tally;
  std::vector<FoundFailure> failures;  // by first case, then in the order in which they were shrunk
  bool interrupted = false;
};

// Makes failing cases smaller, one after the other in a process of its own. Ends early at a case
// whose cause is known or whose form was found before; what it gives otherwise has failed in a
// fresh process too.
class FailureShrinker {
 public:
  // Both outlive it.
  FailureShrinker(const Subject& subject, const CampaignOptions& options);
  // Errors: kUnsupported when no process can be made.
  // forms: canonical, of the signature, found before.
  FoundFailure operator()(const FailureSum& sum, CaseEntry drawn,
                          const std::set<std::string>& forms = {});

 private:
  const Subject& subject_;
  const CampaignOptions& options_;
  std::function<JudgedCase(const CaseEntry&, const std::string&, bool)> judge_;
  std::chrono::milliseconds judge_limit_{0};
};

// Errors: kUnsupported when no process can be made.
CampaignResult RunCampaign(const Subject& subject, const CampaignOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_FUZZ_CAMPAIGN_H_
