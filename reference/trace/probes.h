// Named probes: states and calls that chance seldom reaches and that bugs of caches hide in. A run
// counts how often it reached each of them, by the model's states beside it, so that a campaign can
// show that it looked there; a probe that stays at zero is a hole in the drawing. Descriptions:
// probes.cc.
//
// Source: the idea of code probes is FoundationDB's.

#ifndef REFERENCE_TRACE_PROBES_H_
#define REFERENCE_TRACE_PROBES_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "reference/cache/model_state.h"
#include "reference/spec/trace.h"

namespace kvcheck {

enum class Probe : uint8_t {
  // What a layout forgets.
  kRingWrapped,
  kRingWithKeepWrapped,
  kRingWrappedTwice,
  kAppendAcrossWrap,
  kOneTokenAfterWrap,
  kAppendLargerThanWindow,
  kLinearWindowPassed,
  kChunkBoundaryCrossed,
  kGrowthPastStep,
  // trim
  kTrimAcrossWrap,
  kTrimIntoKept,
  kTrimReachesLess,
  kTrimToEmpty,
  kTrimOfUnequalRows,
  kTrimThenAppend,
  // Batches.
  kFilterToNothing,
  kFilterRepeats,
  kFilterPermutes,
  kFilterMovesUnfedPadding,
  kEmptyBatchUsed,
  kExtendByEmptySide,
  kExtendOfEmptySide,
  kExtendOfOtherCapacity,
  kExtendWithItself,
  kMergeUnequalFill,
  kMergeOfHistories,
  kMergeWithEmptyRow,
  kMergeSameTwice,
  kMergeOfCodes,
  kExtractLeftPaddedRow,
  kExtractThenAppend,
  // Unfed padding.
  kUnfedPaddingCopied,
  kUnfedPaddingSaved,
  kUnfedPaddingMerged,
  kUnfedPaddingExtracted,
  // Prepared prefill.
  kPrepareZeroLength,
  kPrepareBehindPadding,
  kPendingAppendSplit,
  kFinalizeRefused,
  kIllegalWhilePending,
  // Formats.
  kQuantizeTokens,
  kQuantizeWrappedRing,
  kQuantizeKeysOnly,
  kQuantizeRefused,
  // Saved states.
  kLoadAfterDamage,
  kLoadThenAppend,
  kLoadOfWrappedRing,
  kLoadAfterChange,
  // attend
  kAttendInsideWindow,
  kAttendBesidePadding,
  kAttendAfterWrap,
  kAttendWithSinks,
};
inline constexpr int kProbes = static_cast<int>(Probe::kAttendWithSinks) + 1;

using ProbeCounts = std::array<int64_t, kProbes>;

// "ring_wrapped", ...
std::string_view Name(Probe probe);
// What was reached, in one line.
std::string_view Description(Probe probe);

// Counts what the operations of one trace reach. Called before and after every operation that finds
// what it names; nothing allocates.
class ProbeCounter {
 public:
  void Start(const CacheSetup& setup);
  // state: of the slot that is operated on; other: the operand of extend; operands: of merge;
  // damaged: what load finds is. Null and empty where there is none.
  void Before(const CacheOp& op, const ModelState* state, const ModelState* other,
              std::span<const ModelState* const> operands, bool damaged);
  // carried_out: not refused. state: of the slot that was changed, filled or read.
  void After(const CacheOp& op, bool carried_out, const ModelState* state);

  const ProbeCounts& counts() const { return counts_; }

 private:
  // What a slot's cache has gone through since it was made.
  struct Marks {
    bool loaded = false;
    bool extracted = false;
    bool trimmed = false;
    int pending_appends = 0;
    unsigned saved_as = 0;  // bit per key: saved, not changed since
  };
  // `probe` is reached if the operation that follows is carried out.
  void Due(bool reached, Probe probe) {
    due_ |= static_cast<uint64_t>(reached) << static_cast<int>(probe);
  }
  void Reach(bool reached, Probe probe) {
    counts_[static_cast<size_t>(probe)] += static_cast<int64_t>(reached);
  }
  void BeforeFilter(const CacheOp& op, const ModelState& state);
  void BeforeExtend(const CacheOp& op, const ModelState& state, const ModelState& other);
  void BeforeMerge(std::span<const ModelState* const> operands);
  void BeforeToQuantized(const CacheOp& op, const ModelState& state);
  void BeforeAttend(const CacheOp& op, const ModelState& state);
  void AfterAppend(const CacheOp& op, const ModelState& state);
  void AfterTrim(const CacheOp& op, const ModelState& state);

  CacheSetup setup_;
  std::array<Marks, kSlots> marks_;
  unsigned changed_keys_ = 0;  // saved, and the source has changed since
  ProbeCounts counts_{};
  uint64_t due_ = 0;
  // Of the operation's slot, before it.
  bool pending_ = false;
  int64_t longest_ = 0;
  int64_t shortest_ = 0;
  bool damaged_ = false;
};

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_PROBES_H_
