// The blocks of the reference store: their keys, who holds them, and which is evicted.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reference/prefix/model_store.h"

namespace kvcheck {

int64_t ModelStore::Intern(const std::string& text) {
  return keys_.try_emplace(text, static_cast<int64_t>(keys_.size())).first->second;
}

int64_t ModelStore::RootKey(const PrefixIdentity& who) {
  PrefixIdentity used = who;
  if (rules_.identity) rules_.identity(&used);
  std::string text = Print(used);
  if (rules_.identity_text) rules_.identity_text(used, &text);
  // The epoch is part of what rows are.
  int64_t epoch = epoch_;
  if (!Does(ForgetEvent::kEpochKey)) epoch = 0;
  return Intern(fmt::format("who {} epoch {}", text, epoch));
}

int64_t ModelStore::KeyOf(int64_t root, int64_t before, int64_t index,
                          std::span<const int32_t> tokens) {
  BlockKey key = {before, {tokens.begin(), tokens.end()}};
  if (rules_.block_key) rules_.block_key({index, root, process_}, &key);
  return Intern(fmt::format("block {} {}", key.before, fmt::join(key.tokens, ",")));
}

std::vector<int64_t> ModelStore::KeysOf(int64_t root, std::span<const int32_t> tokens) {
  const auto block = static_cast<size_t>(setup_.block_tokens);
  std::vector<int64_t> keys;
  for (size_t at = 0; at + block <= tokens.size(); at += block) {
    const int64_t before = keys.empty() ? root : keys.back();
    keys.push_back(KeyOf(root, before, std::ssize(keys), tokens.subspan(at, block)));
  }
  return keys;
}

int64_t ModelStore::Find(int64_t key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? -1 : found->second;
}

bool ModelStore::MayEvict(const Block& block) const {
  bool may = block.refs <= 0 && block.key >= 0;
  if (rules_.may_evict) {
    int64_t held = 0;
    for (const Block& other : blocks_) held += other.refs > 0 ? 1 : 0;
    rules_.may_evict({block.refs, block.key >= 0, held}, &may);
  }
  return may;
}

int64_t ModelStore::FreeCount() const {
  return std::count_if(blocks_.begin(), blocks_.end(),
                       [&](const Block& block) { return IsFree(block); });
}

int64_t ModelStore::EvictableCount() const {
  return std::count_if(blocks_.begin(), blocks_.end(),
                       [&](const Block& block) { return MayEvict(block); });
}

void ModelStore::Unpublish(Block* block) {
  if (block->key < 0) return;
  bool forgets = true;
  if (rules_.evicted_key) rules_.evicted_key(&forgets);
  const auto found = index_.find(block->key);
  if (forgets && found != index_.end() && found->second == block - blocks_.data()) {
    index_.erase(found);
  }
  block->key = -1;
}

bool ModelStore::EvictOne() {
  Block* oldest = nullptr;
  for (Block& block : blocks_) {
    if (MayEvict(block) && (oldest == nullptr || block.used < oldest->used)) oldest = &block;
  }
  if (oldest == nullptr) return false;
  Unpublish(oldest);
  oldest->refs = 0;
  return true;
}

int64_t ModelStore::Take() {
  while (true) {
    for (size_t id = 0; id < blocks_.size(); ++id) {
      Block& block = blocks_[id];
      if (!IsFree(block)) continue;
      bool zeroes = true;
      if (rules_.takes_block) rules_.takes_block(&zeroes);
      if (zeroes) std::fill(block.rows.begin(), block.rows.end(), kUnwritten);
      block.refs = 1;
      block.coded = false;
      block.used = ++clock_;
      return static_cast<int64_t>(id);
    }
    if (!EvictOne()) return -1;
  }
}

void ModelStore::Pin(int64_t id, RefEvent event) {
  int64_t change = 1;
  if (rules_.refs) rules_.refs(event, &change);
  Block& block = blocks_[static_cast<size_t>(id)];
  block.refs += change;
  block.used = ++clock_;
}

void ModelStore::Release(int64_t id, RefEvent event) {
  int64_t change = 1;
  if (rules_.refs) rules_.refs(event, &change);
  Block& block = blocks_[static_cast<size_t>(id)];
  block.refs -= change;
  block.used = ++clock_;
}

}  // namespace kvcheck
