// The replaced rules of cache_faults.cc, one function a fault. Of one row and its appends:
// cache_fault_rows.cc; of what operations carry: cache_fault_batches.cc; of legality and numbers:
// cache_fault_calls.cc; of residuals and groups: cache_fault_groups.cc.

#ifndef TOOLS_FAULTS_CACHE_FAULT_RULES_H_
#define TOOLS_FAULTS_CACHE_FAULT_RULES_H_

#include "reference/cache/rules.h"

namespace kvcheck::cache_fault {

// cache_fault_rows.cc
CacheRules LaterRowsNotEvicted();
CacheRules SingleTokenOtherCodes();
CacheRules SingleTokenSeesLess();
CacheRules RollsAtWindow();
CacheRules EvictsByCapacity();
CacheRules EvictsByAppend();
CacheRules KeptEvictedOnWrap();
CacheRules NeverEvicts();
CacheRules PaddingIsToken();
CacheRules RightPaddingIsToken();
CacheRules AttendIgnoresWindow();
CacheRules PaddingLeaksNan();

// cache_fault_batches.cc
CacheRules TrimKeepsTokens();
CacheRules TrimRemovesOldest();
CacheRules TrimLongestOnly();
CacheRules TrimRenumbers();
CacheRules FilterKeepsPadding();
CacheRules FilterMovesKeysOnly();
CacheRules MergeSwapsValues();
CacheRules MergeOfWrappedRing();
CacheRules MergeSkipsEmpty();
CacheRules MergeAlignsToLongest();
CacheRules ExtendDropsEmpty();
CacheRules ExtractWithTail();
CacheRules QuantizeDoesNothing();
CacheRules LoadLosesKeep();
CacheRules LoadAsF32();
CacheRules LoadLosesBits();
CacheRules LoadLosesOldest();
CacheRules LoadLosesPadding();

// cache_fault_calls.cc
CacheRules TrimIgnoresEviction();
CacheRules NegativeTrim();
CacheRules AnyVersion();
CacheRules AnyContent();
CacheRules SingleAppendWhilePending();
CacheRules FilterWhilePending();
CacheRules ExtendUnequalRefused();
CacheRules MergeEmptyRefused();
CacheRules MergeCodesRefused();
CacheRules QuantizeRingRefused();
CacheRules LoadWrappedRefused();
CacheRules RefusedFilterHalfDone();
CacheRules CopyShares();
CacheRules SaveShares();
CacheRules ExtendChangesOperand();
CacheRules SizeZeroOfCodes();
CacheRules BytesZeroOfCodes();
CacheRules RepeatedRowsCountedOnce();
CacheRules OffsetOfLongest();
CacheRules OffsetStopsAtWindow();

// cache_fault_groups.cc
CacheRules GroupsCloseLate();
CacheRules GroupsNeverClose();
CacheRules ClosedGroupsCodedAgain();
CacheRules RegroupsBeforeTheResidualIsFull();
CacheRules RegroupsAFullGroup();
CacheRules GroupScalesOfTheLast();
CacheRules ResidualOneShort();
CacheRules ResidualFlushedWhole();
CacheRules ValuesStepOfOneLevelMore();
CacheRules TrimIntoClosedGroup();

}  // namespace kvcheck::cache_fault

#endif  // TOOLS_FAULTS_CACHE_FAULT_RULES_H_
