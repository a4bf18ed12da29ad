// The catalogue of faults of prefix caches: each is the reference store with exactly one named rule
// replaced. What public report a fault stands for is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_PREFIX_FAULTS_H_
#define TOOLS_FAULTS_PREFIX_FAULTS_H_

#include <span>
#include <string_view>

#include "reference/prefix/rules.h"
#include "tools/faults/fault.h"

namespace kvcheck {

// Its smallest case is the shortest history that is known to show it.
struct PrefixFault : FaultText {
  // The reference store with this rule replaced.
  PrefixRules (*rules)();
};

std::span<const PrefixFault> PrefixFaults();
// nullptr when there is none of this id.
const PrefixFault* FindPrefixFault(std::string_view id);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_PREFIX_FAULTS_H_
