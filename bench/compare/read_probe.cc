#include "bench/compare/read_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace kvcheck {
namespace {

constexpr size_t kWindow = size_t{4} << 20;
constexpr size_t kBuffer = size_t{256} << 10;
constexpr size_t kStep = 128;

// Keeps the loops from being removed.
std::atomic<uint64_t> sink;

struct File {
  explicit File(const std::string& path) : descriptor(open(path.c_str(), O_RDONLY)) {
    struct stat status{};
    if (descriptor < 0 || fstat(descriptor, &status) != 0) {
      fmt::print(stderr, "cannot open {}\n", path);
      std::exit(2);
    }
    bytes = static_cast<size_t>(status.st_size);
  }
  ~File() { close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const char* Map(size_t offset, size_t size, int flags) const {
    void* at =
        mmap(nullptr, size, PROT_READ, MAP_SHARED | flags, descriptor, static_cast<off_t>(offset));
    if (at == MAP_FAILED) {
      fmt::print(stderr, "cannot map a file\n");
      std::exit(2);
    }
    return static_cast<const char*>(at);
  }

  int descriptor;
  size_t bytes = 0;
};

// The or of all words; a rest below kStep is left out.
uint64_t OrOf(const char* from, size_t bytes) {
  std::array<uint64_t, kStep / 8> lanes{};
  for (size_t i = 0; i + kStep <= bytes; i += kStep) {
    __builtin_prefetch(from + i + 2048);
    __builtin_prefetch(from + i + 2048 + 64);
    std::array<uint64_t, kStep / 8> words;
    std::memcpy(words.data(), from + i, kStep);
    for (size_t k = 0; k < lanes.size(); ++k) lanes[k] |= words[k];
  }
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all |= lane;
  return all;
}

void ReadMapped(const char* a, const char* b, size_t first, size_t last) {
  for (size_t at = first; at < last; at += kWindow) {
    const size_t bytes = std::min(kWindow, last - at);
    sink |= OrOf(a + at, bytes) | OrOf(b + at, bytes);
  }
}

void ReadWindows(const File& file, size_t first, size_t last) {
  for (size_t at = first; at < last; at += kWindow) {
    const size_t bytes = std::min(kWindow, last - at);
    const char* window = file.Map(at, bytes, MAP_POPULATE);
    sink |= OrOf(window, bytes);
    munmap(const_cast<char*>(window), bytes);
  }
}

void ReadInto(const File& file, size_t first, size_t last) {
  std::vector<char> buffer(kBuffer);
  for (size_t at = first; at < last; at += kBuffer) {
    const size_t bytes = std::min(kBuffer, last - at);
    if (pread(file.descriptor, buffer.data(), bytes, static_cast<off_t>(at)) < 0) std::exit(2);
    sink |= OrOf(buffer.data(), bytes);
  }
}

template <typename Part>
double SecondsOf(size_t bytes, int threads, Part part) {
  const size_t parts = static_cast<size_t>(threads);
  const size_t share = (bytes / parts + kWindow - 1) / kWindow * kWindow;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> workers;
  for (size_t first = 0; first < bytes; first += share) {
    workers.emplace_back(part, first, std::min(bytes, first + share));
  }
  for (std::thread& worker : workers) worker.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double ProbeSeconds(const std::string& expected, const std::string& got, ReadBy by, int threads) {
  const File a(expected);
  const File b(got);
  const size_t bytes = std::min(a.bytes, b.bytes);
  if (by == ReadBy::kMapping) {
    const char* a_bytes = a.Map(0, bytes, MAP_POPULATE);
    const char* b_bytes = b.Map(0, bytes, MAP_POPULATE);
    const double seconds = SecondsOf(bytes, threads, [&](size_t first, size_t last) {
      ReadMapped(a_bytes, b_bytes, first, last);
    });
    munmap(const_cast<char*>(a_bytes), bytes);
    munmap(const_cast<char*>(b_bytes), bytes);
    return seconds;
  }
  return SecondsOf(bytes, threads, [&](size_t first, size_t last) {
    for (const File* file : {&a, &b}) {
      if (by == ReadBy::kWindows) ReadWindows(*file, first, last);
      if (by == ReadBy::kReading) ReadInto(*file, first, last);
    }
  });
}

}  // namespace kvcheck
