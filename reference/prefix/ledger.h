// What has been computed and kept in a history, as the judge knows it: the tokens of all requests
// as one tree of prefixes, whose nodes have contents, and the prompts that were kept. From it
// follow the longest hit that an open may show and the shortest that it has to (contract.md, C3 and
// C4).

#ifndef REFERENCE_PREFIX_LEDGER_H_
#define REFERENCE_PREFIX_LEDGER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "reference/prefix/content.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {

// A prefix of tokens under an identity and an epoch, that ends with `token`.
struct PrefixNode {
  uint64_t digest = 0;
  int32_t parent = -1;  // -1: of one token
  int32_t token = 0;
  int32_t who = 0;  // index among identities
  int32_t epoch = 0;
  int32_t position = 0;
  int32_t written = -1;  // the operation that first wrote it; -1: nobody has
  int32_t kept = -1;     // the generation in which it was published last
  int64_t content = -1;  // where its bytes are; -1: not made yet
};

// The nodes of a prompt, from its first token on.
using NodePath = std::vector<int32_t>;

struct KeptPrompt {
  NodePath path;
  int64_t used = 0;       // when it was kept or hit last
  bool sure = true;       // it cannot have been evicted
  bool durable = false;   // it survives a restart
  bool in_memory = true;  // where it is sure: not on disk alone
  // A look at a part of something kept: it makes that part recent, and is no prompt.
  bool touch = false;
  int64_t tokens = 0;  // that it may take, the path's at least
  // The shortest hit whose window its request has held: it found so many tokens, and of what is
  // before them it has the window.
  int64_t shortest = 0;
};

class Ledger {
 public:
  // Keeps its memory from history to history.
  void Start(const PrefixSetup& setup);
  void SetStarted(const PrefixStarted& started) { started_ = started; }
  void SetProfile(const PrefixProfile& profile) { profile_ = profile; }
  // From a restart on: contents are of another type.
  void SetType(DType x);

  int32_t Identity(const PrefixIdentity& who);
  const PrefixIdentity& IdentityAt(int32_t index) const {
    return identities_[static_cast<size_t>(index)];
  }
  size_t IdentityCount() const { return identities_.size(); }
  int64_t epoch() const { return epoch_; }
  // The node after `parent` (-1: none) under the present epoch, or that of the parent.
  int32_t Child(int32_t who, int32_t parent, int32_t token);
  // The node if it is known. -1: nobody has named it.
  int32_t FindChild(int32_t who, int32_t parent, int32_t token) const;
  const PrefixNode& At(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  std::span<const PrefixNode> nodes() const { return nodes_; }
  // All vectors of its token (RowLayout); valid until another one is asked for.
  const std::byte* Content(int32_t node);
  const RowLayout& layout() const { return *layout_; }
  // Contents of different nodes with equal bytes: they cannot be told apart.
  int64_t collisions() const { return collisions_; }

  void MarkWritten(int32_t node, int64_t operation);
  // The prompt may hit from now on. sure: and has to, as far as budgets and the profile let it.
  // written: tokens of it that its request wrote itself, and did not find. shortest: KeptPrompt's.
  void Keep(const NodePath& path, bool sure, int64_t written, int64_t shortest = 0);
  // Its rows may hit, and need not.
  void Publish(int32_t node) { nodes_[static_cast<size_t>(node)].kept = generation_; }
  // A hit of the first `tokens` of the path, which takes out what it found or makes it recent.
  void Use(const NodePath& path, int64_t tokens);
  // Somebody looked the path up, or lets go of what he had: its first `certain` tokens are recent,
  // and as many tokens as `perhaps` may be.
  void Touch(const NodePath& path, int64_t certain, int64_t perhaps);
  void Clear();
  void NextEpoch();
  // Nothing of what is kept is sure to be there, apart from what is durable.
  void Evicted();
  // Nothing at all is.
  void Unsure();
  // Files were changed behind the store's back: nothing is sure, and what is kept from now on not
  // to be on disk, until a process begins with them.
  void Damaged();
  void Settle();
  // Only what is durable goes on being sure; without a disk nothing hits.
  void Restart();
  void Save(int key);
  void Load(int key);

  // Tokens in whole blocks.
  int64_t InBlocks(int64_t tokens) const {
    const int64_t block = started_.block_tokens;
    return (tokens + block - 1) / block * block;
  }
  // What may have been evicted is so from now on. held: tokens of all requests in whole blocks.
  void ApplyBudget(int64_t held_tokens);
  // What is kept, every prompt alone.
  int64_t KeptTokens() const;
  const std::vector<KeptPrompt>& kept() const { return kept_; }

  // The longest prefix of the path that was published in the present generation.
  int64_t MostPublished(const NodePath& path) const;
  // The longest hit that the profile lets a prompt of so many tokens have.
  int64_t MostAllowed(int64_t prompt_tokens, bool all) const;
  // The hit that has to be there. held: tokens of all requests in whole blocks, which what comes
  // from disk has to find room beside.
  int64_t Due(const NodePath& path, bool all, int64_t held) const;

 private:
  static void Forget(KeptPrompt* kept);  // by memory
  int64_t DueOf(const KeptPrompt& kept, const NodePath& path, bool all) const;
  // Whether a hit of so many tokens finds all rows that it needs, by partial=last_block.
  bool HasWindowOf(const KeptPrompt& kept, int64_t tokens) const;
  PartialHit Partial() const;  // the profile's, as it is in this case
  uint64_t DigestOf(int32_t who, int32_t parent, int32_t token) const;

  PrefixSetup setup_;
  PrefixStarted started_;
  PrefixProfile profile_;
  std::optional<RowLayout> layout_;
  uint64_t seed_ = 0;
  int64_t epoch_ = 0;
  int32_t generation_ = 0;
  int64_t clock_ = 0;
  bool damaged_ = false;  // since the last start of a process
  std::vector<PrefixIdentity> identities_;
  std::vector<uint64_t> identity_hashes_;
  std::vector<PrefixNode> nodes_;
  std::unordered_map<uint64_t, int32_t> by_digest_;
  std::vector<std::byte> contents_;
  std::unordered_map<uint64_t, int32_t> by_signs_;
  int64_t collisions_ = 0;
  std::vector<KeptPrompt> kept_;
  struct SavedStore {
    bool is_there = false;
    int64_t epoch = 0;
    std::vector<KeptPrompt> sure;     // prompts that are in it
    std::vector<KeptPrompt> perhaps;  // others, which would take their part of the budget
    std::vector<int32_t> published;   // rows that may be in it
  };
  SavedStore saved_[kSavedStores];
};

// Tokens that two paths have in common, from the first one on.
int64_t CommonTokens(const NodePath& a, const NodePath& b);

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_LEDGER_H_
