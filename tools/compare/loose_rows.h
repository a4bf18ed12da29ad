// Whether a tolerance that the first pass proved to hold is so loose that the judge would say so:
// it counts by rows (reference/judge/accumulate.h), of which the pass knows nothing.

#ifndef TOOLS_COMPARE_LOOSE_ROWS_H_
#define TOOLS_COMPARE_LOOSE_ROWS_H_

#include <cstdint>

#include "optimized/compare/first_pass.h"
#include "tools/compare/pairs.h"

namespace kvcheck {

struct LooseCounts {
  int64_t loose = 0;  // as JudgeCounts has it
  int64_t rows = 0;   // of which at least half of the elements are such
};

// summary: of this pair, all of whose elements pass. Reads both tensors where anything can be
// loose. Errors: those of reading.
LooseCounts CountLoose(const ComparePair& pair, LockedFile& gold, LockedFile& got,
                       const PassSummary& summary, int threads);

// False where the judge would neither warn of so many nor mistrust the pair for them.
bool IsWorthSaying(const LooseCounts& counts, const PassSummary& summary);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_LOOSE_ROWS_H_
