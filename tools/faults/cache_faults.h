// The catalogue of cache faults: each is the model of the contract with exactly one named rule
// replaced. What public report a fault stands for is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_CACHE_FAULTS_H_
#define TOOLS_FAULTS_CACHE_FAULTS_H_

#include <span>
#include <string_view>

#include "reference/cache/rules.h"
#include "tools/faults/fault.h"

namespace kvcheck {

// Its smallest case is the shortest trace that is known to show it.
struct CacheFault : FaultText {
  // The operations in which it sits, with spaces between where several show it: one of them has to
  // be named by who finds it.
  std::string_view operations;
  // The contract with this rule replaced.
  CacheRules (*rules)();
};

std::span<const CacheFault> CacheFaults();
// nullptr when there is none of this id.
const CacheFault* FindCacheFault(std::string_view id);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_CACHE_FAULTS_H_
