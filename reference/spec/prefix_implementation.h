// What an implementation of prefix caches is: our optimized one, the reference store, a fault of
// it, an adapter of a real engine. The calls are those of reference/prefix/contract.md, and fit
// three families: stores of snapshots (mlx-lm's LRUPromptCache), stores of blocks with content
// (LMCache), and managers of blocks without content (vLLM's KVCacheManager), which answer with ids
// (PrefixRows::blocks alone; reference/prefix/block_memory.h keeps the memory behind the ids).
//
// The life of a request is Open (lookup and pin), Write (what "the model" has computed), Close
// (keep it for others, or not). To store is Open, Write, Close(keep); to fetch is Open, Close. A
// store of snapshots collects what is written and stores it in Close. One without pins copies in
// Open and answers Read from its copy.
//
// Rules for all calls.
//   Refused      an illegal call: a message, and nothing has changed.
//   Unsupported  a legal call that this implementation does not have, or a field of it (an identity
//                without a salt, say): never to be ignored. Nothing has changed either.
//   Losses       calls may throw an ImplementationLoss (implementation_loss.h), and PrefixKilled
//                where KillAtWrite was asked for.
//   Requests     are numbered by the caller, 0 to kRequests - 1; a number is used again after its
//                request was closed. Calls name open requests alone.
//   Threads      calls come from one thread.

#ifndef REFERENCE_SPEC_PREFIX_IMPLEMENTATION_H_
#define REFERENCE_SPEC_PREFIX_IMPLEMENTATION_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/prefix_case.h"
#include "reference/spec/prefix_profile.h"
#include "reference/spec/prefix_space.h"

namespace kvcheck {

// Distances in bytes; the channels of one vector are contiguous.
struct PrefixStrides {
  int64_t layer = 0;
  int64_t head = 0;
  int64_t token = 0;
};

// K and V of consecutive tokens, as a model reads or writes them: K (layers, kv_heads, tokens,
// k_dim), V (layers, kv_heads, tokens, v_dim) of type dtype, little endian.
struct PrefixVectors {
  DType dtype = DType::kFloat32;
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t tokens = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  PrefixStrides k_strides;
  PrefixStrides v_strides;

  const std::byte* K(int64_t layer, int64_t head, int64_t token) const {
    return k + layer * k_strides.layer + head * k_strides.head + token * k_strides.token;
  }
  const std::byte* V(int64_t layer, int64_t head, int64_t token) const {
    return v + layer * v_strides.layer + head * v_strides.head + token * v_strides.token;
  }
};

// What a request has, as views, valid until the next call. Dequantized where it is stored in codes:
// rows are what attention would read.
struct PrefixRows {
  // Null pointers: this implementation has ids alone.
  PrefixVectors vectors;
  // (layers, tokens) bytes, 1 where the row of the layer is there: of layers with a window, older
  // ones may be gone. Null: all are there. Rows that are not there are not looked at.
  const uint8_t* retained = nullptr;
  // Of implementations with blocks: the one that holds tokens i block_tokens and on, for every i;
  // empty: it has none to show. -1 stands for a block that is gone (older than every window).
  std::span<const int64_t> blocks;
};

struct PrefixHit {
  int64_t tokens = 0;  // the first so many of the prompt are there: they need not be written
  PrefixTier tier = PrefixTier::kMemory;
  bool tier_is_known = true;  // false: it cannot tell
  PrefixRows rows;            // of these tokens
};

// As they are, whatever the setup wished for.
struct PrefixStarted {
  int64_t block_tokens = 1;  // of hits; 1 of stores of snapshots
  // What requests and kept rows may hold together, in tokens.
  int64_t capacity_tokens = 0;
  // Whether open requests count in the capacity; not so where a store of snapshots collects.
  bool holds_requests = true;
};

// Where an implementation cannot tell, kUnknown.
struct PrefixCounters {
  static constexpr int64_t kUnknown = -1;
  int64_t entries = kUnknown;  // kept prompts, of stores of snapshots
  int64_t bytes = kUnknown;    // of kept rows and of what requests hold, in memory
  int64_t budget_bytes = kUnknown;
  // Of stores and managers of blocks: free + cached + held = total.
  int64_t blocks_total = kUnknown;
  int64_t blocks_free = kUnknown;    // without content that may hit
  int64_t blocks_cached = kUnknown;  // kept, and held by no request
  int64_t blocks_held = kUnknown;    // by open requests, each counted once
  // Since Start or the last Restart, as the implementation counts.
  int64_t lookups = kUnknown;     // calls of Open that looked something up
  int64_t hits = kUnknown;        // of these, with a hit of at least one token
  int64_t hit_tokens = kUnknown;  // the sum of PrefixHit::tokens
};

struct PrefixCapabilities {
  std::string name;
  std::string version;
  PrefixProfile prefix_profile;
  Profile profile{};                  // of codes
  std::vector<PrefixSpace> spaces{};  // one or the other holds for a whole case. Empty: everything
  bool foreign = false;               // as CacheCapabilities
  std::vector<std::string> warnings{};
};

// Thrown out of a call in which the process ended at the write that KillAtWrite named: what it
// answers does not arrive any more. Restart follows.
class PrefixKilled : public std::exception {
 public:
  const char* what() const noexcept override { return "killed at a write to the folder"; }
};

class PrefixImplementation {
 public:
  virtual ~PrefixImplementation() = default;
  virtual PrefixCapabilities GetCapabilities() const = 0;
  // Whether it keeps its disk tier in the folder that Start names, whose files are then damaged by
  // whoever runs it. False: it has no disk, or stands for one itself (Damage).
  virtual bool UsesFolder() const { return false; }

  // An empty store; all requests are gone. folder: empty, and only for this; "" without a disk.
  virtual OpResult Start(const PrefixSetup& setup, const std::string& folder,
                         PrefixStarted* started) = 0;
  // Ends the process and starts another one on the same folder, which may have changed between.
  // orderly: after an end that let it finish its writes; else it was killed. Open requests are
  // gone. setup: that of Start, with another block or type of vectors where the case says so.
  virtual OpResult Restart(const PrefixSetup& setup, bool orderly, PrefixStarted* started) = 0;

  // Looks the prompt up for this identity, pins what is found and begins a request of it.
  // all: every token may hit; else one at least is left to compute.
  virtual OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who,
                        bool all, PrefixHit* hit) = 0;
  // K and V of the request's next tokens, whose ids these are: those of its prompt behind the hit,
  // then what was generated. *full: there was no room, and nothing has changed.
  // Refused: vectors of another shape or type than the setup's.
  virtual OpResult Write(int request, std::span<const int32_t> tokens, const PrefixVectors& vectors,
                         bool* full) = 0;
  // What the request has now: its hit and everything written.
  virtual OpResult Read(int request, PrefixRows* rows) = 0;
  // keep: what it has written may hit from now on (as far as the profile says).
  virtual OpResult Close(int request, bool keep) = 0;
  // A second request with the same tokens, which goes on alone. Its prompt is that of the first.
  virtual OpResult Fork(int request, int out) = 0;
  // The request has its first `tokens` tokens alone. Refused: more than it has, a negative number,
  // and tokens whose window is not retained any more.
  virtual OpResult TrimTo(int request, int64_t tokens) = 0;
  // Forgets kept rows that no request holds until there is room for so many tokens more, or nothing
  // is left to forget.
  virtual OpResult Evict(int64_t tokens) = 0;
  // Everything that no request holds is forgotten, in every tier.
  virtual OpResult Clear() = 0;
  // The model's weights have changed: rows of before hit no more, in any tier or process. What open
  // requests hold stays readable, and is not kept.
  virtual OpResult Epoch() = 0;
  // Waits for whatever is written in the background.
  virtual OpResult Settle() = 0;
  // Everything kept in memory, to a file of its own, and what such a file holds as kept again.
  // Refused: nothing under the key, or a file of another setup.
  virtual OpResult Save(int key) = 0;
  virtual OpResult Load(int key) = 0;

  // The process ends at this write to the folder from here on (1: the next one), by PrefixKilled,
  // if the next call makes as many. False: it cannot be asked for.
  virtual bool KillAtWrite(int64_t write) { return static_cast<void>(write), false; }
  // Damages what it keeps in place of files. Of implementations that use no folder.
  virtual OpResult Damage(FileDamage damage, int64_t at) {
    static_cast<void>(damage), static_cast<void>(at);
    return OpResult::Unsupported("there is no folder");
  }

  // Why something that was to be written to the folder was not (a full disk), since Start; "": all
  // was written. What was kept may then be missing, and nothing is proved by it.
  virtual std::string Unwritten() const { return {}; }

  virtual void Observe(PrefixCounters* counters) { static_cast<void>(counters); }
};

// Without gaps: k holds layers x kv_heads x tokens x k_dim elements, v likewise.
inline PrefixVectors DenseVectors(const PrefixSetup& setup, int64_t tokens, const std::byte* k,
                                  const std::byte* v) {
  const auto strides = [&](int64_t dim) {
    const int64_t token = dim * static_cast<int64_t>(SizeInBytes(setup.x));
    return PrefixStrides{token * tokens * setup.kv_heads, token * tokens, token};
  };
  return {setup.x, setup.layers,         setup.kv_heads,      tokens, setup.k_dim, setup.v_dim, k,
          v,       strides(setup.k_dim), strides(setup.v_dim)};
}

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PREFIX_IMPLEMENTATION_H_
