// Saved caches in files: what is put comes back, whatever is changed about a file is noticed, a
// forged file is refused before it takes memory, and a process that dies leaves the old record or
// the new one.

#include "golden/hdf5_state_store.h"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "golden/content_hash.h"
#include "golden/plain_writer.h"
#include "optimized/cache/cache_factory.h"
#include "reference/spec/error.h"
#include "reference/spec/trace.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using golden_samples::Counting;
using golden_samples::ReadBytes;
using golden_samples::WriteBytes;

StateRecord Sample(int64_t tokens) {
  StateRecord record;
  record.attributes = {
      {kStateKind, "a kind"}, {kStateVersion, "1"}, {"empty", ""}, {"", "unnamed"}};
  record.tensors["rows"] = Counting(DType::kInt64, {{"B", 2}, {"", 3}});
  record.tensors["k_codes"] = Counting(DType::kUInt8, {{"T", tokens}, {"", 5}});
  record.tensors["half"] = Counting(DType::kBFloat16, {{"T", tokens}});
  record.tensors["flags"] = Counting(DType::kBool, {});
  record.tensors["nothing"] = Tensor(DType::kFloat32, {{"T", 0}, {"Dk", 4}});
  return record;
}

class Hdf5StateStoreTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  StoreStatus Status(const std::string& key) const {
    StateRecord record;
    return store_.Get(key, &record);
  }

  const std::string folder_ = golden_samples::TemporaryPath("states");
  Hdf5StateStore store_{folder_};
};

TEST_F(Hdf5StateStoreTest, WhatIsPutComesBack) {
  for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{129}, int64_t{1} << 19}) {
    store_.Put("s1", Sample(tokens));
    store_.Put("s2", StateRecord{});
    StateRecord record = Sample(7);
    ASSERT_EQ(store_.Get("s1", &record), StoreStatus::kOk);
    EXPECT_TRUE(record == Sample(tokens)) << tokens;
    ASSERT_EQ(store_.Get("s2", &record), StoreStatus::kOk);
    EXPECT_TRUE(record == StateRecord{});
    EXPECT_EQ(Files(), 2u);
  }
  EXPECT_EQ(Status("s3"), StoreStatus::kMissing);
}

TEST_F(Hdf5StateStoreTest, NoBitOfAFileCanChangeAndNoByteCanBeMissing) {
  store_.Put("s", Sample(2));
  const std::string path = store_.PathOf("s");
  const std::string bytes = ReadBytes(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto write = [&](size_t at, char byte) {
      file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
    };
    for (size_t at = 0; at < bytes.size(); ++at) {
      write(at, static_cast<char>(bytes[at] ^ (1 << (at % 8))));
      ASSERT_EQ(Status("s"), StoreStatus::kDamaged) << "byte " << at;
      write(at, bytes[at]);
    }
  }
  ASSERT_EQ(Status("s"), StoreStatus::kOk);
  std::filesystem::resize_file(path, bytes.size() + 1);
  EXPECT_EQ(Status("s"), StoreStatus::kDamaged);
  for (size_t size = bytes.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    ASSERT_EQ(Status("s"), StoreStatus::kDamaged) << size << " bytes";
  }
}

TEST_F(Hdf5StateStoreTest, OtherFilesAreDamaged) {
  const std::string fixture = golden_samples::FixturePath("fixture_python.h5");
  std::filesystem::copy_file(fixture, store_.PathOf("golden"));
  EXPECT_EQ(Status("golden"), StoreStatus::kDamaged);
  WriteBytes(store_.PathOf("text"), std::string(2000, 'x'));
  EXPECT_EQ(Status("text"), StoreStatus::kDamaged);
  std::filesystem::create_directory(store_.PathOf("folder"));
  EXPECT_EQ(Status("folder"), StoreStatus::kDamaged);
}

// A file with the right header whatever is behind it.
void Seal(const std::string& path) {
  const std::string bytes = ReadBytes(path).substr(kStateHeaderBytes);
  Sha256 hash;
  hash.Update(bytes.data(), bytes.size());
  std::string header = "kvcheck state 1\nsha256 ";
  for (const std::byte byte : hash.Finish()) {
    constexpr const char* kDigits = "0123456789abcdef";
    header += {kDigits[static_cast<size_t>(byte) / 16], kDigits[static_cast<size_t>(byte) % 16]};
  }
  header += "\nbytes " + std::to_string(bytes.size()) + "\n";
  header.resize(static_cast<size_t>(kStateHeaderBytes), '\0');
  WriteBytes(path, header + bytes);
}

TEST_F(Hdf5StateStoreTest, TensorsLargerThanTheirFileAreRefused) {
  const std::string path = store_.PathOf("s");
  {
    PlainWriter writer(path, PlainWriter::Storage::kContiguous, kStateHeaderBytes);
    writer.Begin("/attributes", DType::kUInt8, Shape::Unnamed({0}));
    writer.Finish();
  }
  Seal(path);
  ASSERT_EQ(Status("s"), StoreStatus::kOk);  // this is how a header is made
  // 2^30 zeros take a few thousand bytes when they are compressed.
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hsize_t extents[1] = {hsize_t{1} << 30};
  const hsize_t chunk[1] = {hsize_t{1} << 24};
  const hid_t space = H5Screate_simple(1, extents, nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 1, chunk);
  H5Pset_deflate(creation, 1);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation, H5D_FILL_TIME_ALLOC);
  const hid_t group = H5Gcreate2(file, "/tensors", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t dataset =
      H5Dcreate2(file, "/tensors/k", H5T_STD_U8LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  H5Dclose(dataset);
  H5Gclose(group);
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
  ASSERT_LT(std::filesystem::file_size(path), 1u << 24);
  Seal(path);
  EXPECT_EQ(Status("s"), StoreStatus::kDamaged);
}

TEST_F(Hdf5StateStoreTest, WhatAFileCannotSayIsRefusedAndTheOldRecordStays) {
  store_.Put("s", Sample(1));
  const auto refuses = [&](const std::string& key, const StateRecord& record) {
    try {
      store_.Put(key, record);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kUsage;
    }
    return false;
  };
  EXPECT_TRUE(refuses("", Sample(1)));
  EXPECT_TRUE(refuses("..", Sample(1)));
  EXPECT_TRUE(refuses("a/b", Sample(1)));
  StateRecord record = Sample(1);
  record.attributes["nul"] = std::string("a\0b", 3);
  EXPECT_TRUE(refuses("s", record));
  record = Sample(1);
  record.tensors["a/b"] = Counting(DType::kUInt8, {});
  EXPECT_TRUE(refuses("s", record));
  record = Sample(1);
  record.tensors["twice"] = Counting(DType::kUInt8, {{"T", 2}, {"T", 2}});
  EXPECT_TRUE(refuses("s", record));
  record = Sample(1);
  record.tensors.at("half").bytes.pop_back();
  EXPECT_TRUE(refuses("s", record));
  ASSERT_EQ(store_.Get("s", &record), StoreStatus::kOk);
  EXPECT_TRUE(record == Sample(1));
  EXPECT_EQ(Files(), 1u);
}

TEST_F(Hdf5StateStoreTest, AFolderThatIsGoneIsAnErrorOfItsOwn) {
  Hdf5StateStore store(folder_ + "/absent");
  EXPECT_THROW(store.Put("s", Sample(1)), Error);
}

TEST_F(Hdf5StateStoreTest, AProcessThatDiesWhileItSavesLeavesOneOfBothRecords) {
  const StateRecord records[2] = {Sample(3), Sample(20'000)};
  store_.Put("s", records[0]);
  int found[2] = {0, 0};
  void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* saves = new (memory) std::atomic<int>(0);
  for (int round = 0; round < 40; ++round) {
    *saves = 0;
    // Some are killed after one save, however slow the machine: the other record is met for
    // certain.
    const bool stops = round % 8 == 7;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (size_t i = 0;; ++i) {
        store_.Put("s", records[(i + 1) % 2]);
        ++*saves;
        if (!stops) continue;
        for (;;) pause();
      }
    }
    // The other kills fall all over the few milliseconds that two saves take.
    while (stops && *saves == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(stops ? 0 : 1000 + 317 * round));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    StateRecord record;
    ASSERT_EQ(store_.Get("s", &record), StoreStatus::kOk) << "round " << round;
    ASSERT_TRUE(record == records[0] || record == records[1]) << "round " << round;
    ++found[record == records[1] ? 1 : 0];
  }
  // Both were met: the kills did not all come before the first save.
  EXPECT_GT(found[0], 0);
  EXPECT_GT(found[1], 0);
  munmap(memory, sizeof(std::atomic<int>));
}

// The file holds what version 1 of the optimized caches' record wrote for this trace. It stays as
// it is: later versions must read it.
constexpr const char* kFixtureTrace =
    "cache layout=ring:w=4:keep=1 k=affine:4:g32:f16 v=f16 x=f16 dk=32 hkv=2 data=tokens:0";

TEST(StateFixtures, Version1LoadsAndContinuesBitIdentically) {
  const std::string folder = std::string(KVCHECK_SOURCE_DIR) + "/tests/golden";
  const Hdf5StateStore store(folder);
  StateRecord stored;
  ASSERT_EQ(store.Get("state_v1", &stored), StoreStatus::kOk);
  EXPECT_EQ(stored.attributes.at(kStateVersion), "1");
  optimized::OptimizedCacheFactory factory;
  const CacheSetup setup = ParseCacheCase(kFixtureTrace).setup;
  ASSERT_TRUE(factory.Start(setup).ok());
  std::unique_ptr<Cache> cache;
  const OpResult loaded = factory.Load(store, "state_v1", &cache);
  ASSERT_TRUE(loaded.ok()) << loaded.message;
  StepView view;
  cache->Observe(&view);
  ASSERT_EQ(view.rows, 2);
  EXPECT_EQ(view.offsets[0], 9);
  EXPECT_EQ(view.offsets[1], 0);
  EXPECT_EQ(view.unfed_padding[1], 3);
  EXPECT_EQ(Print(*view.layout), "ring:w=4:keep=1");
  MemoryStateStore again;
  ASSERT_TRUE(cache->Save(&again, "s").ok());
  // While version 1 is the one that is written, saving makes the same record once more.
  const StateRecord& saved = *again.Find("s");
  EXPECT_TRUE(saved.attributes.at(kStateVersion) != "1" || saved == stored);
}

}  // namespace
}  // namespace kvcheck
