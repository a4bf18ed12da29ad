// Makes a failing case of attention or of a codec smaller: extents down to their least value, by
// halves or by one, options off, data plainer, for as long as it fails in the same way. Plan and
// profile stay. (Traces: fuzz/shrink_trace.h.)

#ifndef TOOLS_CAMPAIGN_SHRINK_CASE_H_
#define TOOLS_CAMPAIGN_SHRINK_CASE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/campaign/subject.h"

namespace kvcheck {

// Cases one step smaller, those that take away most first; each is legal and differs from c.
std::vector<Case> SmallerCases(const Case& c);

// The last of a chain of smaller cases that all fail. Where the failure depends on the data, each
// is tried with other data too. has: what the implementation has; no other case is asked about.
// Empty: everything.
ShrunkCase ShrinkCase(const CaseEntry& entry, const StillFails& still_fails, int64_t max_runs,
                      const std::function<bool(const Case&)>& has = {});

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_SHRINK_CASE_H_
