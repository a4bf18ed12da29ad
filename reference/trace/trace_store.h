// Where a trace saves: a store whose records can be damaged, as the operation `damage` does, and
// which knows whether what it holds is still what was put.

#ifndef REFERENCE_TRACE_TRACE_STORE_H_
#define REFERENCE_TRACE_TRACE_STORE_H_

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/state_store.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// The keys of a trace, as its text has them.
inline constexpr std::array<std::string_view, kStateKeys> kStateKeyNames = {
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"};

class TraceStore : public StateStore {
 public:
  virtual void Clear() = 0;
  // Precondition: something was put under the key. Unsupported: records are kept by somebody who
  // does not damage them in this way; nothing has changed.
  virtual OpResult Damage(std::string_view key, const CacheOp& op) = 0;
  // False once what is stored was damaged, until damage has undone damage or another record is put.
  virtual bool IsAsPut(std::string_view key) const = 0;
};

class MemoryTraceStore : public TraceStore {
 public:
  void Put(std::string_view key, const StateRecord& record) override;
  StoreStatus Get(std::string_view key, StateRecord* record) const override {
    return store_.Get(key, record);
  }
  void Clear() override;
  OpResult Damage(std::string_view key, const CacheOp& op) override;
  bool IsAsPut(std::string_view key) const override;

 private:
  mutable MemoryStateStore store_;
  std::map<std::string, StateRecord, std::less<>> originals_;  // of what has been damaged
};

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_TRACE_STORE_H_
