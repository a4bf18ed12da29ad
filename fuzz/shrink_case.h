// Makes a failing case of attention or of a codec smaller: extents down to their least value, by
// halves or by one, options off, data plainer, for as long as it fails in the same way; and its
// plan plainer. (Traces: shrink_trace.h.)

#ifndef FUZZ_SHRINK_CASE_H_
#define FUZZ_SHRINK_CASE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/plan.h"

namespace kvcheck {

// The plan without one of the fields that only some formats of K and V may have, which keep a case
// from plainer formats. Each differs from the plan; empty: it has none of them.
std::vector<Plan> PlainerPlans(const Plan& plan);

// Cases one step smaller, those that take away most first; each is legal and differs from c.
std::vector<Case> SmallerCases(const Case& c);

struct ShrunkCase {
  Case c;                // still fails
  int64_t runs = 0;      // how often still_fails was asked
  bool complete = true;  // false: max_runs ended first
};

// c: fails, and is not asked again.
// The last of a chain of smaller cases that all fail. Where the failure depends on the data, each
// is tried with other data too. Plan and profile are the caller's. has: what the implementation
// has; no other case is asked about. Empty: everything.
ShrunkCase ShrinkCase(const Case& c, const std::function<bool(const Case&)>& still_fails,
                      int64_t max_runs, const std::function<bool(const Case&)>& has = {});

}  // namespace kvcheck

#endif  // FUZZ_SHRINK_CASE_H_
