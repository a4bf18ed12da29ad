// The reference store (model_store.h) as named rules, each of which a fault may replace. An empty
// rule is the contract. A rule that is there changes what the contract made, and counts how often
// that made a difference, so that a fault that was never exercised is not mistaken for one that was
// not caught.

#ifndef REFERENCE_PREFIX_RULES_H_
#define REFERENCE_PREFIX_RULES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/prefix/content.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {

// What a block is looked up by: the key of the block before it, or of the identity, and its tokens.
struct BlockKey {
  int64_t before = 0;
  std::vector<int32_t> tokens;
};
struct BlockKeyQuestion {
  int64_t index = 0;    // of the block in its prompt
  int64_t root = 0;     // the key of the identity
  int64_t process = 0;  // how often the process was started
};

struct FoundQuestion {
  int64_t prompt_tokens = 0;
  int64_t block_tokens = 0;
  int64_t blocks = 0;    // found one after the other, from the first one on
  int64_t opens = 0;     // of this process, this one included
  int64_t shortest = 0;  // tokens of the shortest prompt that was closed to be kept; 0: none
  bool all = false;
};

// Rows of some tokens of a block or of a hit, token after token, each as RowLayout says.
struct RowsOfTokens {
  const RowLayout* layout = nullptr;
  std::span<std::byte> bytes;
  int64_t tokens = 0;
  int64_t first = 0;  // position of the first of them
  std::span<std::byte> Vector(int64_t token, int64_t layer, int64_t head, TokenPart part) const {
    return bytes.subspan(
        static_cast<size_t>(token * layout->TokenBytes() + layout->Offset(layer, head, part)),
        static_cast<size_t>(layout->VectorBytes(part)));
  }
};

enum class RefEvent : uint8_t {
  kHit,      // a request pins a block that another request holds
  kRevival,  // one that nobody holds
  kFork,
  kClose,
  kTrim,
};

struct BlockState {
  int64_t refs = 0;
  bool published = false;
  int64_t held = 0;  // blocks that requests hold, all of them together
};

enum class PublishEvent : uint8_t {
  kClose,         // a whole block of a request that is kept
  kTail,          // one that is not whole
  kUnkept,        // of a request that is closed without being kept
  kOlderEpoch,    // of a request of an epoch before
  kBeforeWriting  // at the open, of what is still to be written
};

enum class ForgetEvent : uint8_t { kClearMemory, kClearDisk, kEpochMemory, kEpochDisk, kEpochKey };

// What is wrong with a record of the disk tier.
enum class FileFault : uint8_t { kCut, kHash, kForeign, kKey, kSetup };

struct PrefixRules {
  // Keys.
  std::function<void(PrefixIdentity* who)> identity;
  std::function<void(const PrefixIdentity& who, std::string* text)> identity_text;
  std::function<void(const BlockKeyQuestion&, BlockKey* key)> block_key;
  // Lookups.
  std::function<void(const FoundQuestion&, int64_t* tokens)> found;
  std::function<void(const RowsOfTokens&)> shown;  // of a hit
  // Blocks.
  std::function<void(RefEvent, int64_t* change)> refs;
  std::function<void(const BlockState&, bool* may)> may_evict;
  std::function<void(bool* forgets)> evicted_key;   // whether an evicted block is looked up no more
  std::function<void(bool* copies)> copy_on_write;  // before a write into what others have
  std::function<void(bool* zeroes)> takes_block;    // whether the block is as a free one is
  std::function<void(const RowsOfTokens&)> written;  // what a request has just written
  std::function<void(const RowsOfTokens&)> forked;   // rows of a block that a fork shares
  // Keeping.
  std::function<void(PublishEvent, bool* does)> publishes;
  std::function<void(int64_t longest, int64_t* tokens)> live_tokens;  // of a request, when kept
  std::function<void(const RowsOfTokens&)> stored;                    // rows as they are kept
  std::function<void(ForgetEvent, bool* does)> forgets;
  // Disk.
  std::function<void(int64_t index, int64_t blocks, bool* does)> writes_block;
  std::function<void(int64_t key, int64_t* name)> file_name;
  std::function<void(FileFault, bool* accepts)> accepts;
  std::function<void(const RowsOfTokens&)> restored;
  // Room and numbers.
  std::function<void(int64_t needed, int64_t available, bool* fits)> fits;
  std::function<void(bool* half_done)> full_write;
  std::function<void(PrefixOpKind, std::string_view* why)> legal;
  std::function<void(PrefixCounters*)> counters;

  std::shared_ptr<std::atomic<int64_t>> hits = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_RULES_H_
