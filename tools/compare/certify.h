// The first pass (first_pass_run.h) over the pairs of a comparison: which of them it proves to
// pass, and the verdict on these. All others are for the judge, which alone decides that something
// fails.

#ifndef TOOLS_COMPARE_CERTIFY_H_
#define TOOLS_COMPARE_CERTIFY_H_

#include <functional>
#include <utility>
#include <vector>

#include "golden/mapped_file.h"
#include "optimized/compare/first_pass.h"
#include "reference/judge/verdict.h"
#include "tools/compare/pairs.h"

namespace kvcheck {

// A file and its bytes, which were opened before the source's index was read; of a folder of shards
// nullptr.
struct PassFile {
  LockedFile& locked;
  const MappedFile* bytes;
};

// What the pass measured of the pairs that it proves to pass.
class Certificates {
 public:
  Certificates() = default;
  // index: the pair of each summary, ascending.
  Certificates(std::vector<PassSummary> summaries, std::vector<size_t> index)
      : summaries_(std::move(summaries)), index_(std::move(index)) {}
  // nullptr for every other pair. Whether its tolerance is too loose for some rows, loose_rows.h
  // says.
  const PassSummary* Of(size_t pair) const;

 private:
  std::vector<PassSummary> summaries_;
  std::vector<size_t> index_;
};

// Whole tensors that lie in
// both files as the rule compares them are mapped; parts, casts and chunked tensors are read.
// between: as RunFirstPass; so are the errors.
Certificates CertifyPairs(const std::vector<ComparePair>& pairs, const PassFile& gold,
                          const PassFile& got, int threads, const std::function<void()>& between);

// The verdict on such a pair, with basic metrics. Made when it is reported: ten thousand of them
// would take more memory than everything else.
Verdict CertifiedVerdict(const ComparePair& pair, LockedFile& gold, LockedFile& got,
                         const PassSummary& summary);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_CERTIFY_H_
