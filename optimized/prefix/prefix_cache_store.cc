// All that a cache has kept, to be saved, and such a store kept again.

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "optimized/prefix/prefix_cache_block.h"

namespace kvcheck::optimized {
namespace {

// All tokens up to the end of the block.
std::vector<int32_t> PromptTo(const KeptStore& store, const KeptBlock& block) {
  std::vector<int32_t> reversed;
  for (const KeptBlock* at = &block;; at = &store.blocks[static_cast<size_t>(at->before)]) {
    reversed.insert(reversed.end(), at->tokens.rbegin(), at->tokens.rend());
    if (at->before < 0) return {reversed.rbegin(), reversed.rend()};
  }
}

}  // namespace

KeptStore PrefixCache::Kept() {
  const std::lock_guard lock(mutex_);
  std::vector<const Block*> order;
  for (const auto& [hash, block] : index_) {
    if (block->requests > 0) order.push_back(block.get());
  }
  // What requests have is the most recent of all; among it, what was kept last.
  std::sort(order.begin(), order.end(),
            [](const Block* a, const Block* b) { return a->serial > b->serial; });
  for (const Block* block = newest_; block != nullptr; block = block->older) order.push_back(block);
  KeptStore store;
  std::unordered_map<const Block*, int64_t> places;
  // The place of a block, after those before it; -1: a lookup does not come so far.
  const auto place_of = [&](const Block* block) -> int64_t {
    std::vector<const Block*> missing;
    for (const Block* at = block; at != nullptr && !places.contains(at); at = at->parent.get()) {
      if (!at->found) return -1;
      missing.push_back(at);
    }
    for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
      const Block& one = **at;
      KeptBlock kept{-1, {}, one.tokens, one.state, one.bytes, one.size};
      if (one.parent != nullptr) {
        kept.before = places.at(one.parent.get());
        kept.who = store.blocks[static_cast<size_t>(kept.before)].who;
      } else {
        kept.who = std::find_if(roots_.begin(), roots_.end(), [&](const Root& root) {
                     return root.serial == one.before;
                   })->who;
      }
      places.emplace(*at, std::ssize(store.blocks));
      store.blocks.push_back(std::move(kept));
    }
    return places.at(block);
  };
  for (const Block* block : order) place_of(block);
  std::vector<const Prompt*> prompts;
  for (const Prompt& prompt : prompts_) prompts.push_back(&prompt);
  std::sort(prompts.begin(), prompts.end(),
            [](const Prompt* a, const Prompt* b) { return a->used > b->used; });
  for (const Prompt* prompt : prompts) {
    const int64_t place = place_of(prompt->end.get());
    if (place >= 0) store.prompts.push_back(place);
  }
  return store;
}

void PrefixCache::Keep(const KeptStore& store) {
  const std::lock_guard lock(mutex_);
  std::vector<BlockRef> blocks;  // null: outside of memory
  bool is_full = false;
  for (const KeptBlock& kept : store.blocks) {
    const BlockRef parent = kept.before < 0 ? nullptr : blocks[static_cast<size_t>(kept.before)];
    const bool is_reached = kept.before < 0 || parent != nullptr;
    const uint64_t root = RootOf(kept.who);
    BlockRef block =
        is_reached ? Find(parent == nullptr ? root : parent->serial, kept.tokens) : nullptr;
    if (block != nullptr) {
      Pin(block);
    } else {
      // What is less recent than what found no room goes without, but for the tier.
      is_full = is_full || !MakeRoom(kept.size);
      if (is_reached && !is_full) {
        block = MakeBlock(kept.size);
        block->state = kept.state;
        std::memcpy(block->bytes.get(), kept.bytes.get(), static_cast<size_t>(kept.size));
        counters_.bytes += kept.size;
        InsertAfter(parent, root, kept.tokens, block);
      }
      if (tier_ != nullptr) {
        tier_->Store({kept.who, PromptTo(store, kept)}, kept.state,
                     {kept.bytes.get(), static_cast<size_t>(kept.size)});
      }
    }
    blocks.push_back(std::move(block));
  }
  for (auto end = store.prompts.rbegin(); end != store.prompts.rend(); ++end) {
    const BlockRef& block = blocks[static_cast<size_t>(*end)];
    if (block != nullptr) NotePrompt(block);
  }
  if (tier_ != nullptr) tier_->Commit();
  while (!blocks.empty()) {
    if (blocks.back() != nullptr) Unpin(blocks.back());
    blocks.pop_back();
  }
}

}  // namespace kvcheck::optimized
