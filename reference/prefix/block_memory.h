// Gives a manager of blocks, which has ids and no content (vLLM's KVCacheManager, SGLang's radix
// cache), the content that an engine would keep behind the ids: a memory of blocks that is written
// and read only through the ids that the manager gave. What it gives to two requests by mistake
// shows as rows that somebody wrote later.
//
// The manager is a PrefixImplementation whose hits and reads have PrefixRows::blocks alone, one id
// a block of PrefixStarted::block_tokens. Where a fork shares a block that is not whole, its
// manager has to give the writer another one, and this copies what was in the old one.

#ifndef REFERENCE_PREFIX_BLOCK_MEMORY_H_
#define REFERENCE_PREFIX_BLOCK_MEMORY_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "reference/prefix/content.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {

class BlockMemory : public PrefixImplementation {
 public:
  explicit BlockMemory(std::unique_ptr<PrefixImplementation> manager)
      : manager_(std::move(manager)) {}

  PrefixCapabilities GetCapabilities() const override { return manager_->GetCapabilities(); }
  bool UsesFolder() const override { return manager_->UsesFolder(); }
  OpResult Start(const PrefixSetup& setup, const std::string& folder,
                 PrefixStarted* started) override;
  OpResult Restart(const PrefixSetup& setup, bool orderly, PrefixStarted* started) override;
  OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who, bool all,
                PrefixHit* hit) override;
  OpResult Write(int request, std::span<const int32_t> tokens, const PrefixVectors& vectors,
                 bool* full) override;
  OpResult Read(int request, PrefixRows* rows) override;
  OpResult Close(int request, bool keep) override { return manager_->Close(request, keep); }
  OpResult Fork(int request, int out) override;
  OpResult TrimTo(int request, int64_t tokens) override;
  OpResult Evict(int64_t tokens) override { return manager_->Evict(tokens); }
  OpResult Clear() override { return manager_->Clear(); }
  OpResult Epoch() override { return manager_->Epoch(); }
  OpResult Settle() override { return manager_->Settle(); }
  OpResult Save(int key) override { return manager_->Save(key); }
  OpResult Load(int key) override { return manager_->Load(key); }
  bool KillAtWrite(int64_t write) override { return manager_->KillAtWrite(write); }
  OpResult Damage(FileDamage damage, int64_t at) override { return manager_->Damage(damage, at); }
  std::string Unwritten() const override { return manager_->Unwritten(); }
  void Observe(PrefixCounters* counters) override { manager_->Observe(counters); }

 private:
  struct Request {
    int64_t tokens = 0;
    std::vector<int64_t> blocks;  // as the manager showed them last
  };
  void Begin(const PrefixSetup& setup, const PrefixStarted& started);
  std::byte* TokenAt(int64_t block, int64_t index);
  // K and V of the request's tokens, through its ids.
  void Show(Request* request, PrefixRows* rows);

  std::unique_ptr<PrefixImplementation> manager_;
  PrefixSetup setup_;
  std::optional<RowLayout> layout_;
  int64_t block_tokens_ = 1;
  std::array<Request, kRequests> requests_;
  std::unordered_map<int64_t, std::vector<std::byte>> memory_;  // by id; NaN where nobody wrote
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
};

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_BLOCK_MEMORY_H_
