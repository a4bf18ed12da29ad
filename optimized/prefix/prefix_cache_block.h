// A block of the cache, for its own sources.

#ifndef OPTIMIZED_PREFIX_PREFIX_CACHE_BLOCK_H_
#define OPTIMIZED_PREFIX_PREFIX_CACHE_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "optimized/prefix/prefix_cache.h"

namespace kvcheck::optimized {

struct PrefixCache::Block {
  uint64_t serial = 0;
  uint64_t before = 0;  // the serial of the block, or of the identity, before it
  std::vector<int32_t> tokens;
  std::shared_ptr<std::byte[]> bytes;
  int64_t size = 0;
  BlockState state = BlockState::kPlain;
  bool found = false;    // a lookup may find it
  int64_t requests = 0;  // that have it
  int64_t prompts = 0;   // that were kept and go through it, where their number is limited
  BlockRef parent;       // of found blocks; null: the first of its prompt
  Block* older = nullptr;
  Block* newer = nullptr;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_PREFIX_PREFIX_CACHE_BLOCK_H_
