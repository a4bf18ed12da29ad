// Answers requests of kind cache with the caches of a factory.

#ifndef TOOLS_PROCESS_SERVE_CACHE_H_
#define TOOLS_PROCESS_SERVE_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "reference/trace/trace_store.h"
#include "tools/process/wire_message.h"
#include "tools/process/wire_writer.h"

namespace kvcheck {

class CacheServer {
 public:
  // factory: outlives the object.
  explicit CacheServer(CacheFactory* factory) : factory_(factory) {}

  // Writes the entries of the answer's map. False: there is no such request.
  // Errors: WireError for a request that has not what it needs; those of the implementation.
  bool Answer(std::string_view request, const WireValue& value, WireWriter& writer);

 private:
  using Handler = OpResult (CacheServer::*)(const WireValue&, WireWriter&);

  OpResult Start(const WireValue& value, WireWriter& writer);
  OpResult New(const WireValue& value, WireWriter& writer);
  OpResult Append(const WireValue& value, WireWriter& writer);
  OpResult Prepare(const WireValue& value, WireWriter& writer);
  OpResult Finalize(const WireValue& value, WireWriter& writer);
  OpResult Trim(const WireValue& value, WireWriter& writer);
  OpResult Filter(const WireValue& value, WireWriter& writer);
  OpResult Extend(const WireValue& value, WireWriter& writer);
  OpResult Merge(const WireValue& value, WireWriter& writer);
  OpResult Extract(const WireValue& value, WireWriter& writer);
  OpResult ToQuantized(const WireValue& value, WireWriter& writer);
  OpResult Copy(const WireValue& value, WireWriter& writer);
  OpResult Save(const WireValue& value, WireWriter& writer);
  OpResult Load(const WireValue& value, WireWriter& writer);
  OpResult Damage(const WireValue& value, WireWriter& writer);
  OpResult Attend(const WireValue& value, WireWriter& writer);
  OpResult Drop(const WireValue& value, WireWriter& writer);
  OpResult Observe(const WireValue&, WireWriter&) { return {}; }

  Cache& At(const WireValue& value, std::string_view key);
  // What a call may fill: what stands under `out`, unless an operand does.
  std::unique_ptr<Cache> TakeOut(const WireValue& value, std::span<const Cache* const> operands);
  void PutOut(const WireValue& value, std::unique_ptr<Cache> cache);
  // Whether the bytes that were handed out as inputs are others now.
  std::span<const std::byte> Lend(const WireArray& array, std::vector<std::byte>* copy);

  CacheFactory* factory_;
  CacheSetup setup_;
  MemoryTraceStore store_;
  std::map<int64_t, std::unique_ptr<Cache>> caches_;
  std::vector<std::byte> k_, v_, out_;
  std::vector<float> sinks_;
};

// Writes one STATE.
void WriteState(Cache& cache, const CacheSetup& setup, WireWriter& writer);

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_SERVE_CACHE_H_
