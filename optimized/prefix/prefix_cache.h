// Keeps K and V of prompts in memory for later prompts that begin alike: what a server holds across
// requests (reference/prefix/contract.md). Thread-safe; one object a model.
//
// Blocks of block_tokens tokens. A kept block is found by a hash of the block before it and its
// tokens, and an equal hash is never enough: both are compared. A hit is the longest run of blocks
// that the prompt shares with anything kept, so that exact, shorter, longer (cut) and parting
// prompts hit alike. Prompts of at least quantize_from tokens are kept in codes. What nobody reads
// goes when the budget in bytes, or that of kept prompts, is passed: least recently used first,
// blocks from the end of their prompts on.
//
// A request has blocks of its own, which nobody else writes, and kept ones, which nobody writes.
// Memory of both counts in the budget; kept ones that a request reads stay.

#ifndef OPTIMIZED_PREFIX_PREFIX_CACHE_H_
#define OPTIMIZED_PREFIX_PREFIX_CACHE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "optimized/prefix/block_bytes.h"
#include "optimized/prefix/block_tier.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck::optimized {

class PrefixCache {
 public:
  struct Counters {
    int64_t prompts = 0;  // kept, where their number is limited
    int64_t blocks = 0;   // that a lookup may find
    int64_t bytes = 0;    // of all blocks
    int64_t budget_bytes = 0;
    int64_t lookups = 0;
    int64_t hits = 0;
    int64_t hit_tokens = 0;
  };

  // Bytes of capacity_tokens in whole blocks are the budget. tier: null, or beyond this object's
  // life. Precondition: setup is that of a legal case.
  explicit PrefixCache(const PrefixSetup& setup, BlockTier* tier = nullptr);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // A request's own; used by one thread at a time.
  class Request;

  // all: the last token may hit. Null: never.
  std::unique_ptr<Request> Open(std::span<const int32_t> prompt, const PrefixIdentity& who,
                                bool all);
  // False: there is no room, and nothing has changed.
  bool Append(Request* request, std::span<const int32_t> tokens, const PrefixVectors& vectors);
  // K and V of all its tokens, dense; rows.tokens of memory for each vector.
  void Read(const Request& request, const DenseRows& rows);
  // keep: its whole blocks may hit from now on, unless the weights have changed since it began.
  void Close(std::unique_ptr<Request> request, bool keep);
  // Null: there is no room for the copy of its last block.
  std::unique_ptr<Request> Fork(const Request& request);
  // Precondition: 0 <= tokens <= the request's.
  void TrimTo(Request* request, int64_t tokens);
  // Forgets what nobody reads until `tokens` more find room, or nothing is left.
  void Evict(int64_t tokens);
  void Clear();
  void Epoch();
  void Settle();
  // What is kept, and such a store kept as if it were now: the most recent of it that fits, and all
  // of it in the tier.
  // Precondition of Keep: it is of a cache of the same setup and weights.
  KeptStore Kept();
  void Keep(const KeptStore& store);
  Counters GetCounters();

 private:
  struct Block;
  using BlockRef = std::shared_ptr<Block>;
  struct Root {
    PrefixIdentity who;
    uint64_t epoch = 0;
    uint64_t serial = 0;
  };
  // A prompt that was kept, by its last whole block.
  struct Prompt {
    BlockRef end;
    int64_t used = 0;
  };

  // All under the lock.
  uint64_t RootOf(const PrefixIdentity& who);
  BlockRef Find(uint64_t before, std::span<const int32_t> tokens) const;
  BlockRef FindInTier(const PrefixIdentity& who, std::span<const int32_t> prompt,
                      const BlockRef& before, uint64_t root);
  void Insert(const BlockRef& block);
  void Forget(Block* block);  // it is found no more
  void ForgetAll();
  void Pin(const BlockRef& block);
  void Unpin(const BlockRef& block);
  void Link(Block* block);
  void Unlink(Block* block);
  bool MakeRoom(int64_t bytes);
  bool EvictOldest();
  void NotePrompt(const BlockRef& end);
  std::unique_ptr<BlockBytes> TakeRows();
  BlockRef MakeBlock(int64_t size) const;
  // Makes a found block of these, which one request has.
  void InsertAfter(const BlockRef& before, uint64_t root, std::span<const int32_t> tokens,
                   const BlockRef& block);

  // Codes in place of the request's own blocks; without the lock.
  std::vector<BlockRef> InCodes(Request* request, int64_t count);

  const PrefixSetup setup_;
  BlockTier* const tier_;
  int64_t plain_bytes_ = 0;  // of a block
  int64_t budget_bytes_ = 0;
  std::mutex mutex_;
  // By the hash of what a block is: the serial of what is before it, and its tokens.
  std::unordered_multimap<uint64_t, BlockRef> index_;
  std::vector<Root> roots_;
  std::vector<Prompt> prompts_;  // where their number is limited
  std::vector<std::unique_ptr<BlockBytes>> free_rows_;
  uint64_t next_serial_ = 1;
  uint64_t epoch_ = 0;
  int64_t clock_ = 0;
  // Found blocks that no request has, in the order in which they go.
  Block* oldest_ = nullptr;
  Block* newest_ = nullptr;
  Counters counters_;
};

class PrefixCache::Request {
 public:
  int64_t tokens() const { return tokens_; }
  int64_t hit_tokens() const { return hit_tokens_; }
  bool is_from_tier() const { return is_from_tier_; }

 private:
  friend class PrefixCache;
  PrefixIdentity who_;
  uint64_t root_ = 0;
  uint64_t epoch_ = 0;
  int64_t tokens_ = 0;
  int64_t hit_tokens_ = 0;
  bool is_from_tier_ = false;
  std::vector<int32_t> ids_;  // of its tokens
  std::vector<BlockRef> blocks_;
  std::unique_ptr<BlockBytes> rows_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_PREFIX_PREFIX_CACHE_H_
