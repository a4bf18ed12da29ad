// Caches that live in another process (remote_process.h), as an implementation of caches: one
// request for each call, sent ahead of its answer where the calls were rehearsed. Which states come
// with an answer is what ObserveAfter says; others are asked for when they are looked at. Calls
// throw RemoteLoss when the process is lost: the case is over, and the next Start has a new
// process.

#ifndef TOOLS_PROCESS_REMOTE_CACHE_H_
#define TOOLS_PROCESS_REMOTE_CACHE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "reference/trace/trace_store.h"
#include "tools/process/remote_process.h"

namespace kvcheck {

class RemoteCaches;  // what the caches of one factory share

class RemoteCacheFactory : public CacheFactory {
 public:
  // process: nobody else uses it between a Start and the last call that follows.
  explicit RemoteCacheFactory(std::shared_ptr<RemoteProcess> process);
  ~RemoteCacheFactory() override;

  CacheCapabilities GetCapabilities() const override;
  OpResult Start(const CacheSetup& setup) override;
  void ObserveAfter(ObserveHint hint) override;
  void ObserveNext(std::span<Cache* const> caches) override;
  bool BeginRehearsal() override;
  bool Expect(bool legal) override;
  void EndRehearsal() override;
  bool ForgetRehearsed() override;
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> left_padding, std::unique_ptr<Cache>* out) override;
  OpResult Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) override;
  OpResult Load(const StateStore& store, std::string_view key,
                std::unique_ptr<Cache>* out) override;

  // In the process itself. What is put or got here by others is nowhere.
  TraceStore* OwnStore() override;
  RemoteProcess& process();

 private:
  std::shared_ptr<RemoteCaches> caches_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_CACHE_H_
