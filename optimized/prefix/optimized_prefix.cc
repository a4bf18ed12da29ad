#include "optimized/prefix/optimized_prefix.h"

#include <optional>
#include <utility>

namespace kvcheck::optimized {
namespace {

// Saved stores without a folder; no tier.
class MemoryStorage : public PrefixStorage {
 public:
  explicit MemoryStorage(const PrefixSetup& setup) : setup_(setup) {}
  // Another process goes on with these settings.
  void Restart(const PrefixSetup& setup) { setup_ = setup; }

  void Store(const TierKey&, BlockState, std::span<const std::byte>) override {}
  void Commit() override {}
  bool Load(const TierKey&, BlockState*, std::vector<std::byte>*) override { return false; }
  void Clear() override {}
  void Epoch() override { ++epoch_; }
  void Settle() override {}

  OpResult Save(int key, const KeptStore& store) override {
    saved_[static_cast<size_t>(key)] = Saved{store, epoch_, setup_.block_tokens, setup_.x};
    return {};
  }
  OpResult Load(int key, KeptStore* store) override {
    const std::optional<Saved>& saved = saved_[static_cast<size_t>(key)];
    if (!saved) return OpResult::Refuse("nothing is saved under this key");
    if (saved->epoch != epoch_) return OpResult::Refuse("it was saved under other weights");
    if (saved->block_tokens != setup_.block_tokens || saved->x != setup_.x) {
      return OpResult::Refuse("it was saved with another block size or type of vectors");
    }
    *store = saved->store;
    return {};
  }

 private:
  struct Saved {
    KeptStore store;
    int64_t epoch = 0;
    int64_t block_tokens = 0;
    DType x = DType::kFloat32;
  };
  PrefixSetup setup_;
  int64_t epoch_ = 0;
  std::array<std::optional<Saved>, kSavedStores> saved_;
};

}  // namespace

OptimizedPrefix::OptimizedPrefix(StorageMaker make_storage)
    : make_storage_(std::move(make_storage)) {}
OptimizedPrefix::~OptimizedPrefix() = default;

PrefixCapabilities OptimizedPrefix::GetCapabilities() const {
  PrefixCapabilities capabilities;
  capabilities.name = "optimized";
  capabilities.version = "1";
  capabilities.prefix_profile.evicts_lru = true;
  capabilities.prefix_profile.persists = UsesFolder() ? Persists::kClose : Persists::kNever;
  capabilities.profile.decode = DecodeRounding::kTwoRoundings;
  PrefixSpace memory;
  memory.disk = false;
  memory.operations &= ~(1u << static_cast<int>(PrefixOpKind::kDamage));
  capabilities.spaces = {memory};
  if (!UsesFolder()) return capabilities;
  // Histories with files take some hundred times as long: few of what is drawn has them.
  capabilities.spaces.resize(3, memory);
  capabilities.spaces.emplace_back();
  return capabilities;
}

void OptimizedPrefix::Begin(const PrefixSetup& setup, PrefixStarted* started) {
  setup_ = setup;
  for (auto& request : requests_) request.reset();
  cache_.reset();
  if (setup.disk) {
    // One process at a time has the folder.
    if (storage_ != nullptr) unwritten_ = Unwritten();
    storage_.reset();
    storage_ = make_storage_(setup, folder_);
  }
  cache_ = std::make_unique<PrefixCache>(setup, setup.disk ? storage_.get() : nullptr);
  *started = {setup.block_tokens, setup.capacity_tokens / setup.block_tokens * setup.block_tokens,
              true};
}

OpResult OptimizedPrefix::Start(const PrefixSetup& setup, const std::string& folder,
                                PrefixStarted* started) {
  if (setup.disk && !UsesFolder()) return OpResult::Unsupported("there is no disk tier");
  folder_ = folder;
  cache_.reset();
  storage_.reset();
  unwritten_.clear();
  if (!setup.disk) storage_ = std::make_unique<MemoryStorage>(setup);
  Begin(setup, started);
  return {};
}

OpResult OptimizedPrefix::Restart(const PrefixSetup& setup, bool, PrefixStarted* started) {
  // Every write is on disk when its call ends: an orderly end has nothing to add.
  if (!setup.disk) static_cast<MemoryStorage&>(*storage_).Restart(setup);
  Begin(setup, started);
  return {};
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
  if (!setup_.disk) storage_->Epoch();
  return {};
}

OpResult OptimizedPrefix::Settle() {
  cache_->Settle();
  return {};
}

OpResult OptimizedPrefix::Save(int key) { return storage_->Save(key, cache_->Kept()); }

OpResult OptimizedPrefix::Load(int key) {
  KeptStore store;
  const OpResult result = storage_->Load(key, &store);
  if (result.ok()) cache_->Keep(store);
  return result;
}

bool OptimizedPrefix::KillAtWrite(int64_t write) { return storage_->KillAtWrite(write); }

std::string OptimizedPrefix::Unwritten() const {
  return unwritten_.empty() && storage_ != nullptr ? storage_->Unwritten() : unwritten_;
}

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
