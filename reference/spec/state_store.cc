#include "reference/spec/state_store.h"

#include <fmt/format.h>

#include <cstdint>

namespace kvcheck {
namespace {

// FNV-1a (Fowler, Noll, Vo), 64 bits.
class Fnv {
 public:
  void Bytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3u;
  }
  void Number(uint64_t number) {
    for (int i = 0; i < 8; ++i) {
      const auto byte = static_cast<unsigned char>(number >> (8 * i));
      Bytes(&byte, 1);
    }
  }
  // With its length, so that neighbours cannot exchange characters.
  void Text(std::string_view text) {
    Number(text.size());
    Bytes(text.data(), text.size());
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace

std::string StateHash(const StateRecord& record) {
  Fnv fnv;
  for (const auto& [name, value] : record.attributes) {
    if (name == kStateHash) continue;
    fnv.Text(name);
    fnv.Text(value);
  }
  for (const auto& [name, tensor] : record.tensors) {
    fnv.Text(name);
    fnv.Text(Name(tensor.dtype));
    fnv.Number(tensor.shape.axes.size());
    for (const Axis& axis : tensor.shape.axes) fnv.Number(static_cast<uint64_t>(axis.extent));
    fnv.Number(tensor.bytes.size());
    fnv.Bytes(tensor.bytes.data(), tensor.bytes.size());
  }
  return fmt::format("{:016x}", fnv.hash());
}

void MemoryStateStore::Put(std::string_view key, const StateRecord& record) {
  records_.insert_or_assign(std::string(key), record);
}

StoreStatus MemoryStateStore::Get(std::string_view key, StateRecord* record) const {
  const auto found = records_.find(key);
  if (found == records_.end()) return StoreStatus::kMissing;
  *record = found->second;
  return StoreStatus::kOk;
}

StateRecord* MemoryStateStore::Find(std::string_view key) {
  const auto found = records_.find(key);
  return found == records_.end() ? nullptr : &found->second;
}

}  // namespace kvcheck
