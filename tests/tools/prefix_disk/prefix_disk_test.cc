// What one process stores the next one reads; what it must not read; budgets, locks, kills at every
// write, and what the files are for others.

#include "tools/prefix_disk/prefix_disk.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "golden/safetensors_file.h"
#include "reference/data/generator.h"
#include "reference/spec/error.h"
#include "stored_prompts.h"
#include "temporary_folder.h"
#include "tools/prefix_disk/export_prompt.h"

namespace kvcheck {
namespace {

using optimized::SetupOf;

TEST(PrefixDisk, TheNextProcessReadsTheSameBytes) {
  for (const bool sync : {true, false}) {
    TemporaryFolder folder;
    const PrefixSetup setup = SetupOf("block=2 tokens=32 layers=3 hkv=2 dk=32 dv=16 x=bf16");
    const PrefixDiskOptions options = {.sync = sync, .budget_bytes = 0};
    Store(setup, folder.path(), options).Put({0, 1, 0, 1, 1});
    Store next(setup, folder.path(), options);
    bool from_disk = false;
    EXPECT_EQ(next.Hit({0, 1, 0, 1, 1}, {}, &from_disk), 4);
    EXPECT_TRUE(from_disk);
    EXPECT_EQ(next.Hit({0, 1, 0, 1, 1}, {}, &from_disk), 4);
    EXPECT_FALSE(from_disk);  // memory has them now
    EXPECT_FALSE(next.disk.was_damaged());
  }
}

// As a full disk, without one: files of this process may be no longer than so many bytes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST(PrefixDisk, WhatFindsNoRoomIsLostAndSaid) {
  const PrefixSetup setup = SetupOf("block=2 tokens=32 layers=3 hkv=2 dk=64 dv=64 x=f32");
  bool was_index = false, was_block = false;
  for (const rlim_t bytes :
       std::vector<rlim_t>{1'000, 4'000, 20'000, 24'576, 28'672, 32'768, 36'864, 40'960}) {
    TemporaryFolder folder;
    Store store(setup, folder.path(), kQuick);
    EXPECT_EQ(store.disk.Unwritten(), "");
    Tokens longer;
    {
      const FileLimit limit(bytes);
      for (int32_t i = 0; i < 16; ++i) {
        longer.push_back(i % 2);
        store.Put(longer);
      }
    }
    was_index = was_index || store.disk.Unwritten().starts_with("index.sqlite cannot be written");
    was_block = was_block || store.disk.Unwritten().starts_with("block-");
    // Memory has it all the same.
    EXPECT_EQ(store.Hit(longer), 16);
  }
  EXPECT_TRUE(was_block);
  EXPECT_TRUE(was_index);
}

TEST(PrefixDisk, EightThreadsStoreFetchAndEvictOnOneFolder) {
  TemporaryFolder folder;
  const PrefixSetup setup = SetupOf("block=2 tokens=32 layers=2 dk=16");
  Store store(setup, folder.path(), {.sync = false, .budget_bytes = 16'384});
  std::atomic<int64_t> wrong = 0;
  std::atomic<int64_t> from_disk = 0;
  const auto work = [&](uint64_t thread) {
    Generator random(1, "threads of a folder", thread);
    for (int i = 0; i < 60; ++i) {
      PrefixIdentity who;
      if (random.Below(2) == 0) who.salt = std::string(1, static_cast<char>('a' + random.Below(2)));
      Tokens prompt(static_cast<size_t>(random.Between(2, 8)));
      for (int32_t& token : prompt) token = static_cast<int32_t>(random.Below(2));
      if (random.Below(2) == 0) store.Put(prompt, who);
      if (random.Below(3) == 0) store.cache.Evict(random.Between(1, 32));
      bool is_from_disk = false;
      wrong += store.Hit(prompt, who, &is_from_disk) < 0 ? 1 : 0;
      from_disk += is_from_disk ? 1 : 0;
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 8; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(from_disk, 20);  // else the tier was not asked
  EXPECT_FALSE(store.disk.was_damaged());
}

TEST(PrefixDisk, CodesComeBackAsTheyWereAndAreNotRoundedAgain) {
  for (const char* formats : {"k=affine:4:g32:f32", "k=q8_0 v=q4_1", "k=f8e4m3fn"}) {
    TemporaryFolder folder;
    const PrefixSetup setup =
        SetupOf(std::string("block=2 tokens=32 layers=2 hkv=2 dk=32 quantize_from=4 ") + formats);
    const Tokens prompt = {0, 1, 1, 0};
    const auto read = [&](Store* store, const Tokens& tokens) {
      auto request = store->cache.Open(tokens, {}, true);
      EXPECT_EQ(request->tokens(), std::ssize(tokens)) << formats;
      optimized::Rows rows = optimized::ReadOf(&store->cache, setup, *request);
      store->cache.Close(std::move(request), false);
      return rows;
    };
    Store first(setup, folder.path(), kQuick);
    EXPECT_TRUE(first.Put(prompt));
    const optimized::Rows coded = read(&first, prompt);
    EXPECT_FALSE(coded == optimized::Rows(setup, {}, prompt)) << formats;
    // Goes on inside a block of codes: its rows are plain from there on, and were codes once.
    const Tokens longer = {0, 1, 1, 1};
    auto request = first.cache.Open(prompt, {}, true);
    first.cache.TrimTo(request.get(), 3);
    const Tokens last = {1};
    EXPECT_TRUE(
        first.cache.Append(request.get(), last, optimized::Rows(setup, {}, longer, 3).vectors));
    const optimized::Rows decoded = optimized::ReadOf(&first.cache, setup, *request);
    first.cache.Close(std::move(request), true);
    const optimized::KeptStore kept = first.cache.Kept();
    EXPECT_TRUE(first.disk.Save(0, kept).ok());
    // One process at a time.
    EXPECT_THROW(Store(setup, folder.path(), kQuick), Error);
    const std::string copy = folder.path() + "/copy";
    std::filesystem::create_directory(copy);
    for (const std::string& name : folder.Files()) {
      if (name != "copy") std::filesystem::copy_file(folder.path() + "/" + name, copy + "/" + name);
    }
    Store next(setup, copy, kQuick);
    EXPECT_TRUE(read(&next, prompt) == coded) << formats;
    EXPECT_TRUE(read(&next, longer) == decoded) << formats;
    // Kept once more, behind another token: still not rounded.
    auto again = next.cache.Open(longer, {}, true);
    next.cache.TrimTo(again.get(), 3);
    EXPECT_TRUE(
        next.cache.Append(again.get(), last, optimized::Rows(setup, {}, longer, 3).vectors));
    next.cache.Close(std::move(again), true);
    EXPECT_TRUE(read(&next, longer) == decoded) << formats;
    next.cache.Clear();
    optimized::KeptStore saved;
    EXPECT_EQ(next.disk.Load(0, &saved).message, "") << formats;
    next.cache.Keep(saved);
    EXPECT_TRUE(read(&next, prompt) == coded) << formats;
    EXPECT_TRUE(read(&next, longer) == decoded) << formats;
  }
}

TEST(PrefixDisk, OtherIdentitiesSetupsAndWeightsAreMisses) {
  TemporaryFolder folder;
  const PrefixSetup setup = SetupOf("block=2 tokens=32 layers=2 dk=16");
  const Tokens prompt = {0, 1, 0, 1};
  PrefixIdentity tenant;
  tenant.salt = "a\nb\"\\\x01";  // whatever bytes
  Store(setup, folder.path(), kQuick).Put(prompt, tenant);
  {
    Store next(setup, folder.path(), kQuick);
    EXPECT_EQ(next.Hit(prompt), 0);
    EXPECT_EQ(next.Hit(prompt, tenant), 4);
    EXPECT_EQ(next.Hit({1, 1, 0, 1}, tenant), 0);  // an equal block behind another prefix
  }
  for (const char* other :
       {"block=1 tokens=32 layers=2 dk=16", "block=2 tokens=32 layers=2 dk=16 x=f16",
        "block=2 tokens=32 layers=3 dk=16", "block=2 tokens=32 layers=2 dk=32",
        "block=2 tokens=32 layers=2 dk=16 hkv=2", "block=2 tokens=32 layers=2 dk=16 k=bf16"}) {
    Store next(SetupOf(other), folder.path(), kQuick);
    EXPECT_EQ(next.Hit(prompt, tenant), 0) << other;
  }
  {
    Store next(setup, folder.path(), kQuick);
    EXPECT_EQ(next.Hit(prompt, tenant), 4);
    EXPECT_TRUE(next.disk.Save(0, next.cache.Kept()).ok());
    next.cache.Epoch();
  }
  Store last(setup, folder.path(), kQuick, 1);
  EXPECT_EQ(last.Hit(prompt, tenant), 0);
  optimized::KeptStore kept;
  EXPECT_EQ(last.disk.Load(0, &kept).message, "it was saved under other weights");
  EXPECT_EQ(last.disk.Load(1, &kept).message, "nothing is saved under this key");
}

TEST(PrefixDisk, ASavedStoreOfOtherSettingsIsRefused) {
  TemporaryFolder folder;
  const PrefixSetup setup = SetupOf("block=2 tokens=32 layers=2 dk=16");
  {
    Store store(setup, folder.path(), kQuick);
    store.Put({0, 1});
    EXPECT_TRUE(store.disk.Save(2, store.cache.Kept()).ok());
    EXPECT_TRUE(store.disk.Save(3, {}).ok());
    optimized::KeptStore empty;
    EXPECT_TRUE(store.disk.Load(3, &empty).ok());
    EXPECT_TRUE(empty.blocks.empty());
  }
  Store other(SetupOf("block=1 tokens=32 layers=2 dk=16"), folder.path(), kQuick);
  optimized::KeptStore kept;
  EXPECT_EQ(other.disk.Load(2, &kept).message.substr(0, 33), "it was saved with other settings:");
}

TEST(PrefixDisk, TheBudgetKeepsTheNewest) {
  TemporaryFolder folder;
  const PrefixSetup setup = SetupOf("block=2 tokens=64 layers=1 dk=16");
  int64_t of_block = 0;
  {
    Store store(setup, folder.path(), kQuick);
    store.Put({0, 0});
    of_block = store.disk.bytes();
    store.Put({0, 0, 0, 0});
    store.Put({1, 1, 1, 1});
    store.Put({2, 2});
    EXPECT_EQ(store.disk.bytes() / of_block, 5);
  }
  // Files differ by the digits of their positions and tokens alone.
  const PrefixDiskOptions three = {.sync = false, .budget_bytes = 4 * of_block - 1};
  {
    Store next(setup, folder.path(), three);
    EXPECT_LE(next.disk.bytes(), three.budget_bytes);
    EXPECT_EQ(next.Hit({2, 2}), 2);
    EXPECT_EQ(next.Hit({1, 1, 1, 1}), 4);
    EXPECT_EQ(next.Hit({0, 0, 0, 0}), 0);
    EXPECT_EQ(folder.Files().size(), 4u);  // an index and 3 blocks
  }
  {
    Store next(setup, folder.path(), three);
    EXPECT_EQ(next.Hit({1, 1, 1, 1}), 4);  // used: recent
    next.Put({3, 3});
    EXPECT_LE(next.disk.bytes(), three.budget_bytes);
  }
  Store last(setup, folder.path(), three);
  EXPECT_EQ(last.Hit({2, 2}), 0);
  EXPECT_EQ(last.Hit({1, 1, 1, 1}), 4);
  EXPECT_EQ(last.Hit({3, 3}), 2);
}

TEST(PrefixDisk, ASecondProcessIsRefused) {
  TemporaryFolder folder;
  const PrefixSetup setup = SetupOf("block=2 tokens=64 layers=1 dk=16");
  const Store store(setup, folder.path(), kQuick);
  try {
    const Store second(setup, folder.path(), kQuick);
    ADD_FAILURE() << "two stores on one folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    EXPECT_EQ(error.context(), folder.path());
    EXPECT_NE(error.message().find("another process"), std::string::npos);
  }
  EXPECT_THROW(Store(setup, "/proc/none", kQuick), Error);
}

// Ends the process at each write of a history, the first, the second and so on.
TEST(PrefixDisk, EndedAtAnyWriteNothingOlderIsLost) {
  const PrefixSetup setup = SetupOf("block=2 tokens=64 layers=1 dk=16");
  const Tokens older = {0, 0, 0, 0};
  const Tokens newer = {0, 0, 1, 1, 0, 1};
  enum class Step { kStore, kReplace, kSave, kClear, kEpoch };
  for (const Step step : {Step::kStore, Step::kReplace, Step::kSave, Step::kClear, Step::kEpoch}) {
    bool is_killed = true;
    int64_t write = 1;
    int there = 0;
    for (; is_killed; ++write) {
      TemporaryFolder folder;
      {
        Store store(setup, folder.path(), kQuick);
        EXPECT_TRUE(store.Put(older));
        EXPECT_TRUE(store.disk.Save(0, store.cache.Kept()).ok());
        store.disk.KillAtWrite(write);
        is_killed = false;
        try {
          if (step == Step::kStore) store.Put(newer);
          if (step == Step::kReplace) {
            // Memory has lost it, the tier is given it once more.
            const optimized::KeptStore kept = store.cache.Kept();
            store.disk.Store(
                {{}, std::span(older).first(2)}, kept.blocks[0].state,
                {kept.blocks[0].bytes.get(), static_cast<size_t>(kept.blocks[0].size)});
            store.disk.Commit();
          }
          if (step == Step::kSave) {
            store.disk.KillAtWrite(0);
            store.Put(newer);
            store.disk.KillAtWrite(write);
            store.disk.Save(0, store.cache.Kept());
          }
          if (step == Step::kClear) store.cache.Clear();
          if (step == Step::kEpoch) store.cache.Epoch();
        } catch (const PrefixKilled&) {
          is_killed = true;
        }
      }
      const std::string where =
          "step " + std::to_string(static_cast<int>(step)) + ", write " + std::to_string(write);
      Store next(setup, folder.path(), kQuick);
      EXPECT_FALSE(next.disk.was_damaged()) << where;
      const int64_t hit = next.Hit(older);
      const bool forgets = step == Step::kClear || step == Step::kEpoch;
      EXPECT_GE(hit, 0) << where;
      EXPECT_TRUE(forgets || hit == 4) << where;
      EXPECT_TRUE(!forgets || is_killed || hit == 0) << where;
      const int64_t of_newer = next.Hit(newer);
      EXPECT_GE(of_newer, 0) << where;
      there += of_newer == 6 || step == Step::kReplace || (forgets && hit == 0) ? 1 : 0;
      optimized::KeptStore kept;
      const OpResult loaded = next.disk.Load(0, &kept);
      EXPECT_TRUE(loaded.ok() || step == Step::kEpoch) << where << loaded.message;
      // Nothing is left of what was being written.
      for (const std::string& name : folder.Files()) {
        EXPECT_FALSE(name.ends_with(".tmp")) << where;
      }
      EXPECT_TRUE(next.Put({1, 0, 1, 0})) << where;
    }
    // It was ended at writes, before the change was there and after it.
    EXPECT_GT(write, 3) << static_cast<int>(step);
    EXPECT_GT(there, step == Step::kClear || step == Step::kEpoch ? 1 : 0);
    EXPECT_LT(there, write);
  }
}

// What a file has of mlx-lm's names; the library itself reads them in tests/tools/adapters.
TEST(PrefixDisk, FilesAreThoseOfMlxLm) {
  TemporaryFolder folder;
  const PrefixSetup setup =
      SetupOf("block=2 tokens=32 layers=2 hkv=3 dk=32 x=f16 k=affine:4:g32:f16 quantize_from=4");
  Store store(setup, folder.path(), kQuick);
  store.Put({1, 1});
  store.Put({0, 1, 0, 1});
  const auto shape_of = [](const SafetensorsFile& file, const std::string& name) {
    for (const ListedTensor& tensor : ListTensors(file.index())) {
      if (tensor.path == "/" + name) return ToString(tensor.shape);
    }
    return std::string("absent");
  };
  const SafetensorsFile plain(folder.path() + "/block-00000001.safetensors");
  EXPECT_EQ(shape_of(plain, "1.0"), "1x3x2x32");
  EXPECT_EQ(shape_of(plain, "1.1"), "1x3x2x32");
  const SafetensorsFile coded(folder.path() + "/block-00000002.safetensors");
  EXPECT_EQ(shape_of(coded, "0.0.0"), "1x3x2x4");  // 8 codes a word
  EXPECT_EQ(shape_of(coded, "0.1.2"), "1x3x2x1");
  const std::string path = folder.path() + "/exported.safetensors";
  EXPECT_EQ(ExportPrompt(&store.cache, setup, Tokens{0, 1, 0, 1, 1}, {}, path), 4);
  SafetensorsFile exported(path);
  EXPECT_EQ(shape_of(exported, "1.1"), "1x3x4x32");
  // V of layer 1, as a request reads it.
  auto request = store.cache.Open(Tokens{0, 1, 0, 1}, {}, true);
  const optimized::Rows rows = optimized::ReadOf(&store.cache, setup, *request);
  store.cache.Close(std::move(request), false);
  std::vector<std::byte> v(rows.v.size() / 2);
  exported.ReadElements("/1.1", 0, std::ssize(v) / 2, v.data());
  EXPECT_EQ(std::memcmp(v.data(), rows.v.data() + v.size(), v.size()), 0);
  EXPECT_EQ(ExportPrompt(&store.cache, setup, Tokens{3, 3}, {}, path + "2"), 0);
  EXPECT_FALSE(std::filesystem::exists(path + "2"));
  EXPECT_THROW(ExportPrompt(&store.cache, setup, Tokens{0, 1}, {}, "/proc/none/file"), Error);
}

}  // namespace
}  // namespace kvcheck
