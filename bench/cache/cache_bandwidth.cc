// Bytes per second that the optimized caches move, beside memcpy: append of quantized rows, filter,
// merge and extract at 16K tokens x 32 layers.
//
//   cache_bandwidth [tokens [layers]]
//
// One cache per layer, 8 heads x 128 channels. Traffic counts the bytes that an operation must read
// and those that it must write. Each turn of an operation on all layers has a memcpy beside it,
// between two buffers of 128 MiB; of both the best turn counts, since the machine is not ours
// alone.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "optimized/cache/cache_factory.h"

namespace kvcheck {
namespace {

constexpr int kTurns = 5;

// Processor time of this thread: other work on the machine does not count.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Check(const OpResult& result) {
  if (result.ok()) return;
  fmt::print("{}\n", result.message);
  std::exit(1);
}

struct Caches {
  optimized::OptimizedCacheFactory factory;
  std::vector<std::unique_ptr<Cache>> layers;

  double LiveBytes() {
    double bytes = 0;
    for (const auto& cache : layers) {
      StepView view;
      cache->Observe(&view);
      bytes += static_cast<double>(view.live_bytes);
    }
    return bytes;
  }
};

// What an operation is measured beside.
class Memcpy {
 public:
  Memcpy() : from_(kBytes, std::byte{1}), to_(kBytes, std::byte{2}) {}
  double SecondsPerByte() {
    const double start = Now();
    std::memcpy(to_.data(), from_.data(), kBytes);
    return (Now() - start) / (2.0 * kBytes);
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 27;
  std::vector<std::byte> from_, to_;
};

// before and work take the index of a layer; before is not timed.
template <typename Before, typename Work>
void Line(Memcpy* beside, const std::string& what, int64_t layers, double read, double written,
          Before before, Work work) {
  double best = 1e30;
  double best_memcpy = 1e30;
  // The first turn warms up.
  for (int turn = 0; turn <= kTurns; ++turn) {
    double seconds = 0;
    for (int64_t layer = 0; layer < layers; ++layer) {
      before(static_cast<size_t>(layer));
      const double start = Now();
      work(static_cast<size_t>(layer));
      seconds += Now() - start;
    }
    if (turn > 0) best = std::min(best, seconds);
    best_memcpy = std::min(best_memcpy, beside->SecondsPerByte());
  }
  const double traffic = read + written;
  fmt::print("| {} | {:.2f} | {:.3f} | {:.1f} | {:.1f} | {:.0f} % |\n", what, traffic * 1e-9, best,
             traffic / best * 1e-9, 1e-9 / best_memcpy, 100 * best_memcpy * traffic / best);
}

void Measure(Memcpy* beside, const std::string& format, int64_t tokens, int64_t layers) {
  const CacheSetup setup =
      ParseCacheCase("cache k=" + format + " x=f16 dk=128 growth=256 hkv=8 data=tokens:0").setup;
  Caches caches;
  Check(caches.factory.Start(setup));
  // One block of f16 vectors, appended again and again: what a codec does is a function of no more.
  const int64_t block = std::min<int64_t>(tokens, 256);
  std::vector<uint16_t> x(static_cast<size_t>(setup.kv_heads * block * setup.k_dim));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<uint16_t>(0x2c00u + (i * 2654435761u >> 7) % 0x1000u);
  }
  TokenColumns columns;
  columns.dtype = setup.x;
  columns.kv_heads = setup.kv_heads;
  columns.columns = block;
  columns.k_dim = setup.k_dim;
  columns.v_dim = setup.v_dim;
  columns.k = columns.v = reinterpret_cast<const std::byte*>(x.data());
  columns.k_strides = {0, block * setup.k_dim * 2, setup.k_dim * 2};
  columns.v_strides = columns.k_strides;
  const auto fill = [&](Cache* cache, int64_t rows, int64_t count) {
    columns.rows = rows;
    for (int64_t t = 0; t < count; t += block) Check(cache->Append(columns));
  };
  const auto make = [&](int64_t rows) {
    caches.layers.clear();
    for (int64_t layer = 0; layer < layers; ++layer) {
      caches.layers.push_back(nullptr);
      Check(caches.factory.New(setup.layout, setup.k, setup.v, rows, {}, &caches.layers.back()));
      fill(caches.layers.back().get(), rows, tokens / rows);
    }
  };
  const auto nothing = [](size_t) {};

  make(1);
  const double bytes = caches.LiveBytes();
  const double x_bytes =
      2.0 * static_cast<double>(layers * setup.kv_heads * setup.k_dim * 2 * tokens);
  int64_t trimmed = 0;
  Line(
      beside, format + ": append in blocks of 256", layers, x_bytes, bytes,
      [&](size_t i) { Check(caches.layers[i]->Trim(tokens, &trimmed)); },
      [&](size_t i) { fill(caches.layers[i].get(), 1, tokens); });

  // Four rows of a quarter of the tokens. An exchange moves all of them.
  make(4);
  const std::vector<int64_t> swap = {1, 0, 3, 2};
  Line(beside, format + ": filter 1,0,3,2", layers, bytes, bytes, nothing,
       [&](size_t i) { Check(caches.layers[i]->Filter(swap)); });
  std::unique_ptr<Cache> copy;
  const std::vector<int64_t> last = {2, 3};
  Line(
      beside, format + ": filter 2,3 of 4", layers, bytes / 2, bytes / 2,
      [&](size_t i) { Check(caches.layers[i]->CopyTo(&copy)); },
      [&](size_t) { Check(copy->Filter(last)); });
  std::vector<std::unique_ptr<Cache>> rows(caches.layers.size());
  Line(beside, format + ": extract a row of 4", layers, bytes / 4, bytes / 4, nothing,
       [&](size_t i) { Check(caches.layers[i]->Extract(2, &rows[i])); });
  // The batches' memory is used again.
  Line(beside, format + ": merge 4 rows", layers, bytes, bytes, nothing, [&](size_t i) {
    const std::vector<const Cache*> operands(4, rows[i].get());
    Check(caches.factory.Merge(operands, &caches.layers[i]));
  });
}

int Main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 16384;
  const int64_t layers = argc > 2 ? std::atoll(argv[2]) : 32;
  fmt::print("{} tokens, {} layers x 8 heads x 128 channels, from f16\n\n", tokens, layers);
  fmt::print("| operation | GB read and written | s | GB/s | memcpy GB/s | of memcpy |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  Memcpy beside;
  for (const char* format : {"f16", "affine:8:g64:f16", "affine:4:g64:f16", "f8e4m3fn"}) {
    Measure(&beside, format, tokens, layers);
  }
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
