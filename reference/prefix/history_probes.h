// Named probes: states of a history that chance seldom reaches and that bugs of prefix caches hide
// in, counted beside every run so that a campaign can show that it looked there. Descriptions:
// history_probes.cc.

#ifndef REFERENCE_PREFIX_HISTORY_PROBES_H_
#define REFERENCE_PREFIX_HISTORY_PROBES_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace kvcheck {

enum class HistoryProbe : uint8_t {
  // Hits.
  kHitInsideBlock,
  kFullLengthHit,
  kHitOfLongerPrompt,
  kHitAfterRestart,
  kHitAfterKill,
  kHitOfDisk,
  kHitOfCodes,
  kHitUnderWindow,
  // Identity.
  kPromptOfOtherIdentity,
  kEqualBlockElsewhere,
  // Lifetime.
  kSplitUnderReader,
  kEvictionWhileOpen,
  kPressureWhileOpen,
  kRevival,
  kPromptKeptTwice,
  kClosedUnkept,
  kForkGoesOn,
  kTrimThenKeep,
  kTrimIntoHit,
  kWriteFull,
  kCapacityOfOneRequest,
  kChunkCutsBlock,
  kEmptyStore,
  // Forgetting.
  kOpenAfterClear,
  kClearWhileOpen,
  kOpenAfterEpoch,
  kEpochWhileOpen,
  kKeptAcrossEpoch,
  // Files.
  kKilledInWrite,
  kOpenAfterDamage,
  kRestartOtherSetup,
  kLoadAfterClear,
  kLoadAfterEpoch,
};
inline constexpr int kHistoryProbes = static_cast<int>(HistoryProbe::kLoadAfterEpoch) + 1;

using HistoryProbeCounts = std::array<int64_t, kHistoryProbes>;

// "hit_inside_block", ...
std::string_view Name(HistoryProbe probe);
// What was reached, in one line.
std::string_view Description(HistoryProbe probe);

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_HISTORY_PROBES_H_
