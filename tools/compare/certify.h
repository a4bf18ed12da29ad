// The first pass (first_pass_run.h) over the pairs of a comparison: verdicts on those which it
// proves to pass. All others are for the judge, which alone decides that something fails.

#ifndef TOOLS_COMPARE_CERTIFY_H_
#define TOOLS_COMPARE_CERTIFY_H_

#include <functional>
#include <optional>
#include <vector>

#include "golden/mapped_file.h"
#include "reference/judge/verdict.h"
#include "tools/compare/pairs.h"

namespace kvcheck {

// A file and its bytes, which were opened before the source's index was read.
struct PassFile {
  LockedFile& locked;
  const MappedFile& bytes;
};

// Per pair its verdict with basic metrics, or nullopt. Whole tensors that lie in both files as the
// rule compares them are mapped; parts, casts and chunked tensors are read.
// between: as RunFirstPass; so are the errors.
std::vector<std::optional<Verdict>> CertifyPairs(const std::vector<ComparePair>& pairs,
                                                 const PassFile& gold, const PassFile& got,
                                                 int threads, const std::function<void()>& between);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_CERTIFY_H_
