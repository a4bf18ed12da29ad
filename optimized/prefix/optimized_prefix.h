// PrefixCache as an implementation that is judged: one cache, with the requests of a case, and what
// stays of it between processes.

#ifndef OPTIMIZED_PREFIX_OPTIMIZED_PREFIX_H_
#define OPTIMIZED_PREFIX_OPTIMIZED_PREFIX_H_

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optimized/prefix/prefix_cache.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck::optimized {

class OptimizedPrefix : public PrefixImplementation {
 public:
  using StorageMaker = std::function<std::unique_ptr<PrefixStorage>(const PrefixSetup& setup,
                                                                    const std::string& folder)>;
  // make_storage: of the setup's folder. Empty: there is no disk tier, and what is saved stays in
  // memory.
  explicit OptimizedPrefix(StorageMaker make_storage = {});
  ~OptimizedPrefix() override;

  bool UsesFolder() const override { return make_storage_ != nullptr; }
  PrefixCapabilities GetCapabilities() const override;
  OpResult Start(const PrefixSetup& setup, const std::string& folder,
                 PrefixStarted* started) override;
  OpResult Restart(const PrefixSetup& setup, bool orderly, PrefixStarted* started) override;
  OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who, bool all,
                PrefixHit* hit) override;
  OpResult Write(int request, std::span<const int32_t> tokens, const PrefixVectors& vectors,
                 bool* full) override;
  OpResult Read(int request, PrefixRows* rows) override;
  OpResult Close(int request, bool keep) override;
  OpResult Fork(int request, int out) override;
  OpResult TrimTo(int request, int64_t tokens) override;
  OpResult Evict(int64_t tokens) override;
  OpResult Clear() override;
  OpResult Epoch() override;
  OpResult Settle() override;
  OpResult Save(int key) override;
  OpResult Load(int key) override;
  bool KillAtWrite(int64_t write) override;
  std::string Unwritten() const override;
  void Observe(PrefixCounters* counters) override;

 private:
  void Begin(const PrefixSetup& setup, PrefixStarted* started);

  const StorageMaker make_storage_;
  PrefixSetup setup_;
  std::string folder_;
  std::unique_ptr<PrefixStorage> storage_;
  std::string unwritten_;  // of storages before this one, since Start
  std::array<std::unique_ptr<PrefixCache::Request>, kRequests> requests_;
  std::unique_ptr<PrefixCache> cache_;
  // Of the rows shown last.
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_PREFIX_OPTIMIZED_PREFIX_H_
