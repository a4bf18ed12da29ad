// One campaign of drawn cases as commands run it: failures as .case files, what was done saved,
// and results for the report.

#ifndef TOOLS_CAMPAIGN_FUZZ_RUN_H_
#define TOOLS_CAMPAIGN_FUZZ_RUN_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/campaign/fuzz_campaign.h"
#include "tools/campaign/fuzz_subjects.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/progress.h"
#include "tools/report/campaign_counts.h"
#include "tools/report/case_result.h"

namespace kvcheck {

// From so many cases on, of all layouts and formats, every probe must be reached. Of the first
// 20,000 cases of seed 1, 149 reach the probe that is reached least often (finalize_refused): 5,000
// miss it with a probability of about e^-37.
inline constexpr int64_t kProbeCases = 5'000;

// Of the cases whose data can prove something, the share that may prove nothing: the judge's own
// line between what is said of most of the data and what is not.
inline constexpr int kDefaultMaxUnproved = 50;

struct FuzzSettings {
  DrawSettings draw;
  int max_unproved = kDefaultMaxUnproved;  // percent
  std::optional<int64_t> cases;
  std::optional<std::chrono::milliseconds> time;
  bool keep_going = false;
  std::string out;  // folder of .case files, made when there is one to write
  // Goes on where an earlier run with the same folder and command was killed or interrupted.
  bool resumes = false;
  std::chrono::milliseconds since_progress{10'000};
  std::chrono::milliseconds shrink_time{60'000};  // of one failure
  int workers = 1;
  Progress* progress = nullptr;  // null: nobody waits
  Cancel cancel{};
  // Part of the sequence: cases offset + stride i.
  int64_t stride = 1;
  int64_t offset = 0;
  std::string command;  // for the comments of .case files
  // As in CampaignOptions.
  int64_t shrink_cases = 1;
  const KnownCauses* causes = nullptr;
  bool tells_all_apart = false;
  bool stop_at_new = false;
};

struct FuzzFailure {
  std::string signature;
  std::string form;  // canonical, of the shrunk case
  CaseResult result;
  int64_t of_this_form = 1;  // shrunk cases of the signature that came to this form
  int64_t looked_at = 1;     // shrunk cases of the signature
  int64_t cases = 1;         // of the signature
  bool shrunk_whole = true;
};

struct FuzzOutcome {
  CampaignCounts counts;
  std::vector<FuzzFailure> failures;  // by first case
  CaseResult overall;  // of a campaign without failures, or whose failures are all known
  bool interrupted = false;
  double seconds = 0;
};

// Errors: those of MakeSubject; kUnreadableFile when a .case file cannot be written.
FuzzOutcome RunFuzz(const Answerer& answerer, const FuzzSettings& settings);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_FUZZ_RUN_H_
