// Where a cache is saved: records of named tensors and attributes under a key. A store keeps bytes
// and says whether they are what was put; what the record means is the business of the cache that
// wrote it, which must recognise its own kind, its version and its content again.

#ifndef REFERENCE_SPEC_STATE_STORE_H_
#define REFERENCE_SPEC_STATE_STORE_H_

#include <map>
#include <string>
#include <string_view>

#include "reference/spec/tensor.h"

namespace kvcheck {

// Attributes that every record of a cache carries, so that a stranger's or a later version's record
// is recognised before anything else is read.
inline constexpr const char* kStateKind = "kind";        // "kvcheck-cache", ...: who wrote it
inline constexpr const char* kStateVersion = "version";  // of the record's schema, decimal
inline constexpr const char* kStateHash = "hash";        // StateHash of the record

struct StateRecord {
  std::map<std::string, std::string> attributes;
  TensorMap tensors;
  bool operator==(const StateRecord&) const = default;
};

// 16 hexadecimal digits over all names, attributes but kStateHash, types, shapes and bytes: FNV-1a
// in 64 bits, in which any one changed byte changes the hash. Against damage, not against forgery.
std::string StateHash(const StateRecord& record);

enum class StoreStatus {
  kOk,
  kMissing,  // nothing is stored under the key
  kDamaged,  // what is stored is not what was put: truncated, changed or foreign
};

class StateStore {
 public:
  virtual ~StateStore() = default;
  // Replaces what is stored under the key: after a crash either the old or the new record is there,
  // whole. Errors: kUnreadableFile when it cannot be written; then the old one is still there.
  virtual void Put(std::string_view key, const StateRecord& record) = 0;
  // *record is set when kOk, else unspecified.
  virtual StoreStatus Get(std::string_view key, StateRecord* record) const = 0;
};

// Records in memory. It believes what it is given, so that a cache's own checks are tested.
class MemoryStateStore : public StateStore {
 public:
  void Put(std::string_view key, const StateRecord& record) override;
  StoreStatus Get(std::string_view key, StateRecord* record) const override;
  // The record itself, to damage it; nullptr when there is none.
  StateRecord* Find(std::string_view key);
  void Clear() { records_.clear(); }

 private:
  std::map<std::string, StateRecord, std::less<>> records_;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_STATE_STORE_H_
