#include "optimized/prefix/optimized_prefix.h"

namespace kvcheck::optimized {
namespace {

constexpr const char* kNoFiles = "kept prompts are in memory alone";

}  // namespace

PrefixCapabilities OptimizedPrefix::GetCapabilities() const {
  PrefixCapabilities capabilities;
  capabilities.name = "optimized";
  capabilities.version = "1";
  capabilities.prefix_profile.evicts_lru = true;
  capabilities.prefix_profile.persists = Persists::kNever;
  capabilities.profile.decode = DecodeRounding::kTwoRoundings;
  PrefixSpace space;
  space.disk = false;
  for (const PrefixOpKind kind :
       {PrefixOpKind::kSave, PrefixOpKind::kLoad, PrefixOpKind::kDamage}) {
    space.operations &= ~(1u << static_cast<int>(kind));
  }
  capabilities.spaces = {space};
  return capabilities;
}

OpResult OptimizedPrefix::Start(const PrefixSetup& setup, const std::string&,
                                PrefixStarted* started) {
  if (setup.disk) return OpResult::Unsupported(kNoFiles);
  setup_ = setup;
  for (auto& request : requests_) request.reset();
  cache_ = std::make_unique<PrefixCache>(setup);
  *started = {setup.block_tokens, setup.capacity_tokens / setup.block_tokens * setup.block_tokens,
              true};
  return {};
}

OpResult OptimizedPrefix::Restart(const PrefixSetup& setup, bool, PrefixStarted* started) {
  return Start(setup, "", started);
}

OpResult OptimizedPrefix::Open(int request, std::span<const int32_t> prompt,
                               const PrefixIdentity& who, bool all, PrefixHit* hit) {
  auto& open = requests_[static_cast<size_t>(request)];
  open = cache_->Open(prompt, who, all);
  hit->tokens = open->hit_tokens();
  hit->tier = open->is_from_tier() ? PrefixTier::kDisk : PrefixTier::kMemory;
  return Read(request, &hit->rows);
}

OpResult OptimizedPrefix::Write(int request, std::span<const int32_t> tokens,
                                const PrefixVectors& vectors, bool* full) {
  const bool fits = vectors.dtype == setup_.x && vectors.layers == setup_.layers &&
                    vectors.kv_heads == setup_.kv_heads && vectors.k_dim == setup_.k_dim &&
                    vectors.v_dim == setup_.v_dim && vectors.tokens == std::ssize(tokens);
  if (!fits) return OpResult::Refuse("vectors of another shape or type than the cache's");
  *full = !cache_->Append(requests_[static_cast<size_t>(request)].get(), tokens, vectors);
  return {};
}

OpResult OptimizedPrefix::Read(int request, PrefixRows* rows) {
  const PrefixCache::Request& open = *requests_[static_cast<size_t>(request)];
  const int64_t tokens = open.tokens();
  const auto vectors = static_cast<size_t>(tokens * setup_.layers * setup_.kv_heads);
  k_.resize(vectors * static_cast<size_t>(setup_.k_dim) * SizeInBytes(setup_.x));
  v_.resize(vectors * static_cast<size_t>(setup_.v_dim) * SizeInBytes(setup_.x));
  cache_->Read(open, {k_.data(), v_.data(), tokens});
  rows->vectors = DenseVectors(setup_, tokens, k_.data(), v_.data());
  return {};
}

OpResult OptimizedPrefix::Close(int request, bool keep) {
  cache_->Close(std::move(requests_[static_cast<size_t>(request)]), keep);
  return {};
}

OpResult OptimizedPrefix::Fork(int request, int out) {
  requests_[static_cast<size_t>(out)] = cache_->Fork(*requests_[static_cast<size_t>(request)]);
  return {};
}

OpResult OptimizedPrefix::TrimTo(int request, int64_t tokens) {
  PrefixCache::Request* open = requests_[static_cast<size_t>(request)].get();
  if (tokens < 0 || tokens > open->tokens()) {
    return OpResult::Refuse("a request cannot be trimmed to what it has not");
  }
  cache_->TrimTo(open, tokens);
  return {};
}

OpResult OptimizedPrefix::Evict(int64_t tokens) {
  cache_->Evict(tokens);
  return {};
}

OpResult OptimizedPrefix::Clear() {
  cache_->Clear();
  return {};
}

OpResult OptimizedPrefix::Epoch() {
  cache_->Epoch();
  return {};
}

OpResult OptimizedPrefix::Settle() {
  cache_->Settle();
  return {};
}

OpResult OptimizedPrefix::Save(int) { return OpResult::Unsupported(kNoFiles); }
OpResult OptimizedPrefix::Load(int) { return OpResult::Unsupported(kNoFiles); }

void OptimizedPrefix::Observe(PrefixCounters* counters) {
  const PrefixCache::Counters mine = cache_->GetCounters();
  counters->bytes = mine.bytes;
  counters->budget_bytes = mine.budget_bytes;
  if (setup_.max_entries > 0) counters->entries = mine.prompts;
  counters->lookups = mine.lookups;
  counters->hits = mine.hits;
  counters->hit_tokens = mine.hit_tokens;
}

}  // namespace kvcheck::optimized
