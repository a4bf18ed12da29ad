// Where kept blocks go beyond memory: the seam of a disk tier. PrefixCache asks it where memory
// misses, gives it every block that a kept prompt adds, and passes on what is to be forgotten.
//
// An implementation is called under the cache's lock, block by block, and verifies what it reads: a
// block that is damaged, of another identity, of other tokens or of other settings is a miss, and
// may be stored again.

#ifndef OPTIMIZED_PREFIX_BLOCK_TIER_H_
#define OPTIMIZED_PREFIX_BLOCK_TIER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/prefix_implementation.h"

namespace kvcheck::optimized {

// Whole blocks are named by all tokens up to their end.
struct TierKey {
  const PrefixIdentity& who;
  std::span<const int32_t> tokens;  // the last block_tokens of them are the block's
};

enum class BlockState : uint8_t {
  kPlain,
  kDecoded,  // plain, and some of its rows were codes once: they are not rounded a second time
  kCoded,    // in the formats of the settings
};

class BlockTier {
 public:
  virtual ~BlockTier() = default;
  // bytes: the block as block_bytes.h lays it out. It replaces what is there under the key.
  virtual void Store(const TierKey& key, BlockState state, std::span<const std::byte> bytes) = 0;
  // What was stored since the last call: a later process has it from now on.
  virtual void Commit() = 0;
  // False: it has none. *bytes: as given to Store.
  virtual bool Load(const TierKey& key, BlockState* state, std::vector<std::byte>* bytes) = 0;
  virtual void Clear() = 0;
  // Everything stored so far hits no more, in this process or a later one.
  virtual void Epoch() = 0;
  virtual void Settle() = 0;
};

struct KeptBlock {
  int64_t before = -1;  // index of the block before it; -1: the first of its prompt
  PrefixIdentity who;
  std::vector<int32_t> tokens;  // its own
  BlockState state = BlockState::kPlain;
  std::shared_ptr<const std::byte[]> bytes;
  int64_t size = 0;
};

// All that a cache has kept in memory.
struct KeptStore {
  std::vector<KeptBlock> blocks;  // most recent first, and each after the one before it
  // Where the number of prompts is limited: the last block of each, most recent first.
  std::vector<int64_t> prompts;
};

// What stays between processes: a tier, and whole stores under keys.
class PrefixStorage : public BlockTier {
 public:
  // The store under the key is replaced, or stays as it was. Refused: it cannot be written.
  virtual OpResult Save(int key, const KeptStore& store) = 0;
  // Refused: there is none, it is damaged, of other settings or saved under other weights.
  virtual OpResult Load(int key, KeptStore* store) = 0;
  using BlockTier::Load;
  // Why something could not be written, since it was made; "": all was.
  virtual std::string Unwritten() const { return {}; }
  // PrefixImplementation::KillAtWrite.
  virtual bool KillAtWrite(int64_t write) { return static_cast<void>(write), false; }
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_PREFIX_BLOCK_TIER_H_
