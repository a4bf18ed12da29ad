// What the cases of a campaign add up to: counts, and one entry per different failure. Adding is
// associative over stretches of cases in their order, so that it does not matter who added up what.

#ifndef TOOLS_CAMPAIGN_FUZZ_TALLY_H_
#define TOOLS_CAMPAIGN_FUZZ_TALLY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/campaign/subject.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {

// Of the cases of one signature that are alike, the first ones.
struct FailureGroup {
  std::string name;
  std::vector<int64_t> cases;  // in order, kGroupCases at most
  bool operator==(const FailureGroup&) const = default;
};
inline constexpr size_t kGroupCases = 16;

// Cases that failed in one way.
struct FailureSum {
  Outcome outcome = Outcome::kFail;  // kFail, kCrashed, kTimedOut
  std::string signature;
  std::string reason;  // of the first case
  int64_t first_case = 0;
  int64_t cases = 0;
  std::vector<FailureGroup> groups{};  // by first case; of cases that were told apart
  bool operator==(const FailureSum&) const = default;
};

// Cases that proved nothing, in one way.
struct ReasonSum {
  Outcome outcome = Outcome::kMistrusted;  // kMistrusted, kUnsupported
  std::string signature;
  std::string reason;  // of the first case
  int64_t first_case = 0;
  int64_t cases = 0;
  bool operator==(const ReasonSum&) const = default;
};

struct FuzzTally {
  int64_t cases = 0;
  int64_t passed = 0;
  int64_t failed = 0;  // crashed and timed out ones among them
  int64_t crashed = 0;
  int64_t timed_out = 0;
  int64_t mistrusted = 0;
  int64_t by_data = 0;  // part of mistrusted: whoever answers
  int64_t unsupported = 0;
  CaseCounts counts;
  std::vector<FailureSum> failures;  // by first_case
  std::vector<ReasonSum> unproved;   // by first_case

  void Add(int64_t index, const JudgedCase& judged);
  // Of the cases that follow.
  void Add(const FuzzTally& later);
  bool operator==(const FuzzTally&) const = default;
};

Message Encode(const FuzzTally& tally);
// Errors: kUnreadableFile for a message that is none.
FuzzTally DecodeTally(const Message& message);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_FUZZ_TALLY_H_
