// Faults of calls and numbers: what is carried out, what there is room for, and what is counted.

#include <algorithm>
#include <memory>

#include "tools/faults/prefix_fault_rules.h"

namespace kvcheck::prefix_fault {
namespace {

PrefixRules Allowing(PrefixOpKind kind) {
  PrefixRules rules;
  rules.legal = [kind, hits = rules.hits](PrefixOpKind now, std::string_view* why) {
    if (now != kind || why->empty()) return;
    *why = "";
    hits->fetch_add(1);
  };
  return rules;
}

}  // namespace

PrefixRules FullTooEarly() {
  PrefixRules rules;
  rules.fits = [hits = rules.hits](int64_t needed, int64_t available, bool* fits) {
    if (!*fits || needed < available) return;
    *fits = false;
    hits->fetch_add(1);
  };
  return rules;
}
PrefixRules FullWriteHalfDone() {
  PrefixRules rules;
  rules.full_write = [hits = rules.hits](bool* half_done) {
    *half_done = true;
    hits->fetch_add(1);
  };
  return rules;
}
PrefixRules HitsCountedAsLookups() {
  PrefixRules rules;
  rules.counters = [hits = rules.hits](PrefixCounters* counters) {
    if (counters->hits == counters->lookups) return;
    counters->hits = counters->lookups;
    hits->fetch_add(1);
  };
  return rules;
}
PrefixRules CachedCountedTwice() {
  PrefixRules rules;
  rules.counters = [hits = rules.hits](PrefixCounters* counters) {
    if (counters->blocks_cached == 0) return;
    counters->blocks_cached *= 2;
    hits->fetch_add(1);
  };
  return rules;
}
PrefixRules BytesNeverFreed() {
  PrefixRules rules;
  rules.counters = [hits = rules.hits,
                    most = std::make_shared<int64_t>(0)](PrefixCounters* counters) {
    // A store that begins anew begins with nothing.
    if (counters->lookups == 0) *most = 0;
    *most = std::max(*most, counters->bytes);
    if (*most == counters->bytes) return;
    counters->bytes = *most;
    hits->fetch_add(1);
  };
  return rules;
}
PrefixRules TrimBeyondAccepted() { return Allowing(PrefixOpKind::kTrimTo); }
PrefixRules WrongVectorsAccepted() { return Allowing(PrefixOpKind::kWrite); }
PrefixRules LoadOfAnything() { return Allowing(PrefixOpKind::kLoad); }
PrefixRules LoadOfOlderEpoch() {
  PrefixRules rules = Allowing(PrefixOpKind::kLoad);
  rules.forgets = [](ForgetEvent now, bool* does) { *does = now != ForgetEvent::kEpochKey; };
  return rules;
}

}  // namespace kvcheck::prefix_fault
