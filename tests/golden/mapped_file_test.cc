// Windows show the bytes of the file wherever they start; a file that is cut short or changed while
// windows are open is an error and no crash; memory does not grow with the windows that were open.

#include "golden/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

char ByteAt(size_t i) { return static_cast<char>(i * 31 + i / 4096 + 1); }

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    bytes_.resize(16 * kPage + 129);
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = ByteAt(i);
    golden_samples::WriteBytes(path_, bytes_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static std::string Complaint(const MappedFile& file) {
    try {
      file.ThrowIfDamaged();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
      return error.message();
    }
    return "";
  }

  const std::string path_ = golden_samples::TemporaryPath("mapped.bin");
  std::string bytes_;
};

// Reads every byte, and no optimizer may know better.
int64_t SumOf(const MappedFile::Window& window) {
  const volatile std::byte* bytes = window.data();
  int64_t sum = 0;
  for (int64_t i = 0; i < window.size(); ++i) sum += static_cast<int64_t>(bytes[i]);
  return sum;
}

TEST_F(MappedFileTest, ShowsTheBytesOfEveryRange) {
  const MappedFile file(path_);
  ASSERT_EQ(file.size(), static_cast<int64_t>(bytes_.size()));
  for (size_t offset :
       {size_t{0}, size_t{1}, kPage - 1, kPage, kPage + 1, bytes_.size() - 1, bytes_.size()}) {
    for (size_t size : {size_t{0}, size_t{1}, size_t{2}, kPage - 1, kPage, 3 * kPage + 129,
                        bytes_.size() - offset}) {
      if (size > bytes_.size() - offset) continue;
      const MappedFile::Window window =
          file.Map(static_cast<int64_t>(offset), static_cast<int64_t>(size));
      ASSERT_EQ(window.size(), static_cast<int64_t>(size));
      if (size == 0) continue;
      EXPECT_EQ(std::memcmp(window.data(), bytes_.data() + offset, size), 0) << offset;
    }
  }
  EXPECT_THROW(file.Map(0, file.size() + 1), Error);
  EXPECT_THROW(file.Map(file.size(), 1), Error);
  EXPECT_THROW(file.Map(1, std::numeric_limits<int64_t>::max()), Error);
  EXPECT_EQ(Complaint(file), "");
}

TEST_F(MappedFileTest, AWindowMovesAndOutlivesItsFile) {
  auto file = std::make_unique<MappedFile>(path_);
  MappedFile::Window window = file->Map(5, 100);
  MappedFile::Window moved = std::move(window);
  window = file->Map(7, 3);
  file.reset();
  EXPECT_EQ(std::memcmp(moved.data(), bytes_.data() + 5, 100), 0);
  EXPECT_EQ(std::memcmp(window.data(), bytes_.data() + 7, 3), 0);
}

TEST_F(MappedFileTest, AFileThatIsCutShortReadsAsZerosAndIsAnError) {
  const MappedFile file(path_);
  const MappedFile untouched(path_);
  const MappedFile::Window window = file.Map(1, file.size() - 1);
  std::filesystem::resize_file(path_, 2 * kPage);
  EXPECT_EQ(std::memcmp(window.data(), bytes_.data() + 1, 2 * kPage - 1), 0);
  for (size_t i = 2 * kPage - 1; i < static_cast<size_t>(window.size()); i += 100) {
    EXPECT_EQ(window.data()[i], std::byte{0}) << i;
  }
  EXPECT_NE(Complaint(file).find("bytes at first, 8192 now"), std::string::npos) << Complaint(file);
  // The size is back, the time of change too: what was read is still not to be believed.
  std::filesystem::resize_file(path_, bytes_.size());
  EXPECT_NE(Complaint(file), "");
}

// The flag alone says it where the file is as before by size and time.
TEST_F(MappedFileTest, RemembersAPageThatWasGone) {
  const auto before = std::filesystem::last_write_time(path_);
  const MappedFile file(path_);
  const MappedFile::Window window = file.Map(0, file.size());
  std::filesystem::resize_file(path_, 0);
  EXPECT_EQ(SumOf(window), 0);
  golden_samples::WriteBytes(path_, bytes_);
  std::filesystem::last_write_time(path_, before);
  EXPECT_NE(Complaint(file).find("a part of it was gone"), std::string::npos) << Complaint(file);
  EXPECT_EQ(Complaint(MappedFile(path_)), "");
}

TEST_F(MappedFileTest, SaysThatTheFileWasChangedWithoutAnotherSize) {
  const MappedFile file(path_);
  std::filesystem::last_write_time(
      path_, std::filesystem::last_write_time(path_) + std::chrono::seconds(1));
  EXPECT_NE(Complaint(file).find("it was changed"), std::string::npos);
}

TEST_F(MappedFileTest, ThreadsReadWhileTheFileShrinks) {
  const MappedFile file(path_);
  std::atomic<int> started{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ++started;
      for (int round = 0; round < 50; ++round) {
        const MappedFile::Window window = file.Map(129, file.size() - 129);
        SumOf(window);
      }
    });
  }
  while (started < 4) std::this_thread::yield();
  std::filesystem::resize_file(path_, kPage);
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(Complaint(file), "");
}

// More windows than one block of the handler's list holds.
TEST_F(MappedFileTest, GuardsManyWindowsAtOnce) {
  const MappedFile file(path_);
  std::vector<MappedFile::Window> windows;
  for (int i = 0; i < 600; ++i) windows.push_back(file.Map(i, file.size() - i));
  std::filesystem::resize_file(path_, 0);
  for (const MappedFile::Window& window : windows) EXPECT_EQ(SumOf(window), 0);
}

int64_t ResidentBytes() {
  long long total = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld %lld", &total, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * static_cast<int64_t>(kPage);
}

TEST_F(MappedFileTest, GivesMemoryBackWithEachWindow) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer keeps memory of its own for every byte that was read";
#endif
  constexpr int64_t kFileBytes = int64_t{64} << 20;
  constexpr int64_t kWindowBytes = int64_t{4} << 20;
  std::filesystem::resize_file(path_, kFileBytes);
  const MappedFile file(path_);
  const int64_t before = ResidentBytes();
  int64_t most = before;
  int64_t open = 0;
  for (int64_t offset = 0; offset < kFileBytes; offset += kWindowBytes) {
    const MappedFile::Window window = file.Map(offset, kWindowBytes);
    SumOf(window);
    open = std::max(open, ResidentBytes() - before);
    most = std::max(most, ResidentBytes());
  }
  EXPECT_GE(open, kWindowBytes / 2);  // the measurement sees a window
  EXPECT_LE(most - before, 2 * kWindowBytes);
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  EXPECT_THROW(MappedFile("/dev/zero"), Error);
  EXPECT_THROW(MappedFile("/tmp"), Error);
  EXPECT_THROW(MappedFile("/nonexistent/file"), Error);
}

// Sanitizers have handlers of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A page beyond the end of a mapping that is none of ours still ends the process, and a handler
// that was there before still gets what is its own.
void TouchBeyondTheEnd(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY);
  void* pages = mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  std::filesystem::resize_file(path, 0);
  // The process that touches it ends before any test takes its file down.
  std::filesystem::remove(path);
  static_cast<void>(*(static_cast<volatile char*>(pages) + kPage));
}

using MappedFileDeathTest = MappedFileTest;

TEST_F(MappedFileDeathTest, OtherAddressesStillEndTheProcess) {
  EXPECT_EXIT(
      {
        const MappedFile file(path_);
        const MappedFile::Window window = file.Map(0, 1);
        TouchBeyondTheEnd(path_);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappedFileDeathTest, OtherAddressesGoToTheEarlierHandler) {
  // In a process of its own: the handler of this one may be installed already.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGBUS, [](int) { _exit(77); });
        const MappedFile file(path_);
        const MappedFile::Window window = file.Map(0, 1);
        TouchBeyondTheEnd(path_);
      },
      testing::ExitedWithCode(77), "");
}
#endif

}  // namespace
}  // namespace kvcheck
