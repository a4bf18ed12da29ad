// Rows of 128 channels in f32 to blocks of ggml, by ggml's own CPU code and by the row codec in
// turns; and the Hadamard rotation of such a row beside the read of one from memory.
//
//   ggml_codec_speed FOLDER [--rounds N] [--rows N]
//
// FOLDER has libggml-base.so and libggml-cpu.so, as in the wheel of ggml-python. One thread; the
// source stays in cache. The blocks are compared first with those of ggml's reference writer: exit
// status 1 where a byte differs. Ratios are made within a round: median and quartiles.

#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/attention/probes.h"
#include "bench/timing.h"
#include "optimized/formats/hadamard.h"
#include "optimized/formats/row_codec.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

constexpr int64_t kDim = 128;
// Of memory that is read: beyond any cache.
constexpr int64_t kReadBytes = int64_t{1} << 30;

using Quantize = void (*)(const float*, void*, int64_t);

class Library {
 public:
  explicit Library(const std::string& path)
      : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
  Quantize Find(const std::string& name) const {
    void* found = dlsym(handle_, name.c_str());
    return reinterpret_cast<Quantize>(found);  // nullptr where there is none
  }

 private:
  void* handle_;
};

// Seconds of one call, of as many as take a hundredth of a second.
double Seconds(const std::function<void()>& call) {
  int64_t calls = 1;
  for (;;) {
    const double start = Now();
    for (int64_t i = 0; i < calls; ++i) call();
    const double taken = Now() - start;
    if (taken > 0.01) return taken / static_cast<double>(calls);
    calls *= 2;
  }
}

std::string Spread(const std::vector<double>& values) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", Quantile(values, 0.5), Quantile(values, 0.25),
                     Quantile(values, 0.75));
}

int Run(const std::string& folder, int rounds, int64_t rows) {
  const Library base(folder + "/libggml-base.so");
  const Library cpu(folder + "/libggml-cpu.so");
  std::vector<float> x(static_cast<size_t>(rows * kDim));
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);

  bool same = true;
  fmt::print("{} rows of {} channels, one thread, {} rounds; GB/s of f32 read\n", rows, kDim,
             rounds);
  for (const std::string name : {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"}) {
    const KvFormat format = ParseKvFormat(WholeLine(name));
    const int64_t bytes = optimized::RowBytesOf(format, kDim).codes;
    std::vector<std::byte> ours(static_cast<size_t>(rows * bytes)), theirs(ours.size());
    optimized::RowCodec codec;
    codec.Start(format, DType::kFloat32, kDim);
    const auto own = [&] {
      codec.Encode(reinterpret_cast<const std::byte*>(x.data()), kDim * 4, rows,
                   {ours.data(), nullptr, nullptr, bytes, 0});
    };
    // The kernel of llama.cpp's caches, and the portable code that defines the bytes.
    const Quantize fast = cpu.Find("quantize_row_" + name);
    const Quantize reference = base.Find("quantize_row_" + name + "_ref");
    if (fast == nullptr || reference == nullptr) throw std::runtime_error(name + " is not in ggml");
    own();
    reference(x.data(), theirs.data(), rows * kDim);
    int64_t different = 0;
    for (size_t i = 0; i < ours.size(); ++i) different += ours[i] != theirs[i] ? 1 : 0;
    same = same && different == 0;

    std::vector<double> rate, peer, ratio;
    for (int round = 0; round < rounds; ++round) {
      const double a = Seconds(own);
      const double b = Seconds([&] { fast(x.data(), theirs.data(), rows * kDim); });
      const auto size = static_cast<double>(x.size() * sizeof(float));
      rate.push_back(size / a / 1e9);
      peer.push_back(size / b / 1e9);
      ratio.push_back(b / a);
    }
    fmt::print(
        "{:8} kvcheck {:>22}  ggml {:>22}  times as fast {:>20}  bytes unlike those of "
        "ggml's reference: {} of {}\n",
        name, Spread(rate), Spread(peer), Spread(ratio), different, ours.size());
  }

  ReadProbe read(1);
  std::vector<float> row(x.begin(), x.begin() + kDim);
  std::vector<double> rotated, share;
  for (int round = 0; round < rounds; ++round) {
    const double a = Seconds([&] { optimized::RotateBlocks(row.data(), kDim, kDim); });
    const double b = read.Seconds(kReadBytes, 0) * kDim * 4 / static_cast<double>(kReadBytes);
    rotated.push_back(a * 1e9);
    share.push_back(a / b);
  }
  fmt::print("Hadamard of a row: {} ns, {} of the read of a row of f32 from memory\n",
             Spread(rotated), Spread(share));
  return same ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  CLI::App app("Encoders of ggml's blocks beside ggml's own");
  std::string folder;
  int rounds = 9;
  int64_t rows = 1024;
  app.add_option("folder", folder)->required();
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000));
  app.add_option("--rows", rows)->check(CLI::Range(1, 1 << 20));
  try {
    app.parse(argc, argv);
    return kvcheck::Run(folder, rounds, rows);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ggml_codec_speed: {}\n", error.what());
    return 2;
  }
}
