#include "reference/trace/trace_store.h"

#include "reference/trace/trace_inputs.h"

namespace kvcheck {

void MemoryTraceStore::Put(std::string_view key, const StateRecord& record) {
  store_.Put(key, record);
  if (const auto found = originals_.find(key); found != originals_.end()) originals_.erase(found);
}

void MemoryTraceStore::Clear() {
  store_.Clear();
  originals_.clear();
}

OpResult MemoryTraceStore::Damage(std::string_view key, const CacheOp& op) {
  StateRecord* record = store_.Find(key);
  originals_.try_emplace(std::string(key), *record);
  DamageRecord(op, record);
  return {};
}

bool MemoryTraceStore::IsAsPut(std::string_view key) const {
  const auto found = originals_.find(key);
  return found == originals_.end() || *store_.Find(key) == found->second;
}

}  // namespace kvcheck
