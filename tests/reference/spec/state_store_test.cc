// The hash of a record changes with anything that the record says, and the memory store gives back
// what was put.

#include "reference/spec/state_store.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace kvcheck {
namespace {

StateRecord Sample() {
  StateRecord record;
  record.attributes = {{kStateKind, "sample"}, {kStateVersion, "1"}};
  record.tensors["k"] = Tensor(DType::kUInt8, {{"T", 2}, {"Dk", 3}});
  record.tensors["v"] = Tensor(DType::kUInt8, {{"T", 2}, {"Dv", 3}});
  for (size_t i = 0; i < 6; ++i) record.tensors["k"].bytes[i] = static_cast<std::byte>(i + 1);
  return record;
}

TEST(StateHash, ChangesWithEverythingButItself) {
  const std::vector<std::function<void(StateRecord*)>> changes = {
      [](StateRecord* r) { r->attributes[kStateVersion] = "2"; },
      [](StateRecord* r) { r->attributes["extra"] = ""; },
      [](StateRecord* r) { r->attributes.erase(kStateKind); },
      [](StateRecord* r) { r->tensors.erase("v"); },
      [](StateRecord* r) { r->tensors["w"] = Tensor(); },
      [](StateRecord* r) { std::swap(r->tensors["k"], r->tensors["v"]); },
      [](StateRecord* r) { r->tensors["k"].dtype = DType::kInt8; },
      [](StateRecord* r) { r->tensors["k"].shape = {{"T", 3}, {"Dk", 2}}; },
      [](StateRecord* r) { r->tensors["k"].bytes.pop_back(); },
      [](StateRecord* r) { r->tensors["k"].bytes.push_back(std::byte{0}); },
  };
  std::set<std::string> hashes = {StateHash(Sample())};
  for (const auto& change : changes) {
    StateRecord record = Sample();
    change(&record);
    EXPECT_TRUE(hashes.insert(StateHash(record)).second) << hashes.size();
  }
  StateRecord record = Sample();
  record.attributes[kStateHash] = StateHash(record);
  EXPECT_EQ(StateHash(record), StateHash(Sample()));
}

TEST(StateHash, ChangesWithEveryBit) {
  const std::string hash = StateHash(Sample());
  for (size_t bit = 0; bit < 48; ++bit) {
    StateRecord record = Sample();
    record.tensors["k"].bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(StateHash(record), hash) << bit;
  }
}

TEST(MemoryStateStore, GivesBackWhatWasPut) {
  MemoryStateStore store;
  StateRecord record;
  EXPECT_EQ(store.Get("a", &record), StoreStatus::kMissing);
  EXPECT_EQ(store.Find("a"), nullptr);
  store.Put("a", Sample());
  ASSERT_EQ(store.Get("a", &record), StoreStatus::kOk);
  EXPECT_EQ(record, Sample());
  store.Find("a")->attributes.clear();
  ASSERT_EQ(store.Get("a", &record), StoreStatus::kOk);
  EXPECT_TRUE(record.attributes.empty());
  store.Put("a", Sample());
  EXPECT_EQ(*store.Find("a"), Sample());
  store.Clear();
  EXPECT_EQ(store.Get("a", &record), StoreStatus::kMissing);
}

}  // namespace
}  // namespace kvcheck
