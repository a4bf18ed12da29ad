// The conversation of omlx issue 39 on kvcheck's own prefix cache: a prompt of 11,422 tokens, a
// second one that shares its first 10,240, in the same process and in another one on the same
// folder. How much hits, whether the bytes are the same, what a hit costs beside a copy, a read of
// the files and the least of what it saves.
//
//   conversation [FOLDER [LAYERS [FORMAT...]]]
//
// 8 heads x 128 channels in f16. Times in memory are processor time, of the best of three turns;
// those with a disk the clock's, with the processor time beside them. The least of what a hit saves
// are the products of K and V alone, of a model of 4096 channels: 512 tokens of one layer are
// measured, in f32, and counted up.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "golden/content_hash.h"
#include "optimized/prefix/prefix_cache.h"
#include "tools/prefix_disk/prefix_disk.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokens = 11'422;
constexpr int64_t kShared = 10'240;
constexpr int64_t kChunk = 512;  // of prefill
constexpr int kTurns = 3;

// Of the clock, and of this thread's processor time: other work on the machine does not count.
struct Seconds {
  double clock = 0;
  double processor = 0;
};

Seconds Now() {
  const auto of = [](clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  return {of(CLOCK_MONOTONIC), of(CLOCK_THREAD_CPUTIME_ID)};
}

template <typename F>
Seconds SecondsOf(F f) {
  const Seconds start = Now();
  f();
  const Seconds end = Now();
  return {end.clock - start.clock, end.processor - start.processor};
}

// Bytes a second of a copy, each byte counted once, as read.
double CopySpeed() {
  constexpr size_t kBytes = size_t{1} << 28;
  std::vector<std::byte> from(kBytes, std::byte{1});
  std::vector<std::byte> to(kBytes, std::byte{2});
  double best = 1e30;
  for (int turn = 0; turn < kTurns; ++turn) {
    best =
        std::min(best, SecondsOf([&] { std::memcpy(to.data(), from.data(), kBytes); }).processor);
  }
  return kBytes / best;
}

// Reads the files of the blocks; cold: from the disk, not from what the kernel has of them.
double ReadSpeed(const std::string& folder, bool cold) {
  std::vector<char> memory(size_t{1} << 22);
  double bytes = 0;
  double seconds = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("block-")) continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (cold) {
      fdatasync(file);
      posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    }
    seconds += SecondsOf([&] {
                 for (ssize_t got = 0; (got = read(file, memory.data(), memory.size())) > 0;) {
                   bytes += static_cast<double>(got);
                 }
               }).clock;
    close(file);
  }
  return bytes / seconds;
}

void ForgetFiles(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

struct Dense {
  std::vector<std::byte> k, v;
  explicit Dense(const PrefixSetup& setup, int64_t tokens)
      : k(static_cast<size_t>(setup.layers * setup.kv_heads * tokens * setup.k_dim * 2)),
        v(k.size()) {}
  double bytes() const { return 2.0 * static_cast<double>(k.size()); }
  Sha256Digest Hash() const {
    Sha256 hash;
    hash.Update(k.data(), k.size());
    hash.Update(v.data(), v.size());
    return hash.Finish();
  }
};

struct Hit {
  int64_t tokens = 0;
  bool from_disk = false;
  Seconds open;
  Seconds read;
  double Processor() const { return open.processor + read.processor; }
  Sha256Digest hash{};
};

Hit Fetch(optimized::PrefixCache* cache, const std::vector<int32_t>& prompt, Dense* rows) {
  Hit hit;
  std::unique_ptr<optimized::PrefixCache::Request> request;
  hit.open = SecondsOf([&] { request = cache->Open(prompt, {}, false); });
  hit.tokens = request->tokens();
  hit.from_disk = request->is_from_tier();
  hit.read =
      SecondsOf([&] { cache->Read(*request, {rows->k.data(), rows->v.data(), hit.tokens}); });
  cache->Close(std::move(request), false);
  hit.hash = rows->Hash();
  return hit;
}

// K and V of so many tokens of all layers, of a model of 4096 channels.
double ProjectionSeconds(const PrefixSetup& setup) {
  constexpr int64_t kWidth = 4096;
  const int64_t out = 2 * setup.kv_heads * setup.k_dim;
  const Eigen::MatrixXf x = Eigen::MatrixXf::Random(kChunk, kWidth);
  const Eigen::MatrixXf w = Eigen::MatrixXf::Random(kWidth, out);
  Eigen::MatrixXf y(kChunk, out);
  double best = 1e30;
  for (int turn = 0; turn < kTurns; ++turn) {
    best = std::min(best, SecondsOf([&] { y.noalias() = x * w; }).processor);
  }
  return best * static_cast<double>(setup.layers * kShared) / kChunk;
}

void Measure(const std::string& folder, const std::string& format, int64_t layers) {
  const PrefixSetup setup =
      ParsePrefixCase(
          fmt::format(
              "prefix block=64 tokens=12800 layers={} hkv=8 dk=128 x=f16 k={} data=tokens:0",
              layers, format))
          .setup;
  std::vector<int32_t> first;
  for (int64_t i = 0; i < kTokens; ++i) first.push_back(static_cast<int32_t>(i * 7919 % 32'000));
  std::vector<int32_t> second(first.begin(), first.begin() + kShared);
  for (int64_t i = kShared; i < kTokens; ++i) second.push_back(static_cast<int32_t>(i % 977));
  const double copy = CopySpeed();
  fmt::print("\n{}, {} layers; memcpy {:.1f} GB/s\n", format, layers, copy * 1e-9);
  Dense rows(setup, kShared);
  Sha256Digest hash{};
  {
    PrefixDisk disk(setup, folder);
    optimized::PrefixCache cache(setup, &disk);
    const int64_t values = layers * setup.kv_heads * kChunk * setup.k_dim;
    std::vector<uint16_t> x(static_cast<size_t>(values));
    // f16 from 1/16 up, of both signs, another one in every chunk.
    uint32_t state = 1;
    auto request = cache.Open(first, {}, false);
    double append = 0;
    for (int64_t at = 0; at < kTokens; at += kChunk) {
      const int64_t count = std::min(kChunk, kTokens - at);
      for (uint16_t& value : x) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<uint16_t>((state >> 16 & 0x8000u) | (0x2c00u + (state >> 8) % 0x1000u));
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
      append += SecondsOf([&] {
                  if (!cache.Append(request.get(),
                                    std::span(first).subspan(static_cast<size_t>(at),
                                                             static_cast<size_t>(count)),
                                    DenseVectors(setup, count, bytes, bytes))) {
                    fmt::print("no room\n");
                    std::exit(1);
                  }
                }).processor;
    }
    const Seconds closing = SecondsOf([&] { cache.Close(std::move(request), true); });
    const double stored = static_cast<double>(disk.bytes());
    fmt::print(
        "first round: {} tokens, {:.2f} GB of files; append {:.2f} s, close {:.2f} s "
        "({:.2f} of processor): {:.2f} GB/s to disk\n",
        kTokens, stored * 1e-9, append, closing.clock, closing.processor,
        stored / closing.clock * 1e-9);
    Hit hit;
    for (int turn = 0; turn < kTurns; ++turn) {
      const Hit again = Fetch(&cache, second, &rows);
      if (turn == 0 || again.Processor() < hit.Processor()) hit = again;
    }
    hash = hit.hash;
    const double seconds = hit.Processor();
    fmt::print(
        "second round: {} of {} tokens hit, {:.1f} %; open {:.4f} s, read {:.3f} s: {:.1f} GB/s of "
        "rows, {:.0f} % of memcpy\n",
        hit.tokens, kTokens, 100.0 * static_cast<double>(hit.tokens) / kTokens, hit.open.processor,
        hit.read.processor, rows.bytes() / seconds * 1e-9, 100 * rows.bytes() / seconds / copy);
    const double saved = ProjectionSeconds(setup);
    fmt::print(
        "products of K and V alone of these tokens: {:.1f} s; the hit takes {:.2f} % of it\n",
        saved, 100 * seconds / saved);
  }
  for (const bool cold : {true, false}) {
    const double disk_speed = ReadSpeed(folder, cold);
    if (cold) ForgetFiles(folder);
    PrefixDisk disk(setup, folder);
    optimized::PrefixCache cache(setup, &disk);
    const Hit hit = Fetch(&cache, second, &rows);
    constexpr int64_t kStored = kTokens / 64 * 64;  // in whole blocks
    const double bytes = static_cast<double>(disk.bytes()) * kShared / static_cast<double>(kStored);
    fmt::print(
        "another process, files {}: {} tokens from {}, {}; open {:.2f} s ({:.2f} of "
        "processor): {:.2f} GB/s of files, {:.0f} % of reading them ({:.2f} GB/s); read {:.3f} s\n",
        cold ? "from disk" : "known to the kernel", hit.tokens, hit.from_disk ? "disk" : "memory",
        hit.hash == hash ? "the same bytes" : "OTHER BYTES", hit.open.clock, hit.open.processor,
        bytes / hit.open.clock * 1e-9, 100 * bytes / hit.open.clock / disk_speed, disk_speed * 1e-9,
        hit.read.processor);
    if (hit.hash != hash || hit.tokens != kShared) std::exit(1);
  }
}

int Main(int argc, char** argv) {
  std::string folder =
      argc > 1 ? argv[1] : (fs::temp_directory_path() / "conversation-XXXXXX").string();
  const bool is_own = argc <= 1;
  if (is_own && mkdtemp(folder.data()) == nullptr) {
    fmt::print("no temporary folder\n");
    return 2;
  }
  const int64_t layers = argc > 2 ? std::atoll(argv[2]) : 32;
  std::vector<std::string> formats = {"f16", "affine:4:g64:f16"};
  if (argc > 3) formats.assign(argv + 3, argv + argc);
  for (const std::string& format : formats) {
    const std::string own = folder + "/" + std::to_string(&format - formats.data());
    Measure(own, format, layers);
    fs::remove_all(own);
  }
  if (is_own) fs::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
