// Where kept blocks go beyond memory: the seam of a disk tier. PrefixCache asks it where memory
// misses, gives it every block that a kept prompt adds, and passes on what is to be forgotten.
//
// An implementation is called under the cache's lock, block by block, and never for a block that it
// has said to have and still has. It verifies what it reads: a block that is damaged, of another
// identity, of other tokens or of other settings is a miss, and may be stored again.

#ifndef OPTIMIZED_PREFIX_BLOCK_TIER_H_
#define OPTIMIZED_PREFIX_BLOCK_TIER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/spec/prefix_case.h"

namespace kvcheck::optimized {

// Whole blocks are named by all tokens up to their end.
struct TierKey {
  const PrefixIdentity& who;
  std::span<const int32_t> tokens;  // the last block_tokens of them are the block's
};

class BlockTier {
 public:
  virtual ~BlockTier() = default;
  // bytes: the block as PrefixCache stores it. coded: in the formats of the settings; else plain.
  virtual void Store(const TierKey& key, bool coded, std::span<const std::byte> bytes) = 0;
  // False: it has none. *bytes: as given to Store.
  virtual bool Load(const TierKey& key, bool* coded, std::vector<std::byte>* bytes) = 0;
  virtual void Clear() = 0;
  // Everything stored so far hits no more, in this process or a later one.
  virtual void Epoch() = 0;
  virtual void Settle() = 0;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_PREFIX_BLOCK_TIER_H_
