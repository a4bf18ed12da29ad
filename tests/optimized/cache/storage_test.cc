// What the caches do with memory: views into it, nothing allocated once a workload has been seen, a
// ring that gives back what a long append made it take, bytes as the formats promise.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "optimized/cache/stored_memory.h"
#include "row_probe.h"

namespace {
std::atomic<int64_t> allocations = 0;

void* Counted(size_t size, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Every allocation of this executable is counted. Inlined on one side alone, the pair would look
// mismatched to g++ 12 (-Wmismatched-new-delete).
#define KVCHECK_OUT_OF_LINE __attribute__((noinline))
KVCHECK_OUT_OF_LINE void* operator new(size_t size) {
  return Counted(size, alignof(std::max_align_t));
}
KVCHECK_OUT_OF_LINE void* operator new(size_t size, std::align_val_t alignment) {
  return Counted(size, static_cast<size_t>(alignment));
}
KVCHECK_OUT_OF_LINE void operator delete(void* memory) noexcept { std::free(memory); }
KVCHECK_OUT_OF_LINE void operator delete(void* memory, size_t) noexcept { std::free(memory); }
KVCHECK_OUT_OF_LINE void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
KVCHECK_OUT_OF_LINE void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace kvcheck {
namespace {

CacheSetup SetupOf(const std::string& text) {
  return ParseCacheCase("cache " + text + " data=tokens:0").setup;
}

StepView ViewOf(Cache* cache) {
  StepView view;
  cache->Observe(&view);
  return view;
}

// Columns of zeros, which outlive the call.
struct ZeroColumns {
  ZeroColumns(const CacheSetup& setup, int64_t rows, int64_t count)
      : bytes(static_cast<size_t>(rows * setup.kv_heads * count *
                                  std::max(setup.k_dim, setup.v_dim) * 4)) {
    columns.dtype = setup.x;
    columns.rows = rows;
    columns.kv_heads = setup.kv_heads;
    columns.columns = count;
    columns.k_dim = setup.k_dim;
    columns.v_dim = setup.v_dim;
    columns.k = columns.v = bytes.data();
  }
  std::vector<std::byte> bytes;
  TokenColumns columns;  // all vectors the same: strides are 0
};

TEST(CacheStorage, NothingIsAllocatedOnceAWorkloadHasBeenSeen) {
  for (const char* text : {"k=f32 dk=8 hkv=2 growth=2",
                           "layout=ring:w=5:keep=2 k=affine:4:g64:f16 v=f8e4m3fn x=f16 "
                           "dk=64 hkv=2 hq=4 growth=2",
                           "layout=chunk:c=4 k=affine:3:g32:bf16 x=bf16 dk=32 growth=3"}) {
    const CacheSetup setup = SetupOf(text);
    optimized::OptimizedCacheFactory factory;
    CheckOk(factory.Start(setup));
    const ZeroColumns one(setup, 2, 1);
    const ZeroColumns seven(setup, 2, 7);
    std::vector<std::byte> q(static_cast<size_t>(2 * setup.query_heads * setup.k_dim * 4));
    std::vector<std::byte> out(static_cast<size_t>(2 * setup.query_heads * setup.v_dim * 4));
    std::unique_ptr<Cache> a, b, c, d;
    const std::vector<int64_t> padding = {1, 0};
    const std::vector<int64_t> swap = {1, 0};
    const std::vector<int64_t> rows = {0, 1};
    int64_t before = 0;
    for (int turn = 0; turn < 4; ++turn) {
      before = allocations.load();
      CheckOk(factory.New(setup.layout, setup.k, setup.v, 2, padding, &a));
      for (int i = 0; i < 9; ++i) CheckOk(a->Append(i % 4 == 3 ? seven.columns : one.columns));
      AttendRequest request;
      request.dtype = setup.x;
      request.rows = 2;
      request.query_heads = setup.query_heads;
      request.queries = 1;
      request.q = q.data();
      CheckOk(a->Attend(request, out.data()));
      int64_t trimmed = 0;
      CheckOk(a->Trim(1, &trimmed));
      CheckOk(a->Filter(swap));
      CheckOk(a->Extract(0, &b));
      CheckOk(a->Extract(1, &c));
      CheckOk(a->CopyTo(&d));
      CheckOk(d->Extend(*a));
      CheckOk(d->Filter(rows));
      const Cache* operands[] = {b.get(), c.get()};
      CheckOk(factory.Merge(operands, &d));
      CheckOk(d->Append(one.columns));
      d->PoisonUnused();
      EXPECT_EQ(ViewOf(d.get()).rows, 2);
    }
    EXPECT_EQ(allocations.load(), before) << text;
    EXPECT_GT(before, 0);
  }
}

TEST(CacheStorage, ViewsShowTheStorageItself) {
  RowProbe probe(SetupOf("k=f32 dk=8 hkv=2 growth=16"));
  const std::unique_ptr<Cache> cache = probe.New(2);
  probe.Append(cache.get(), {{0, 0, 0, 3}, {1, 0, 0, 3}}, 3);
  const std::byte* codes = ViewOf(cache.get()).k.planes[0].bytes;
  probe.Append(cache.get(), {{0, 3, 0, 1}, {1, 3, 0, 1}}, 1);
  EXPECT_EQ(ViewOf(cache.get()).k.planes[0].bytes, codes);
}

TEST(CacheStorage, RingsDoNotMoveWhenTheyWrap) {
  RowProbe probe(SetupOf("layout=ring:w=6:keep=2 k=f16 dk=16 growth=4"));
  const std::unique_ptr<Cache> cache = probe.New(1);
  for (int64_t t = 0; t < 6; ++t) probe.AppendRow(cache.get(), 0, t, t + 1);
  const StepView full = ViewOf(cache.get());
  EXPECT_EQ(full.capacity_bytes, 6 * 2 * 16 * 2);
  for (int64_t t = 6; t < 40; ++t) {
    probe.AppendRow(cache.get(), 0, t, t + 1);
    const StepView view = ViewOf(cache.get());
    EXPECT_EQ(view.k.planes[0].bytes, full.k.planes[0].bytes);
    EXPECT_EQ(view.capacity_bytes, full.capacity_bytes);
  }
}

TEST(CacheStorage, RingsGiveBackWhatALongAppendTook) {
  RowProbe probe(SetupOf("layout=ring:w=6:keep=2 k=f16 dk=16 growth=4"));
  const std::unique_ptr<Cache> cache = probe.New(1);
  probe.AppendRow(cache.get(), 0, 0, 100);
  EXPECT_GE(ViewOf(cache.get()).capacity_bytes, 100 * 2 * 16 * 2);
  probe.AppendRow(cache.get(), 0, 100, 101);
  EXPECT_EQ(ViewOf(cache.get()).capacity_bytes, 6 * 2 * 16 * 2);
}

TEST(CacheStorage, MemoryMoves) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{5} << 20}) {
    optimized::StoredMemory memory(bytes);
    std::byte* const data = memory.data();
    EXPECT_EQ(memory.bytes(), bytes);
    std::fill_n(data, bytes, std::byte{7});
    optimized::StoredMemory moved = std::move(memory);
    // It says that it is empty.
    EXPECT_EQ(memory.bytes(), 0);  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
    EXPECT_EQ(memory.data(), nullptr);
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(moved.bytes(), bytes);
    EXPECT_EQ(std::count(data, data + bytes, std::byte{7}), bytes);
    moved = {};
    EXPECT_EQ(moved.bytes(), 0);
    EXPECT_EQ(moved.data(), nullptr);
  }
  EXPECT_THROW(optimized::StoredMemory(int64_t{1} << 60), std::bad_alloc);
  EXPECT_THROW(optimized::StoredMemory(-1), std::bad_alloc);
}

#ifdef __linux__
// The flags that the system has for the memory around an address ("VmFlags" of smaps).
std::string FlagsOf(const std::byte* at) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(at);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2) {
      here = first <= address && address < end;
    }
    if (here && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST(CacheStorage, LargeMemoryAsksForHugePagesAndSmallDoesNot) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  optimized::StoredMemory large(9 * kMiB);
  const optimized::StoredMemory small(kMiB);
  EXPECT_EQ(large.bytes(), 9 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data()) % (2 * kMiB), 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % 64, 0u);
  std::fill_n(large.data(), large.bytes(), std::byte{1});
  std::fill_n(small.data(), small.bytes(), std::byte{1});
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "this system has no transparent huge pages";
  }
  EXPECT_NE(FlagsOf(large.data()).find(" hg "), std::string::npos) << FlagsOf(large.data());
  EXPECT_NE(FlagsOf(large.data() + large.bytes() - 1).find(" hg "), std::string::npos);
  EXPECT_EQ(FlagsOf(small.data()).find(" hg "), std::string::npos) << FlagsOf(small.data());
  const std::byte* const at = large.data();
  large = {};
  EXPECT_EQ(FlagsOf(at), "") << "it is not given back";
}
#endif

TEST(CacheStorage, ExtractedRowsHaveNoTail) {
  RowProbe probe(SetupOf("layout=ring:w=6:keep=2 k=f16 dk=16 growth=64"));
  const std::unique_ptr<Cache> cache = probe.New(2);
  probe.Append(cache.get(), {{0, 0, 0, 3}, {1, 0, 0, 3}}, 3);
  const std::unique_ptr<Cache> row = probe.Extract(*cache, 1);
  const StepView view = ViewOf(row.get());
  EXPECT_EQ(view.live_bytes, 3 * 2 * 16 * 2);
  EXPECT_EQ(view.capacity_bytes, view.live_bytes);
}

TEST(CacheStorage, QuantizedBytesAreTheSharesThatTheFormatsPromise) {
  const auto live = [](const std::string& formats) {
    RowProbe probe(SetupOf(formats + " x=f16 dk=128 hkv=2"));
    const std::unique_ptr<Cache> cache = probe.New(1);
    probe.AppendRow(cache.get(), 0, 0, 10);
    return static_cast<double>(ViewOf(cache.get()).live_bytes);
  };
  const double f16 = live("k=f16");
  // (4 + 2 * 16 / 64) / 16, and the mean of that and of (8 + 0.5) / 16.
  EXPECT_EQ(live("k=affine:4:g64:f16") / f16, 0.28125);
  EXPECT_EQ(live("k=affine:8:g64:f16 v=affine:4:g64:f16") / f16, 0.40625);
}

// mlx-lm PR 1322 reports 11.48 GB of keys and values in f16 and 3.23 GB in 4 bits by groups of 64,
// for two rows of 50K tokens of Qwen3-0.6B: 28 layers of 8 key/value heads of 128 channels.
TEST(CacheStorage, BytesOfTwoLongRowsAreThoseOfThePublicReport) {
  constexpr int64_t kLayers = 28;
  // Of both rows, in one layer; exact for any number of tokens, since every token costs the same.
  const auto per_token = [](const std::string& formats) {
    RowProbe probe(SetupOf(formats + " x=f16 dk=128 hkv=8 hq=16"));
    const std::unique_ptr<Cache> cache = probe.New(2);
    probe.Append(cache.get(), {{0, 0, 0, 5}, {1, 0, 0, 5}}, 5);
    const int64_t few = ViewOf(cache.get()).live_bytes;
    probe.Append(cache.get(), {{0, 5, 0, 60}, {1, 5, 0, 60}}, 60);
    EXPECT_EQ(ViewOf(cache.get()).live_bytes, 13 * few);
    return few / 5;
  };
  const int64_t plain = kLayers * per_token("k=f16");
  const int64_t quantized = kLayers * per_token("k=affine:4:g64:f16");
  EXPECT_EQ(plain, 229376);
  EXPECT_EQ(quantized, 64512);
  // 50,000 tokens of input are 11.47 GB; with 28 to 70 of output both numbers are the report's.
  const auto hundredths = [](int64_t bytes) { return (bytes + 5'000'000) / 10'000'000; };
  EXPECT_EQ(hundredths(50'000 * plain), 1147);
  for (const int64_t tokens : {50'028, 50'048, 50'070}) {
    EXPECT_EQ(hundredths(tokens * plain), 1148) << tokens;
    EXPECT_EQ(hundredths(tokens * quantized), 323) << tokens;
  }
  EXPECT_EQ(50'048 * plain, 11'479'810'048);
  EXPECT_EQ(50'048 * quantized, 3'228'696'576);
}

}  // namespace
}  // namespace kvcheck
