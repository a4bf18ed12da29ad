// Every file of a folder, damaged in every way: rows are right or absent, what is absent is stored
// again, and the folder goes on.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "stored_prompts.h"
#include "temporary_folder.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;
class DamagedFolder : public testing::Test {
 protected:
  DamagedFolder() : setup_(optimized::SetupOf("block=2 tokens=64 layers=2 hkv=2 dk=32 dv=16")) {
    Store store(setup_, whole_.path(), kQuick);
    store.Put({0, 1, 0, 1, 0, 1});
    store.cache.Epoch();
    ++store.epoch;
    for (const Tokens& prompt : prompts_) EXPECT_TRUE(store.Put(prompt));
    EXPECT_TRUE(store.Put(prompts_[0], other_));
    EXPECT_TRUE(store.disk.Save(0, store.cache.Kept()).ok());
  }

  // How many of kAll are there; each right, whatever has been done to the files.
  int Judge(const std::string& what) {
    int there = 0;
    {
      Store store(setup_, folder_.path(), kQuick, 1);
      for (const Tokens& prompt : prompts_) {
        const int64_t hit = store.Hit(prompt);
        EXPECT_GE(hit, 0) << what;
        there += hit == std::ssize(prompt) ? 1 : 0;
      }
      const int64_t others = store.Hit(prompts_[0], other_);
      EXPECT_GE(others, 0) << what;
      there += others == std::ssize(prompts_[0]) ? 1 : 0;
      EXPECT_EQ(store.Hit({1, 0, 0, 0}, other_), 0) << what;
      optimized::KeptStore kept;
      if (store.disk.Load(0, &kept).ok()) {
        store.cache.Keep(kept);
        for (const Tokens& prompt : prompts_)
          EXPECT_EQ(store.Hit(prompt), std::ssize(prompt)) << what;
      }
      for (const Tokens& prompt : prompts_) EXPECT_TRUE(store.Put(prompt)) << what;
      EXPECT_TRUE(store.Put(later_)) << what;
    }
    // What was absent is there again.
    Store store(setup_, folder_.path(), kQuick, 1);
    EXPECT_FALSE(store.disk.was_damaged()) << what;
    for (const Tokens& prompt : prompts_) EXPECT_EQ(store.Hit(prompt), std::ssize(prompt)) << what;
    EXPECT_EQ(store.Hit(later_), std::ssize(later_)) << what;
    return there;
  }

  // f(path) of each file of a fresh copy.
  void ForEachFile(const std::function<void(const std::string& name, const fs::path&)>& f) {
    for (const std::string& name : whole_.Files()) {
      folder_.CopyFrom(whole_.path());
      f(name, fs::path(folder_.path()) / name);
    }
  }

  const PrefixSetup setup_;
  static constexpr int kAll = 4;  // prompts, of two identities
  const std::vector<Tokens> prompts_ = {{0, 0, 1, 1, 0, 1}, {0, 0, 1, 0}, {1, 1}};
  const Tokens later_ = {1, 1, 0, 0};  // stored after the damage
  const PrefixIdentity other_ = {
      .model = {}, .salt = "b", .adapter = {}, .version = 0, .image = {}};
  TemporaryFolder whole_;
  TemporaryFolder folder_;
};

TEST_F(DamagedFolder, AsItIsHasEverything) {
  folder_.CopyFrom(whole_.path());
  EXPECT_EQ(Judge("whole"), kAll);
}

TEST_F(DamagedFolder, CutAtEvery512Bytes) {
  int cases = 0;
  int lost = 0;
  ForEachFile([&](const std::string& name, const fs::path& path) {
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t at = 0; at < size; at += 512) {
      folder_.CopyFrom(whole_.path());
      fs::resize_file(path, static_cast<uintmax_t>(at));
      lost += Judge(name + " cut at " + std::to_string(at)) < kAll ? 1 : 0;
      ++cases;
    }
  });
  EXPECT_GT(cases, 40);
  EXPECT_GT(lost, cases / 2);  // the damage was where it matters
}

TEST_F(DamagedFolder, FlippedInEvery97thByte) {
  int cases = 0;
  ForEachFile([&](const std::string& name, const fs::path& path) {
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t at = 0; at < size; at += name.starts_with("index") ? 389 : 97) {
      folder_.CopyFrom(whole_.path());
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      char byte = 0;
      file.seekg(at).get(byte);
      file.seekp(at).put(static_cast<char>(byte ^ (1 << at % 8)));
      file.close();
      const int there = Judge(name + " flipped at " + std::to_string(at));
      // Of the file of a block every bit counts.
      EXPECT_TRUE(there < kAll || !name.starts_with("block")) << name << " at " << at;
      ++cases;
    }
  });
  EXPECT_GT(cases, 200);
}

// A header may say that the file is only to be read, and everything else be right.
TEST_F(DamagedFolder, FlippedInEveryBitOfTheHeaderOfTheIndex) {
  const fs::path index = fs::path(folder_.path()) / "index.sqlite";
  for (int64_t bit = 0; bit < 8 * 100; bit += bit < 8 * 16 || bit >= 8 * 28 ? 5 : 1) {
    folder_.CopyFrom(whole_.path());
    std::fstream file(index, std::ios::in | std::ios::out | std::ios::binary);
    char byte = 0;
    file.seekg(bit / 8).get(byte);
    file.seekp(bit / 8).put(static_cast<char>(byte ^ (1 << bit % 8)));
    file.close();
    Judge("bit " + std::to_string(bit));
  }
}

TEST_F(DamagedFolder, SwappedCopiedForeignAndMissing) {
  const std::vector<std::string> names = whole_.Files();
  int lost = 0;
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      if (a == b) continue;
      const fs::path first = fs::path(folder_.path()) / a;
      const fs::path second = fs::path(folder_.path()) / b;
      folder_.CopyFrom(whole_.path());
      fs::copy_file(first, second, fs::copy_options::overwrite_existing);
      lost += Judge(a + " copied over " + b) < kAll ? 1 : 0;
      if (a < b) continue;
      folder_.CopyFrom(whole_.path());
      const fs::path aside = fs::path(folder_.path()) / "aside";
      fs::rename(first, aside);
      fs::rename(second, first);
      fs::rename(aside, second);
      lost += Judge(a + " swapped with " + b) < kAll ? 1 : 0;
    }
    folder_.CopyFrom(whole_.path());
    std::ofstream(fs::path(folder_.path()) / a, std::ios::trunc) << "not a file of this cache\n";
    Judge(a + " foreign");
    folder_.CopyFrom(whole_.path());
    fs::remove(fs::path(folder_.path()) / a);
    Judge(a + " missing");
  }
  EXPECT_GT(lost, 10);
}

TEST_F(DamagedFolder, WhileAProcessHasIt) {
  ForEachFile([&](const std::string& name, const fs::path& path) {
    {
      Store store(setup_, folder_.path(), kQuick, 1);
      fs::resize_file(path, fs::file_size(path) / 2);
      for (const Tokens& prompt : prompts_) EXPECT_GE(store.Hit(prompt), 0) << name;
      EXPECT_TRUE(store.Put({1, 0, 1, 0})) << name;
    }
    Judge(name + " cut while it was open");
  });
}

}  // namespace
}  // namespace kvcheck
