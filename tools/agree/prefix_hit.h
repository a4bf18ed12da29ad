// The path continued from a cache across requests: what a server says to a second prompt that
// begins like one it has kept.

#ifndef TOOLS_AGREE_PREFIX_HIT_H_
#define TOOLS_AGREE_PREFIX_HIT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tools/agree/path.h"

namespace kvcheck {

// Where the prompt lies when the second one comes: in memory; or on disk alone, as after the end of
// the process that kept it.
enum class KeptIn : uint8_t { kMemory, kDisk };

struct BehindHit {
  int64_t hit_tokens = 0;      // the first so many were not fed
  int64_t missing_tokens = 0;  // that were kept as whole blocks, and did not hit
  std::vector<float> logits;   // of the others: (tokens, vocabulary)
};

// Feeds the first three quarters of a sequence, keeps their K and V in optimized/prefix in full
// precision, opens a request for the whole sequence, and feeds what did not hit through caches
// into which the hit was read. Errors: those of PathRun, and of PrefixDisk in a temporary folder.
BehindHit FeedBehindHit(optimized::Decoder* decoder, const PathStorage& storage,
                        std::span<const int64_t> tokens, int64_t chunk, KeptIn place);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_PREFIX_HIT_H_
