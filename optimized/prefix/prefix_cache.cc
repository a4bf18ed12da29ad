#include "optimized/prefix/prefix_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "optimized/prefix/prefix_cache_block.h"

namespace kvcheck::optimized {
namespace {

// Of one block: mixed 64 bits at a time. Collisions cost a comparison, never a wrong hit.
uint64_t HashOf(uint64_t before, std::span<const int32_t> tokens) {
  uint64_t hash = before * 0x9e3779b97f4a7c15u;
  for (const int32_t token : tokens) {
    hash ^= static_cast<uint32_t>(token);
    hash *= 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

PrefixCache::PrefixCache(const PrefixSetup& setup, BlockTier* tier) : setup_(setup), tier_(tier) {
  const BlockBytes rows(setup_);
  plain_bytes_ = rows.plain_bytes();
  budget_bytes_ = setup_.capacity_tokens / setup_.block_tokens * plain_bytes_;
  counters_.budget_bytes = budget_bytes_;
}

// Of long prompts, so that no block ends the one before it.
PrefixCache::~PrefixCache() { ForgetAll(); }

uint64_t PrefixCache::RootOf(const PrefixIdentity& who) {
  for (const Root& root : roots_) {
    if (root.epoch == epoch_ && root.who == who) return root.serial;
  }
  roots_.push_back({who, epoch_, next_serial_++});
  return roots_.back().serial;
}

PrefixCache::BlockRef PrefixCache::Find(uint64_t before, std::span<const int32_t> tokens) const {
  const auto [begin, end] = index_.equal_range(HashOf(before, tokens));
  for (auto it = begin; it != end; ++it) {
    const Block& block = *it->second;
    if (block.before == before && std::ranges::equal(block.tokens, tokens)) return it->second;
  }
  return nullptr;
}

void PrefixCache::Link(Block* block) {
  block->older = newest_;
  block->newer = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->newer) = block;
  newest_ = block;
}

void PrefixCache::Unlink(Block* block) {
  (block->older == nullptr ? oldest_ : block->older->newer) = block->newer;
  (block->newer == nullptr ? newest_ : block->newer->older) = block->older;
  block->older = block->newer = nullptr;
}

void PrefixCache::Pin(const BlockRef& block) {
  if (block->requests++ == 0 && block->found) Unlink(block.get());
}

void PrefixCache::Unpin(const BlockRef& block) {
  if (--block->requests > 0) return;
  if (block->found) {
    Link(block.get());
  } else {
    counters_.bytes -= block->size;
  }
}

// The block is in no list: somebody has it.
void PrefixCache::Insert(const BlockRef& block) {
  block->found = true;
  index_.emplace(HashOf(block->before, block->tokens), block);
  ++counters_.blocks;
}

void PrefixCache::Forget(Block* block) {
  if (!block->found) return;
  block->found = false;
  --counters_.blocks;
  if (block->requests == 0) {
    Unlink(block);
    counters_.bytes -= block->size;
  }
  const auto [begin, end] = index_.equal_range(HashOf(block->before, block->tokens));
  for (auto it = begin; it != end; ++it) {
    if (it->second.get() != block) continue;
    index_.erase(it);  // and with it the block, unless a request has it
    return;
  }
}

void PrefixCache::ForgetAll() {
  while (!index_.empty()) {
    const BlockRef block = index_.begin()->second;
    block->parent.reset();
    block->prompts = 0;
    Forget(block.get());
  }
  prompts_.clear();
}

bool PrefixCache::EvictOldest() {
  if (oldest_ == nullptr) return false;
  // Whoever has a block has those before it, which are as recent at least: the oldest is a last
  // one.
  Block* block = oldest_;
  for (size_t i = 0; i < prompts_.size() && block->prompts > 0;) {
    Prompt& prompt = prompts_[i];
    if (prompt.end.get() != block) {
      ++i;
      continue;
    }
    // The prompt is a block shorter.
    prompt.end = block->parent;
    --block->prompts;
    const bool is_known = std::any_of(prompts_.begin(), prompts_.end(), [&](const Prompt& other) {
      return &other != &prompt && other.end == prompt.end;
    });
    if (prompt.end == nullptr || is_known) {
      for (Block* at = prompt.end.get(); at != nullptr; at = at->parent.get()) --at->prompts;
      prompts_.erase(prompts_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  Forget(block);
  return true;
}

bool PrefixCache::MakeRoom(int64_t bytes) {
  while (counters_.bytes + bytes > budget_bytes_) {
    if (!EvictOldest()) return false;
  }
  return true;
}

void PrefixCache::NotePrompt(const BlockRef& end) {
  if (setup_.max_entries == 0) return;
  ++clock_;
  const auto known = std::find_if(prompts_.begin(), prompts_.end(),
                                  [&](const Prompt& prompt) { return prompt.end == end; });
  if (known != prompts_.end()) {
    known->used = clock_;
    return;
  }
  prompts_.push_back({end, clock_});
  for (Block* at = end.get(); at != nullptr; at = at->parent.get()) ++at->prompts;
  while (std::ssize(prompts_) > setup_.max_entries) {
    const auto oldest =
        std::min_element(prompts_.begin(), prompts_.end(),
                         [](const Prompt& a, const Prompt& b) { return a.used < b.used; });
    const BlockRef last = oldest->end;
    prompts_.erase(oldest);
    for (BlockRef at = last; at != nullptr;) {
      const BlockRef parent = at->parent;
      if (--at->prompts == 0) Forget(at.get());
      at = parent;
    }
  }
}

std::unique_ptr<BlockBytes> PrefixCache::TakeRows() {
  if (free_rows_.empty()) return std::make_unique<BlockBytes>(setup_);
  std::unique_ptr<BlockBytes> rows = std::move(free_rows_.back());
  free_rows_.pop_back();
  return rows;
}

PrefixCache::BlockRef PrefixCache::MakeBlock(int64_t size) const {
  auto block = std::make_shared<Block>();
  block->bytes = std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(size));
  block->size = size;
  block->requests = 1;
  return block;
}

void PrefixCache::InsertAfter(const BlockRef& before, uint64_t root,
                              std::span<const int32_t> tokens, const BlockRef& block) {
  block->serial = next_serial_++;
  block->before = before == nullptr ? root : before->serial;
  block->tokens.assign(tokens.begin(), tokens.end());
  block->parent = before;
  Insert(block);
}

PrefixCache::BlockRef PrefixCache::FindInTier(const PrefixIdentity& who,
                                              std::span<const int32_t> prompt,
                                              const BlockRef& before, uint64_t root) {
  if (tier_ == nullptr) return nullptr;
  BlockState state = BlockState::kPlain;
  std::vector<std::byte> bytes;
  if (!tier_->Load({who, prompt}, &state, &bytes)) return nullptr;
  if (!MakeRoom(std::ssize(bytes))) return nullptr;
  BlockRef block = MakeBlock(std::ssize(bytes));
  block->state = state;
  std::memcpy(block->bytes.get(), bytes.data(), bytes.size());
  counters_.bytes += block->size;
  InsertAfter(before, root, prompt.last(static_cast<size_t>(setup_.block_tokens)), block);
  return block;
}

std::unique_ptr<PrefixCache::Request> PrefixCache::Open(std::span<const int32_t> prompt,
                                                        const PrefixIdentity& who, bool all) {
  auto request = std::make_unique<Request>();
  request->who_ = who;
  const auto block_tokens = static_cast<size_t>(setup_.block_tokens);
  const size_t usable = prompt.size() - (all || prompt.empty() ? 0 : 1);
  const std::lock_guard lock(mutex_);
  request->rows_ = TakeRows();
  request->root_ = RootOf(who);
  request->epoch_ = epoch_;
  ++counters_.lookups;
  BlockRef before;
  for (size_t end = block_tokens; end <= usable; end += block_tokens) {
    const auto tokens = prompt.subspan(end - block_tokens, block_tokens);
    BlockRef block = Find(before == nullptr ? request->root_ : before->serial, tokens);
    if (block != nullptr) {
      Pin(block);
    } else {
      block = FindInTier(who, prompt.first(end), before, request->root_);
      if (block == nullptr) break;
      request->is_from_tier_ = true;
    }
    request->blocks_.push_back(block);
    before = std::move(block);
  }
  request->tokens_ = request->hit_tokens_ = std::ssize(request->blocks_) * setup_.block_tokens;
  request->ids_.assign(prompt.begin(), prompt.begin() + request->tokens_);
  counters_.hits += request->tokens_ > 0 ? 1 : 0;
  counters_.hit_tokens += request->tokens_;
  return request;
}

bool PrefixCache::Append(Request* request, std::span<const int32_t> tokens,
                         const PrefixVectors& vectors) {
  const int64_t block_tokens = setup_.block_tokens;
  const int64_t count = std::ssize(tokens);
  const int64_t filled = request->tokens_ % block_tokens;
  const int64_t want = (request->tokens_ + count + block_tokens - 1) / block_tokens;
  const int64_t have = std::ssize(request->blocks_);
  // Its last block, where it goes on within it, has to be its own, and of plain vectors: a clear
  // leaves it the codes that it hit.
  BlockRef shared;
  {
    const std::lock_guard lock(mutex_);
    if (filled != 0) {
      const BlockRef& last = request->blocks_.back();
      if (last->found || last->state == BlockState::kCoded || last->requests > 1) shared = last;
    }
    int64_t needed = (want - have + (shared != nullptr ? 1 : 0)) * plain_bytes_;
    if (!MakeRoom(needed)) {
      // Where there is no room for a copy of a kept block, the copy takes its place.
      if (shared == nullptr || shared->requests > 1) return false;
      needed -= shared->size;
      if (!MakeRoom(needed)) return false;
      Forget(shared.get());
      shared->size = 0;
    }
    counters_.bytes += needed;
  }
  if (shared != nullptr) {
    BlockRef own = MakeBlock(plain_bytes_);
    if (shared->state != BlockState::kPlain) own->state = BlockState::kDecoded;
    if (shared->state == BlockState::kCoded) {
      // As the request has read it so far.
      std::vector<std::byte> k(static_cast<size_t>(plain_bytes_));
      std::vector<std::byte> v(static_cast<size_t>(plain_bytes_));
      request->rows_->Read(shared->bytes.get(), true, block_tokens, 0,
                           {k.data(), v.data(), block_tokens});
      request->rows_->Fill(DenseVectors(setup_, block_tokens, k.data(), v.data()), 0, block_tokens,
                           0, own->bytes.get());
    } else {
      std::memcpy(own->bytes.get(), shared->bytes.get(), static_cast<size_t>(plain_bytes_));
    }
    request->blocks_.back() = std::move(own);
    const std::lock_guard lock(mutex_);
    Unpin(shared);
  }
  while (std::ssize(request->blocks_) < want) {
    request->blocks_.push_back(MakeBlock(plain_bytes_));
  }
  for (int64_t done = 0; done < count;) {
    const int64_t at = request->tokens_ + done;
    const int64_t part = std::min(count - done, block_tokens - at % block_tokens);
    Block& block = *request->blocks_[static_cast<size_t>(at / block_tokens)];
    request->rows_->Fill(vectors, done, part, at % block_tokens, block.bytes.get());
    done += part;
  }
  request->ids_.insert(request->ids_.end(), tokens.begin(), tokens.end());
  request->tokens_ += count;
  return true;
}

void PrefixCache::Read(const Request& request, const DenseRows& rows) {
  // Nobody writes a block that others have, and nobody else writes this one's own.
  for (size_t i = 0; i < request.blocks_.size(); ++i) {
    const int64_t to = static_cast<int64_t>(i) * setup_.block_tokens;
    const Block& block = *request.blocks_[i];
    request.rows_->Read(block.bytes.get(), block.state == BlockState::kCoded,
                        std::min(setup_.block_tokens, request.tokens_ - to), to, rows);
  }
}

std::vector<PrefixCache::BlockRef> PrefixCache::InCodes(Request* request, int64_t count) {
  std::vector<BlockRef> coded(static_cast<size_t>(count));
  if (!request->rows_->has_codes() || request->tokens_ < setup_.quantize_from) return coded;
  for (size_t i = 0; i < coded.size(); ++i) {
    const Block& own = *request->blocks_[i];
    {
      const std::lock_guard lock(mutex_);
      if (own.found || own.state != BlockState::kPlain || own.requests > 1) continue;
    }
    BlockRef block = MakeBlock(request->rows_->coded_bytes());
    block->state = BlockState::kCoded;
    request->rows_->Encode(own.bytes.get(), block->bytes.get());
    coded[i] = std::move(block);
  }
  return coded;
}

void PrefixCache::Close(std::unique_ptr<Request> request, bool keep) {
  const int64_t block_tokens = setup_.block_tokens;
  const int64_t whole = request->tokens_ / block_tokens;
  std::vector<BlockRef> coded;
  if (keep) coded = InCodes(request.get(), whole);
  const std::lock_guard lock(mutex_);
  if (keep && request->epoch_ == epoch_) {
    BlockRef before;
    for (int64_t i = 0; i < whole; ++i) {
      BlockRef& own = request->blocks_[static_cast<size_t>(i)];
      const auto tokens =
          std::span(request->ids_)
              .subspan(static_cast<size_t>(i * block_tokens), static_cast<size_t>(block_tokens));
      const uint64_t serial = before == nullptr ? request->root_ : before->serial;
      const BlockRef known = Find(serial, tokens);
      if (known != nullptr) {
        // Computed twice: one of them is kept.
        if (known != own) {
          Pin(known);
          Unpin(own);
          own = known;
        }
      } else if (own->found) {
        break;  // after another prefix than this one: its parent is gone
      } else {
        BlockRef& codes = coded[static_cast<size_t>(i)];
        if (codes != nullptr) {
          counters_.bytes += codes->size - own->size;
          own = codes;
        }
        InsertAfter(before, request->root_, tokens, own);
        if (tier_ != nullptr) {
          tier_->Store(
              {request->who_,
               std::span(request->ids_).first(static_cast<size_t>((i + 1) * block_tokens))},
              own->state, {own->bytes.get(), static_cast<size_t>(own->size)});
        }
      }
      before = own;
    }
    if (before != nullptr) NotePrompt(before);
    if (tier_ != nullptr) tier_->Commit();
  }
  // From the end on, so that the first block is the most recent.
  while (!request->blocks_.empty()) {
    Unpin(request->blocks_.back());
    request->blocks_.pop_back();
  }
  free_rows_.push_back(std::move(request->rows_));
}

std::unique_ptr<PrefixCache::Request> PrefixCache::Fork(const Request& request) {
  auto fork = std::make_unique<Request>();
  fork->who_ = request.who_;
  fork->root_ = request.root_;
  fork->epoch_ = request.epoch_;
  fork->tokens_ = request.tokens_;
  fork->hit_tokens_ = request.hit_tokens_;
  fork->ids_ = request.ids_;
  const std::lock_guard lock(mutex_);
  fork->rows_ = TakeRows();
  for (const BlockRef& block : request.blocks_) {
    Pin(block);
    fork->blocks_.push_back(block);
  }
  return fork;
}

void PrefixCache::TrimTo(Request* request, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  request->tokens_ = tokens;
  request->ids_.resize(static_cast<size_t>(tokens));
  const int64_t want = (tokens + setup_.block_tokens - 1) / setup_.block_tokens;
  while (std::ssize(request->blocks_) > want) {
    Unpin(request->blocks_.back());
    request->blocks_.pop_back();
  }
}

void PrefixCache::Evict(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  const int64_t blocks = (tokens + setup_.block_tokens - 1) / setup_.block_tokens;
  MakeRoom(std::min(blocks * plain_bytes_, budget_bytes_));
}

void PrefixCache::Clear() {
  const std::lock_guard lock(mutex_);
  ForgetAll();
  if (tier_ != nullptr) tier_->Clear();
}

void PrefixCache::Epoch() {
  const std::lock_guard lock(mutex_);
  // The tier first: a process that ends within goes on under the new weights.
  if (tier_ != nullptr) tier_->Epoch();
  ++epoch_;
  roots_.clear();
  ForgetAll();
}

void PrefixCache::Settle() {
  const std::lock_guard lock(mutex_);
  if (tier_ != nullptr) tier_->Settle();
}

PrefixCache::Counters PrefixCache::GetCounters() {
  const std::lock_guard lock(mutex_);
  Counters counters = counters_;
  counters.prompts = std::ssize(prompts_);
  return counters;
}

}  // namespace kvcheck::optimized
