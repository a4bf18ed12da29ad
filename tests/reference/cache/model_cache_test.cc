// The model as an implementation: what it shows, saves and refuses, where a trace cannot ask.

#include "reference/cache/model_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "reference/data/token_rows.h"

namespace kvcheck {
namespace {

CacheSetup SmallSetup() {
  CacheSetup setup;
  setup.kv_heads = 2;
  setup.query_heads = 2;
  setup.k_dim = 8;
  setup.v_dim = 4;
  return setup;
}

// One row of `columns` tokens.
struct Columns {
  std::vector<std::byte> k, v;
  TokenColumns view;
  explicit Columns(int64_t columns, int64_t first = 0) {
    k.resize(static_cast<size_t>(2 * columns * 8 * 4));
    v.resize(static_cast<size_t>(2 * columns * 4 * 4));
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t n = 0; n < columns; ++n) {
        const uint64_t token = TokenId(0, 0, first + n);
        FillTokenVector(1, token, h, TokenPart::kKey, DType::kFloat32, 8,
                        k.data() + (h * columns + n) * 32);
        FillTokenVector(1, token, h, TokenPart::kValue, DType::kFloat32, 4,
                        v.data() + (h * columns + n) * 16);
      }
    }
    view.rows = 1;
    view.kv_heads = 2;
    view.columns = columns;
    view.k_dim = 8;
    view.v_dim = 4;
    view.k = k.data();
    view.v = v.data();
    view.k_strides = {2 * columns * 32, columns * 32, 32};
    view.v_strides = {2 * columns * 16, columns * 16, 16};
  }
};

TEST(ModelCache, ShowsTheBytesThatWereAppended) {
  ModelFactory factory;
  ASSERT_TRUE(factory.Start(SmallSetup()).ok());
  std::unique_ptr<Cache> cache;
  const KvFormat f32 = PlainFormat{};
  ASSERT_TRUE(factory.New({}, f32, f32, 1, {}, &cache).ok());
  const Columns three(3);
  ASSERT_TRUE(cache->Append(three.view).ok());
  StepView view;
  cache->Observe(&view);
  ASSERT_EQ(view.columns, 3);
  EXPECT_EQ(view.queries, 3);
  EXPECT_EQ(view.retained[0], 7u);
  EXPECT_EQ(view.visible[0], 1u);
  EXPECT_EQ(view.visible[1], 3u);
  EXPECT_EQ(view.visible[2], 7u);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(std::memcmp(view.k.planes[0].At(0, h, c), three.k.data() + (h * 3 + c) * 32, 32),
                0);
      EXPECT_EQ(std::memcmp(view.v.planes[0].At(0, h, c), three.v.data() + (h * 3 + c) * 16, 16),
                0);
    }
  }
  EXPECT_EQ(view.live_bytes, 3 * 2 * (32 + 16));
  EXPECT_EQ(view.capacity_bytes, 8 * 2 * (32 + 16));
  EXPECT_EQ(view.offsets[0], 3);
}

TEST(ModelCache, LoadRefusesARecordOfAnotherSetupAndOneWhosePartsDoNotFit) {
  ModelFactory factory;
  ASSERT_TRUE(factory.Start(SmallSetup()).ok());
  std::unique_ptr<Cache> cache;
  const KvFormat f32 = PlainFormat{};
  ASSERT_TRUE(factory.New({}, f32, f32, 1, {}, &cache).ok());
  ASSERT_TRUE(cache->Append(Columns(3).view).ok());
  MemoryStateStore store;
  ASSERT_TRUE(cache->Save(&store, "a").ok());
  std::unique_ptr<Cache> loaded;
  EXPECT_TRUE(factory.Load(store, "a", &loaded).ok());
  EXPECT_EQ(loaded->RetainedTokens(0), 3);
  EXPECT_EQ(factory.Load(store, "b", &loaded).status, OpStatus::kRefused);
  // Hashes are right again: only the content says that it does not fit.
  const auto refuses = [&](const std::function<void(StateRecord*)>& change) {
    StateRecord record;
    EXPECT_EQ(store.Get("a", &record), StoreStatus::kOk);
    change(&record);
    record.attributes[kStateHash] = StateHash(record);
    store.Put("c", record);
    return factory.Load(store, "c", &loaded).status == OpStatus::kRefused;
  };
  EXPECT_FALSE(refuses([](StateRecord*) {}));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->attributes["heads"] = "1 8 4"; }));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->attributes["x"] = "f16"; }));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->attributes["layout"] = "ring"; }));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->attributes["k"] = "affine:4:g64:f16"; }));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->tensors.erase("v"); }));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->tensors["k"].bytes.pop_back(); }));
  for (int64_t value : {int64_t{-1}, int64_t{4}, int64_t{1} << 62}) {
    for (int field = 0; field < 3; ++field) {
      if (value == 4 && field == 1) continue;  // four columns of padding are possible
      EXPECT_TRUE(refuses([&](StateRecord* r) { r->tensors["rows"].As<int64_t>()[field] = value; }))
          << field << " " << value;
    }
  }
  EXPECT_TRUE(refuses([](StateRecord* r) { r->attributes["layout"] = "ring:w=3:keep=3"; }));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->tensors["rows"].dtype = DType::kUInt8; }));
  EXPECT_TRUE(refuses([](StateRecord* r) { r->tensors["rows"].bytes.pop_back(); }));
  EXPECT_TRUE(refuses([](StateRecord* r) { ++r->tensors["k"].shape.axes[0].extent; }));
  EXPECT_TRUE(refuses([](StateRecord* r) {
    for (const char* name : {"k", "v"}) {  // a token more than the rows have
      Tensor& tensor = r->tensors[name];
      tensor = Tensor(tensor.dtype, {{"T", 4}, tensor.shape.axes[1]});
    }
  }));
  EXPECT_EQ(loaded->RetainedTokens(0), 3);  // what was there is still there
}

TEST(ModelCache, EvictedTokensOfManyRowsAreRefusedBeforeTheyTakeMemory) {
  // They have no bytes: 24 KB of rows would ask for 134 GB of handles.
  ModelFactory factory;
  ASSERT_TRUE(factory.Start(SmallSetup()).ok());
  std::unique_ptr<Cache> cache;
  const KvFormat f32 = PlainFormat{};
  const CacheLayout ring = {LayoutKind::kRing, 1, 0, 0};
  ASSERT_TRUE(factory.New(ring, f32, f32, 1, {}, &cache).ok());
  MemoryStateStore store;
  ASSERT_TRUE(cache->Save(&store, "a").ok());
  StateRecord record = *store.Find("a");
  Tensor rows(DType::kInt64, {{"B", 1000}, {"", 3}});
  for (int64_t b = 0; b < 1000; ++b) {
    rows.As<int64_t>()[3 * b] = int64_t{1} << 24;
    rows.As<int64_t>()[3 * b + 2] = int64_t{1} << 24;
  }
  record.tensors["rows"] = rows;
  record.attributes[kStateHash] = StateHash(record);
  store.Put("a", record);
  std::unique_ptr<Cache> loaded;
  EXPECT_EQ(factory.Load(store, "a", &loaded).status, OpStatus::kRefused);
}

TEST(ModelCache, ReusesACacheThatNobodyNeeds) {
  ModelFactory factory;
  ASSERT_TRUE(factory.Start(SmallSetup()).ok());
  std::unique_ptr<Cache> cache;
  const KvFormat f32 = PlainFormat{};
  ASSERT_TRUE(factory.New({}, f32, f32, 1, {}, &cache).ok());
  ASSERT_TRUE(cache->Append(Columns(3).view).ok());
  const Cache* address = cache.get();
  const CacheLayout bad = {LayoutKind::kRing, 2, 2, 0};
  EXPECT_EQ(factory.New(bad, f32, f32, 1, {}, &cache).status, OpStatus::kRefused);
  EXPECT_EQ(cache->RetainedTokens(0), 3);
  ASSERT_TRUE(factory.New({}, f32, f32, 2, {}, &cache).ok());
  EXPECT_EQ(cache.get(), address);
  EXPECT_EQ(cache->RetainedTokens(1), 0);
}

}  // namespace
}  // namespace kvcheck
