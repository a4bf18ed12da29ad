// The replaced rules of prefix_faults.cc, one function a fault. Of keys and lookups:
// prefix_fault_keys.cc; of blocks and what is kept: prefix_fault_blocks.cc; of rows and files:
// prefix_fault_rows.cc; of calls and numbers: prefix_fault_calls.cc.

#ifndef TOOLS_FAULTS_PREFIX_FAULT_RULES_H_
#define TOOLS_FAULTS_PREFIX_FAULT_RULES_H_

#include "reference/prefix/rules.h"

namespace kvcheck::prefix_fault {

// prefix_fault_keys.cc
PrefixRules AdapterNotInKey();
PrefixRules AdapterVersionNotInKey();
PrefixRules SaltNotInKey();
PrefixRules ImageNotInKey();
PrefixRules ImageDigestTruncated();
PrefixRules ModelNotInKey();
PrefixRules FieldsJoined();
PrefixRules KeyOfProcess();
PrefixRules BlockNotChained();
PrefixRules LastTokenNotInKey();
PrefixRules TokensAsBytes();
PrefixRules HashNotVerified();
PrefixRules KeyOfHalfBlock();
PrefixRules OneBlockTooLong();
PrefixRules PrefixAsExact();
PrefixRules LastTokenHits();
PrefixRules NeverHitsTwice();
PrefixRules ShortPromptDisables();
PrefixRules NegativeHit();
PrefixRules EverySecondLess();

// prefix_fault_blocks.cc
PrefixRules EvictsHeld();
PrefixRules EvictedKeyStays();
PrefixRules RevivalNotCounted();
PrefixRules SharedHitNotCounted();
PrefixRules ForkNotCounted();
PrefixRules ReleasedTwice();
PrefixRules NotReleased();
PrefixRules TrimNotReleased();
PrefixRules NoCopyOnWrite();
PrefixRules UnkeptKept();
PrefixRules KeptAcrossEpoch();
PrefixRules TailAsBlock();
PrefixRules KeptBeforeWritten();
PrefixRules TrimmedKept();
PrefixRules ClearKeepsMemory();
PrefixRules ClearKeepsDisk();
PrefixRules EpochKeepsMemory();
PrefixRules EpochKeepsDisk();

// prefix_fault_rows.cc
PrefixRules FirstTokenAloneRestored();
PrefixRules KAndVSwapped();
PrefixRules HeadsSwapped();
PrefixRules LayersSwapped();
PrefixRules LastLayerNotRestored();
PrefixRules PositionsShifted();
PrefixRules ScalesLost();
PrefixRules ScalesStale();
PrefixRules KeptInOtherOrder();
PrefixRules HitInOtherOrder();
PrefixRules ForkLosesTail();
PrefixRules OtherFileRead();
PrefixRules CutFileServed();
PrefixRules FlipServed();
PrefixRules ForeignFileServed();
PrefixRules OtherSetupServed();
PrefixRules FirstBlockAloneWritten();
PrefixRules OlderFilesRewritten();

// prefix_fault_calls.cc
PrefixRules FullTooEarly();
PrefixRules FullWriteHalfDone();
PrefixRules HitsCountedAsLookups();
PrefixRules CachedCountedTwice();
PrefixRules BytesNeverFreed();
PrefixRules TrimBeyondAccepted();
PrefixRules WrongVectorsAccepted();
PrefixRules LoadOfAnything();
PrefixRules LoadOfOlderEpoch();

}  // namespace kvcheck::prefix_fault

#endif  // TOOLS_FAULTS_PREFIX_FAULT_RULES_H_
