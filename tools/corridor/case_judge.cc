#include "tools/corridor/case_judge.h"

#include <cstddef>

namespace kvcheck {

void CaseCounts::Add(const CaseCounts& other) {
  operations += other.operations;
  states += other.states;
  elements += other.elements;
  for (const auto list : {&CaseCounts::probes, &CaseCounts::declined}) {
    std::vector<int64_t>& sums = this->*list;
    const std::vector<int64_t>& more = other.*list;
    if (sums.size() < more.size()) sums.resize(more.size());
    for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
  }
}

}  // namespace kvcheck
