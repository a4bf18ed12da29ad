// Faults of blocks: who holds them, what is kept in them, and what is forgotten.

#include <algorithm>
#include <initializer_list>

#include "tools/faults/prefix_fault_rules.h"

namespace kvcheck::prefix_fault {
namespace {

// The count of references changes by another number in this event.
PrefixRules WithRefs(RefEvent event, int64_t change) {
  PrefixRules rules;
  rules.refs = [event, change, hits = rules.hits](RefEvent now, int64_t* by) {
    if (now != event) return;
    *by = change;
    hits->fetch_add(1);
  };
  return rules;
}

PrefixRules WithPublished(PublishEvent event) {
  PrefixRules rules;
  rules.publishes = [event, hits = rules.hits](PublishEvent now, bool* does) {
    if (now != event || *does) return;
    *does = true;
    hits->fetch_add(1);
  };
  return rules;
}

PrefixRules WithoutForgetting(std::initializer_list<ForgetEvent> events) {
  PrefixRules rules;
  rules.forgets = [events = std::vector<ForgetEvent>(events), hits = rules.hits](ForgetEvent now,
                                                                                 bool* does) {
    if (std::find(events.begin(), events.end(), now) == events.end()) return;
    *does = false;
    if (now != ForgetEvent::kEpochKey) hits->fetch_add(1);
  };
  return rules;
}

PrefixRules WithoutFlag(std::function<void(bool*)> PrefixRules::* rule) {
  PrefixRules rules;
  rules.*rule = [hits = rules.hits](bool* does) {
    if (!*does) return;
    *does = false;
    hits->fetch_add(1);
  };
  return rules;
}

}  // namespace

PrefixRules EvictsHeld() {
  PrefixRules rules;
  rules.may_evict = [hits = rules.hits](const BlockState& state, bool* may) {
    if (!state.published || *may) return;
    *may = true;
    hits->fetch_add(1);
  };
  return rules;
}
PrefixRules EvictedKeyStays() { return WithoutFlag(&PrefixRules::evicted_key); }
PrefixRules RevivalNotCounted() { return WithRefs(RefEvent::kRevival, 0); }
PrefixRules SharedHitNotCounted() { return WithRefs(RefEvent::kHit, 0); }
PrefixRules ForkNotCounted() { return WithRefs(RefEvent::kFork, 0); }
PrefixRules ReleasedTwice() { return WithRefs(RefEvent::kClose, 2); }
PrefixRules NotReleased() { return WithRefs(RefEvent::kClose, 0); }
PrefixRules TrimNotReleased() { return WithRefs(RefEvent::kTrim, 0); }
PrefixRules NoCopyOnWrite() { return WithoutFlag(&PrefixRules::copy_on_write); }

PrefixRules UnkeptKept() { return WithPublished(PublishEvent::kUnkept); }
PrefixRules KeptAcrossEpoch() {
  PrefixRules rules = WithPublished(PublishEvent::kOlderEpoch);
  // The key says nothing of the epoch either, or nobody would find it.
  rules.forgets = [](ForgetEvent now, bool* does) { *does = now != ForgetEvent::kEpochKey; };
  return rules;
}
PrefixRules TailAsBlock() { return WithPublished(PublishEvent::kTail); }
PrefixRules KeptBeforeWritten() { return WithPublished(PublishEvent::kBeforeWriting); }
PrefixRules TrimmedKept() {
  PrefixRules rules;
  rules.live_tokens = [hits = rules.hits](int64_t longest, int64_t* tokens) {
    if (longest == *tokens) return;
    *tokens = longest;
    hits->fetch_add(1);
  };
  return rules;
}

PrefixRules ClearKeepsMemory() { return WithoutForgetting({ForgetEvent::kClearMemory}); }
PrefixRules ClearKeepsDisk() { return WithoutForgetting({ForgetEvent::kClearDisk}); }
PrefixRules EpochKeepsMemory() {
  return WithoutForgetting({ForgetEvent::kEpochMemory, ForgetEvent::kEpochKey});
}
PrefixRules EpochKeepsDisk() {
  return WithoutForgetting({ForgetEvent::kEpochDisk, ForgetEvent::kEpochKey});
}

}  // namespace kvcheck::prefix_fault
