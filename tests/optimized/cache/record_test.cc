// Records that are whole by their hash and yet are not what a cache would have saved: refused, with
// nothing changed.

#include <gtest/gtest.h>

#include <functional>

#include "row_probe.h"

namespace kvcheck {
namespace {

CacheSetup SetupOf(const std::string& text) {
  return ParseCacheCase("cache " + text + " data=tokens:0").setup;
}

const std::string kSetup = "layout=ring:w=4:keep=1 k=affine:4:g32:f16 v=f16 x=f16 dk=32 hkv=2";

StateRecord Saved() {
  RowProbe probe(SetupOf(kSetup));
  const std::unique_ptr<Cache> cache = probe.New(2);
  probe.Append(cache.get(), {{0, 0, 0, 9}, {1, 0, 0, 9}}, 9);
  probe.Append(cache.get(), {{0, 9, 0, 1}, {1, 9, 0, 1}}, 1);
  MemoryStateStore store;
  CheckOk(cache->Save(&store, "s"));
  return *store.Find("s");
}

OpResult LoadInto(const std::string& setup, StateRecord record, std::unique_ptr<Cache>* out) {
  static optimized::OptimizedCacheFactory factory;
  CheckOk(factory.Start(SetupOf(setup)));
  record.attributes[kStateHash] = StateHash(record);
  MemoryStateStore store;
  store.Put("s", record);
  return factory.Load(store, "s", out);
}

int64_t* Field(StateRecord* record, int64_t row, int64_t field) {
  return record->tensors.at("rows").As<int64_t>() + row * 3 + field;
}

TEST(CacheRecord, IsSelfDescribing) {
  const StateRecord record = Saved();
  EXPECT_EQ(record.attributes.at(kStateKind), "kvcheck-cache");
  EXPECT_EQ(record.attributes.at(kStateVersion), "1");
  EXPECT_EQ(record.attributes.at("layout"), "ring:w=4:keep=1");
  EXPECT_EQ(record.attributes.at("k"), "affine:4:g32:f16");
  EXPECT_EQ(record.attributes.at("heads"), "2 32 32");
  EXPECT_EQ(record.tensors.size(), 5u);  // rows, codes, scales and biases of K, codes of V
  std::unique_ptr<Cache> out;
  EXPECT_TRUE(LoadInto(kSetup, record, &out).ok());
  EXPECT_NE(out, nullptr);
}

// Of 5 tokens of V the newest 3 are vectors.
TEST(CacheRecord, OfAResidualHasCodesAndVectorsApart) {
  const std::string setup = "k=f32 v=affine:4:g32:r3:f32 x=f32 dk=8 dv=32 hkv=2";
  RowProbe probe(SetupOf(setup));
  const std::unique_ptr<Cache> cache = probe.New(1);
  probe.Append(cache.get(), {{0, 0, 0, 5}}, 5);
  MemoryStateStore store;
  CheckOk(cache->Save(&store, "s"));
  const StateRecord record = *store.Find("s");
  EXPECT_EQ(record.tensors.size(), 6u);
  const auto expect = [&](const char* name, int64_t entries, int64_t bytes) {
    const std::vector<Axis>& axes = record.tensors.at(name).shape.axes;
    EXPECT_EQ(axes[0].extent, entries) << name;
    EXPECT_EQ(axes[1].extent, bytes) << name;
  };
  expect("k_codes", 5, 2 * 8 * 4);
  expect("v_codes", 2, 2 * 32 / 2);
  expect("v_scales", 2, 2 * 4);
  expect("v_biases", 2, 2 * 4);
  expect("v_residual", 3, 2 * 32 * 4);
  std::unique_ptr<Cache> out;
  EXPECT_TRUE(LoadInto(setup, record, &out).ok());
  // A token in the residual or out of it, and not the same.
  for (const auto& [plane, entries] : {std::pair("v_residual", 2), {"v_codes", 3}}) {
    StateRecord forged = record;
    Tensor& tensor = forged.tensors.at(plane);
    tensor = Tensor(DType::kUInt8, {{"T", entries}, tensor.shape.axes[1]});
    std::unique_ptr<Cache> none;
    EXPECT_FALSE(LoadInto(setup, forged, &none).ok()) << plane;
  }
}

TEST(CacheRecord, RecordsThatDoNotFitTogetherAreRefused) {
  const std::vector<std::pair<const char*, std::function<void(StateRecord*)>>> kForgeries = {
      {"a kind", [](StateRecord* r) { r->attributes[kStateKind] = "kvcheck-cache-model"; }},
      {"a version", [](StateRecord* r) { r->attributes[kStateVersion] = "2"; }},
      {"a layout", [](StateRecord* r) { r->attributes["layout"] = "ring:w=4:keep=4"; }},
      {"a wider ring", [](StateRecord* r) { r->attributes["layout"] = "ring:w=9:keep=1"; }},
      {"no layout", [](StateRecord* r) { r->attributes.erase("layout"); }},
      {"a format", [](StateRecord* r) { r->attributes["k"] = "affine:4:g64:f16"; }},
      {"another format", [](StateRecord* r) { r->attributes["v"] = "f8e5m2"; }},
      {"a negative offset", [](StateRecord* r) { *Field(r, 0, 0) = -1; }},
      {"a huge offset", [](StateRecord* r) { *Field(r, 0, 0) = int64_t{1} << 62; }},
      {"a longer row", [](StateRecord* r) { ++*Field(r, 0, 0); }},
      {"a shorter row", [](StateRecord* r) { --*Field(r, 1, 0); }},
      {"nothing retained", [](StateRecord* r) { *Field(r, 1, 1) = *Field(r, 1, 0); }},
      {"retained beyond the end", [](StateRecord* r) { *Field(r, 1, 1) = 1000; }},
      {"negative padding", [](StateRecord* r) { *Field(r, 1, 2) = -1; }},
      {"no rows", [](StateRecord* r) { r->tensors.erase("rows"); }},
      {"no biases", [](StateRecord* r) { r->tensors.erase("k_biases"); }},
      {"one more tensor", [](StateRecord* r) { r->tensors["v_scales"] = Tensor(); }},
      {"a lost byte", [](StateRecord* r) { r->tensors.at("v_codes").bytes.pop_back(); }},
      {"a lost extent", [](StateRecord* r) { --r->tensors.at("v_codes").shape.axes[0].extent; }},
      {"another type", [](StateRecord* r) { r->tensors.at("v_codes").dtype = DType::kBool; }},
  };
  for (const auto& [name, forge] : kForgeries) {
    StateRecord record = Saved();
    forge(&record);
    std::unique_ptr<Cache> out;
    EXPECT_FALSE(LoadInto(kSetup, record, &out).ok()) << name;
    EXPECT_EQ(out, nullptr) << name;
  }
}

TEST(CacheRecord, ManyRowsBesideALongOneAreRefusedBeforeTheyTakeMemory) {
  // 36 MB of record that ask for 12 TB: 10^6 rows with the slots of the longest.
  const int64_t tokens = int64_t{1} << 16;
  StateRecord record = Saved();
  record.attributes["layout"] = "linear";
  record.tensors["rows"] = Tensor(DType::kInt64, {{"B", 1'000'000}, {"", 3}});
  *Field(&record, 7, 0) = tokens;
  for (auto& [name, tensor] : record.tensors) {
    if (name == "rows") continue;
    tensor = Tensor(DType::kUInt8, {{"T", tokens}, {"", tensor.shape.axes[1].extent}});
  }
  std::unique_ptr<Cache> out;
  const OpResult result = LoadInto(kSetup, record, &out);
  EXPECT_EQ(result.status, OpStatus::kRefused);
  EXPECT_NE(result.message.find("memory"), std::string_view::npos) << result.message;
  // The long row alone is a record like any other.
  record.tensors["rows"] = Tensor(DType::kInt64, {{"B", 1}, {"", 3}});
  *Field(&record, 0, 0) = tokens;
  EXPECT_TRUE(LoadInto(kSetup, record, &out).ok());
}

TEST(CacheRecord, RecordsOfOtherHeadsDimensionsOrTypesAreRefused) {
  for (const char* setup : {"k=f16 x=f16 dk=32 hkv=1", "k=f16 x=f16 dk=64 hkv=2",
                            "k=f16 x=f16 dk=32 dv=64 hkv=2", "k=f16 x=bf16 dk=32 hkv=2"}) {
    std::unique_ptr<Cache> out;
    EXPECT_FALSE(LoadInto(setup, Saved(), &out).ok()) << setup;
  }
}

}  // namespace
}  // namespace kvcheck
