// How fast two files in the page cache can be read at all: the measure for `kvcheck compare`.
//
//   read_probe FILE FILE [REPEATS]
//
// Every byte of both files enters one `or`, by one and by two threads, each taking half of each
// file. Mapped: page tables are there from an earlier round. Windows: 8 MiB at a time, mapped and
// released within the timing. Read: pread into 256 KiB. The best of the repeats is printed.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t kWindow = size_t{8} << 20;
constexpr size_t kBuffer = size_t{256} << 10;
constexpr size_t kStep = 128;

struct File {
  int descriptor = -1;
  size_t bytes = 0;
  const char* mapped = nullptr;
};

File OpenFile(const char* path) {
  File file;
  file.descriptor = open(path, O_RDONLY);
  struct stat status{};
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0) {
    fmt::print(stderr, "read_probe: cannot open {}\n", path);
    std::exit(2);
  }
  file.bytes = static_cast<size_t>(status.st_size);
  void* mapped = mmap(nullptr, file.bytes, PROT_READ, MAP_SHARED, file.descriptor, 0);
  if (mapped == MAP_FAILED) std::exit(2);
  file.mapped = static_cast<const char*>(mapped);
  return file;
}

// The or of all words; `bytes` a multiple of kStep but for a rest that is left out.
uint64_t OrOf(const char* from, size_t bytes) {
  uint64_t lanes[kStep / 8] = {};
  for (size_t i = 0; i + kStep <= bytes; i += kStep) {
    __builtin_prefetch(from + i + 2048);
    __builtin_prefetch(from + i + 2048 + 64);
    uint64_t words[kStep / 8];
    std::memcpy(words, from + i, kStep);
    for (size_t k = 0; k < kStep / 8; ++k) lanes[k] |= words[k];
  }
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all |= lane;
  return all;
}

enum class How { kMapped, kWindows, kRead };

uint64_t ReadPart(const File& a, const File& b, How how, size_t first, size_t last) {
  uint64_t all = 0;
  std::vector<char> buffer(how == How::kRead ? kBuffer : 0);
  const size_t step = how == How::kRead ? kBuffer : kWindow;
  for (size_t at = first; at < last; at += step) {
    const size_t bytes = std::min(step, last - at);
    for (const File* file : {&a, &b}) {
      if (how == How::kMapped) {
        all |= OrOf(file->mapped + at, bytes);
      } else if (how == How::kWindows) {
        void* window = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file->descriptor,
                            static_cast<off_t>(at));
        if (window == MAP_FAILED) std::exit(2);
        all |= OrOf(static_cast<const char*>(window), bytes);
        munmap(window, bytes);
      } else {
        if (pread(file->descriptor, buffer.data(), bytes, static_cast<off_t>(at)) < 0) {
          std::exit(2);
        }
        all |= OrOf(buffer.data(), bytes);
      }
    }
  }
  return all;
}

double Seconds(const File& a, const File& b, How how, size_t threads, std::atomic<uint64_t>* all) {
  const size_t bytes = std::min(a.bytes, b.bytes);
  const size_t part = (bytes / threads + kWindow - 1) / kWindow * kWindow;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> workers;
  for (size_t first = 0; first < bytes; first += part) {
    workers.emplace_back([&a, &b, how, first, last = std::min(bytes, first + part), all] {
      all->fetch_or(ReadPart(a, b, how, first, last));
    });
  }
  for (std::thread& worker : workers) worker.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: read_probe FILE FILE [REPEATS]\n");
    return 2;
  }
  const File a = OpenFile(argv[1]);
  const File b = OpenFile(argv[2]);
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 5;
  const double gigabytes = 2e-9 * static_cast<double>(std::min(a.bytes, b.bytes));
  std::atomic<uint64_t> all = 0;
  Seconds(a, b, How::kMapped, 1, &all);  // page cache and page tables
  double best = 0;
  const char* names[] = {"mapped", "windows", "read"};
  for (const How how : {How::kMapped, How::kWindows, How::kRead}) {
    for (const size_t threads : {size_t{1}, size_t{2}}) {
      double seconds = 1e300;
      for (int i = 0; i < repeats; ++i) {
        seconds = std::min(seconds, Seconds(a, b, how, threads, &all));
      }
      best = std::max(best, gigabytes / seconds);
      fmt::print("{:8} threads={} {:6.2f} GB/s\n", names[static_cast<int>(how)], threads,
                 gigabytes / seconds);
    }
  }
  fmt::print("best read probe: {:.2f} GB/s of both files\n", best);
  return all == 0 ? 3 : 0;
}
