#include "tools/prefix_disk/prefix_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "tools/prefix_disk/saved_store.h"

namespace kvcheck {
namespace {

using optimized::BlockState;
using optimized::KeptStore;
using optimized::TierKey;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kTemporary = ".tmp";

std::string BlockName(int64_t number) { return fmt::format("block-{:08}{}", number, kSuffix); }
std::string SavedName(int key) { return fmt::format("saved-{}{}", key, kSuffix); }

// The number in the name of a block's file; -1: another file.
int64_t NumberOf(std::string_view name) {
  constexpr std::string_view kPrefix = "block-";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return -1;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  int64_t number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : -1;
}

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

PrefixDisk::PrefixDisk(const PrefixSetup& setup, const std::string& folder,
                       const PrefixDiskOptions& options)
    : setup_(setup), options_(options), writes_(folder, options.sync), index_(&writes_) {
  Sweep();
  KeepToBudget();
  next_number_ = index_.LastNumber() + 1;
  next_used_ = index_.LastUsed() + 1;
}

void PrefixDisk::Sweep() {
  std::set<int64_t> known;
  index_.ForEach([&](const IndexedBlock& block) { known.insert(block.number); });
  for (const std::string& name : writes_.Files()) {
    const int64_t number = NumberOf(name);
    const bool is_orphan = number >= 0 && !known.contains(number);
    const std::string_view whole =
        std::string_view(name).substr(0, name.size() - std::min(name.size(), kTemporary.size()));
    const bool is_unfinished = name.ends_with(kTemporary) && whole.ends_with(kSuffix);
    if (is_orphan || is_unfinished) writes_.Remove(name);
  }
}

void PrefixDisk::RemoveFiles(std::span<const int64_t> numbers) {
  for (const int64_t number : numbers) writes_.Remove(BlockName(number));
}

void PrefixDisk::KeepToBudget() {
  if (options_.budget_bytes > 0) RemoveFiles(index_.DropOldest(options_.budget_bytes));
}

BlockFacts PrefixDisk::FactsOf(const TierKey& key, BlockState state) {
  const auto block_tokens = static_cast<size_t>(setup_.block_tokens);
  const size_t count = key.tokens.size() / block_tokens;
  size_t known = 0;
  if (has_prompt_ && who_ == key.who) {
    const size_t most = std::min(prompt_.size(), key.tokens.size());
    const auto common = static_cast<size_t>(
        std::mismatch(prompt_.begin(), prompt_.begin() + static_cast<std::ptrdiff_t>(most),
                      key.tokens.begin())
            .first -
        prompt_.begin());
    known = common / block_tokens;
  } else {
    has_prompt_ = true;
    who_ = key.who;
    keys_ = {RootKey(setup_, who_)};
  }
  keys_.resize(known + 1);
  prompt_.assign(key.tokens.begin(), key.tokens.end());
  for (size_t i = known; i < count; ++i) {
    keys_.push_back(NextKey(keys_.back(), key.tokens.subspan(i * block_tokens, block_tokens)));
  }
  BlockFacts facts;
  facts.setup = &setup_;
  facts.who = who_;
  facts.tokens = key.tokens.last(block_tokens);
  facts.position = std::ssize(key.tokens) - setup_.block_tokens;
  facts.before = keys_[count - 1];
  facts.key = keys_[count];
  facts.epoch = index_.epoch();
  facts.state = state;
  return facts;
}

void PrefixDisk::Store(const TierKey& key, BlockState state, std::span<const std::byte> bytes) {
  const BlockFacts facts = FactsOf(key, state);
  const std::string header = BlockFileHeader(facts);
  Sha256 hash;
  hash.Update(header.data(), header.size());
  hash.Update(bytes.data(), bytes.size());
  IndexedBlock block;
  block.key = facts.key;
  block.before = facts.before;
  block.number = next_number_++;
  block.bytes = std::ssize(header) + std::ssize(bytes);
  block.state = state;
  block.sha256 = hash.Finish();
  const std::span<const std::byte> parts[] = {BytesOf(header), bytes};
  if (writes_.Write(BlockName(block.number), parts)) stored_.push_back(block);
}

void PrefixDisk::Commit() {
  if (!used_.empty()) index_.Touch(used_, next_used_++);
  used_.clear();
  if (stored_.empty()) return;
  writes_.SyncFolder();
  std::vector<int64_t> replaced;
  const bool is_put = index_.Put(stored_, next_used_++, &replaced);
  if (!is_put) {
    replaced.clear();
    for (const IndexedBlock& block : stored_) replaced.push_back(block.number);
  }
  stored_.clear();
  RemoveFiles(replaced);
  KeepToBudget();
}

bool PrefixDisk::Load(const TierKey& key, BlockState* state, std::vector<std::byte>* bytes) {
  BlockFacts facts = FactsOf(key, BlockState::kPlain);
  IndexedBlock block;
  std::vector<std::byte> file;
  if (!index_.Find(facts.key, &block) || !writes_.Read(BlockName(block.number), &file)) {
    return false;
  }
  facts.state = block.state;
  const std::string header = BlockFileHeader(facts);
  const auto data = static_cast<size_t>(CacheBytes(setup_, block.state, setup_.block_tokens));
  if (file.size() != header.size() + data) return false;
  if (!std::ranges::equal(BytesOf(header), std::span(file).first(header.size()))) return false;
  Sha256 hash;
  hash.Update(file.data(), file.size());
  if (hash.Finish() != block.sha256) return false;
  *state = block.state;
  bytes->assign(file.end() - static_cast<std::ptrdiff_t>(data), file.end());
  // Recency decides nothing without a budget.
  if (options_.budget_bytes > 0) used_.push_back(block.number);
  return true;
}

void PrefixDisk::Forget(bool next_epoch) {
  std::vector<int64_t> numbers;
  index_.ForEach([&](const IndexedBlock& block) { numbers.push_back(block.number); });
  for (const IndexedBlock& block : stored_) numbers.push_back(block.number);
  stored_.clear();
  used_.clear();
  index_.Clear(next_epoch);
  RemoveFiles(numbers);
}

OpResult PrefixDisk::Save(int key, const KeptStore& store) {
  const SavedStore saved = WriteSavedStore(setup_, index_.epoch(), store);
  std::vector<std::span<const std::byte>> parts = {BytesOf(saved.header), BytesOf(saved.index)};
  for (const auto& block : store.blocks) {
    parts.emplace_back(block.bytes.get(), static_cast<size_t>(block.size));
  }
  if (!writes_.Write(SavedName(key), parts)) {
    return OpResult::Refuse("the file cannot be written");
  }
  writes_.SyncFolder();
  return {};
}

OpResult PrefixDisk::Load(int key, KeptStore* store) {
  std::vector<std::byte> file;
  if (!writes_.Read(SavedName(key), &file))
    return OpResult::Refuse("nothing is saved under this key");
  message_ = ReadSavedStore(setup_, index_.epoch(), file, writes_.PathOf(SavedName(key)), store);
  return message_.empty() ? OpResult() : OpResult::Refuse(message_);
}

bool PrefixDisk::KillAtWrite(int64_t write) {
  writes_.KillAt(write);
  return true;
}

std::unique_ptr<optimized::PrefixStorage> MakePrefixDisk(const PrefixSetup& setup,
                                                         const std::string& folder) {
  return std::make_unique<PrefixDisk>(setup, folder,
                                      PrefixDiskOptions{.sync = false, .budget_bytes = 0});
}

}  // namespace kvcheck
