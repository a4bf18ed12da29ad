// The catalogue of cache faults: each is the model of the contract with exactly one named rule
// replaced. What public report a fault stands for is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_CACHE_FAULTS_H_
#define TOOLS_FAULTS_CACHE_FAULTS_H_

#include <span>
#include <string_view>

#include "reference/cache/rules.h"

namespace kvcheck {

struct CacheFault {
  std::string_view id;  // "trim_offset_kept"
  // The operations in which it sits: one of them has to be named by who finds it.
  std::string_view operations;   // "trim"; where several show it, with spaces between
  std::string_view description;  // what is wrong, in one line
  std::string_view report;       // an entry of the catalogue of public faults that it stands for
  std::string_view property;     // of the catalogue: "P3"
  // The contract with this rule replaced.
  CacheRules (*rules)();
  // The shortest trace that is known to show it.
  std::string_view trace;
};

std::span<const CacheFault> CacheFaults();
// nullptr when there is none of this id.
const CacheFault* FindCacheFault(std::string_view id);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_CACHE_FAULTS_H_
