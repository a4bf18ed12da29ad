// Bytes per second that the row codec moves, beside memcpy: rows of 128 channels encoded and
// decoded in one call per thread, and again over a few rows that stay in the cache.
//
//   codec_bandwidth [--threads N,...] [--rounds N] [--values N] [--formats F,...] [--group-ns]
//
// Bytes moved are those read and those written. In each round every operation has a memcpy of a
// large array beside it, by as many threads; the share of memcpy is the median of the rounds, with
// quartiles. --group-ns prints nanoseconds per group (of 64 values, for plain formats) instead.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/timing.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck {
namespace {

using optimized::RowBytes;
using optimized::RowCodec;

constexpr int64_t kDim = 128;

struct Options {
  std::vector<int> threads = {1, 2};
  int rounds = 9;
  int64_t values = int64_t{1} << 25;
  std::vector<std::string> formats = {"affine:8:g64:f16", "affine:4:g64:f16", "affine:8:g64:f32",
                                      "affine:4:g64:f32"};
  bool group_ns = false;
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  CLI::App app("Bytes per second of the row codec, beside memcpy");
  app.add_option("--threads", options.threads)->delimiter(',')->check(CLI::Range(1, 64));
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_option("--values", options.values)->check(CLI::Range(kDim * 64, int64_t{1} << 40));
  app.add_option("--formats", options.formats)->delimiter(',');
  app.add_flag("--group-ns", options.group_ns);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  options.values = options.values / (kDim * 64) * (kDim * 64);
  return options;
}

// Big arrays, whose pages are all there.
struct Memory {
  explicit Memory(int64_t count)
      : rows(count / kDim),
        from(static_cast<size_t>(count) * 4, std::byte{1}),
        to(from.size(), std::byte{2}),
        f32(static_cast<size_t>(count)),
        f16(static_cast<size_t>(count) * 2),
        codes(static_cast<size_t>(count) * 4),
        scales(static_cast<size_t>(count)),
        biases(scales.size()) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const size_t drawn = std::min<size_t>(f32.size(), size_t{1} << 20);
    for (size_t i = 0; i < drawn; ++i) f32[i] = normal(random);
    for (size_t i = drawn; i < f32.size(); ++i) f32[i] = f32[i - drawn];
    RowCodec narrow;
    narrow.Start(PlainFormat{DType::kFloat16}, DType::kFloat32, kDim);
    narrow.Encode(reinterpret_cast<const std::byte*>(f32.data()), kDim * 4, rows,
                  {f16.data(), nullptr, nullptr, kDim * 2, 0});
  }
  int64_t rows;
  std::vector<std::byte> from, to;
  std::vector<float> f32;
  std::vector<std::byte> f16, codes, scales, biases;
};

// Work on rows [begin, end); bytes moved per row.
struct Operation {
  std::string name;
  int64_t row_bytes;
  int64_t row_groups;
  std::function<void(int64_t begin, int64_t end)> run;
};

Operation EncodeOperation(Memory* m, const KvFormat& format, DType from) {
  const RowBytes bytes = optimized::RowBytesOf(format, kDim);
  const auto vector = kDim * static_cast<int64_t>(SizeInBytes(from));
  const std::byte* x =
      from == DType::kFloat16 ? m->f16.data() : reinterpret_cast<const std::byte*>(m->f32.data());
  const auto run = [=](int64_t begin, int64_t end) {
    static thread_local RowCodec codec;
    codec.Start(format, from, kDim);
    codec.Encode(x + begin * vector, vector, end - begin,
                 {m->codes.data() + begin * bytes.codes, m->scales.data() + begin * bytes.scales,
                  m->biases.data() + begin * bytes.scales, bytes.codes, bytes.scales});
  };
  return {fmt::format("encode {} -> {}", Name(from), Print(format)), vector + bytes.Total(), 2,
          run};
}

// To f32, or to the type of rows.
Operation DecodeOperation(Memory* m, const KvFormat& format, bool to_row_type) {
  const RowBytes bytes = optimized::RowBytesOf(format, kDim);
  const DType to = to_row_type ? RowDType(format) : DType::kFloat32;
  const auto vector = kDim * static_cast<int64_t>(SizeInBytes(to));
  const auto run = [=](int64_t begin, int64_t end) {
    RowCodec codec;
    codec.Start(format, to, kDim);
    const optimized::StoredRowsView rows = {
        m->codes.data() + begin * bytes.codes, m->scales.data() + begin * bytes.scales,
        m->biases.data() + begin * bytes.scales, bytes.codes, bytes.scales};
    std::byte* out = m->to.data() + begin * vector;
    if (to_row_type) {
      codec.DecodeToRowType(rows, end - begin, out);
    } else {
      codec.Decode(rows, end - begin, reinterpret_cast<float*>(out));
    }
  };
  return {fmt::format("decode {} -> {}", Print(format), Name(to)), vector + bytes.Total(), 2, run};
}

// Threads that take a share of the rows each: all of it, however late one of them comes.
class Team {
 public:
  explicit Team(int threads) : size_(threads), start_(threads), end_(threads) {
    for (int i = 1; i < threads; ++i) {
      threads_.emplace_back([this, i] {
        for (;;) {
          start_.arrive_and_wait();
          if (run_ == nullptr) return;
          Share(i);
          end_.arrive_and_wait();
        }
      });
    }
  }
  ~Team() {
    run_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  double Seconds(int64_t rows, const std::function<void(int64_t, int64_t)>& run) {
    run_ = &run;
    rows_ = rows;
    const double start = Now();
    start_.arrive_and_wait();
    Share(0);
    end_.arrive_and_wait();
    return Now() - start;
  }

 private:
  void Share(int i) { (*run_)(rows_* i / size_, rows_ * (i + 1) / size_); }

  int size_;
  std::barrier<> start_, end_;
  const std::function<void(int64_t, int64_t)>* run_ = nullptr;
  int64_t rows_ = 0;
  std::vector<std::thread> threads_;
};

void Measure(const Options& options, int threads, Memory* m, std::vector<Operation>* operations) {
  Team team(threads);
  const auto copy = [&](int64_t begin, int64_t end) {
    std::memcpy(m->to.data() + begin * kDim * 4, m->from.data() + begin * kDim * 4,
                static_cast<size_t>((end - begin) * kDim * 4));
  };
  std::vector<std::vector<double>> rate(operations->size()), share(operations->size());
  std::vector<double> memcpy_rate;
  for (int round = -1; round < options.rounds; ++round) {
    for (size_t i = 0; i < operations->size(); ++i) {
      const Operation& operation = (*operations)[i];
      const auto rows = static_cast<double>(m->rows);
      const double beside = rows * kDim * 8 / team.Seconds(m->rows, copy) * 1e-9;
      const double own =
          rows * static_cast<double>(operation.row_bytes) / team.Seconds(m->rows, operation.run);
      if (round < 0) continue;  // warms
      memcpy_rate.push_back(beside);
      rate[i].push_back(own * 1e-9);
      share[i].push_back(100 * own * 1e-9 / beside);
    }
  }
  fmt::print(
      "| {} thread{} | GB/s moved | of memcpy ({:.1f} GB/s) | quartiles |\n|---|---|---|---|\n",
      threads, threads == 1 ? "" : "s", Quantile(memcpy_rate, 0.5));
  for (size_t i = 0; i < operations->size(); ++i) {
    fmt::print("| {} | {:.1f} | {:.0f} % | {:.0f} to {:.0f} % |\n", (*operations)[i].name,
               Quantile(rate[i], 0.5), Quantile(share[i], 0.5), Quantile(share[i], 0.25),
               Quantile(share[i], 0.75));
  }
  fmt::print("\n");
}

// The best of many calls over 64 rows.
void MeasureGroups(const Options& options, const std::vector<Operation>& operations) {
  constexpr int64_t kRows = 64;
  fmt::print("| over {} rows in the cache | ns per 64 values |\n|---|---|\n", kRows);
  for (const Operation& operation : operations) {
    double best = 1e9;
    for (int round = 0; round < 200 * options.rounds; ++round) {
      const double start = Now();
      operation.run(0, kRows);
      best = std::min(best, Now() - start);
    }
    fmt::print("| {} | {:.1f} |\n", operation.name,
               best * 1e9 / static_cast<double>(kRows * operation.row_groups));
  }
  fmt::print("\n");
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  Memory memory(options.group_ns ? kDim * 64 : options.values);
  std::vector<Operation> operations;
  for (const std::string& text : options.formats) {
    const KvFormat format = ParseKvFormat(WholeLine(text));
    operations.push_back(EncodeOperation(&memory, format, DType::kFloat32));
    operations.push_back(EncodeOperation(&memory, format, DType::kFloat16));
    operations.push_back(DecodeOperation(&memory, format, false));
    if (RowDType(format) != DType::kFloat32) {
      operations.push_back(DecodeOperation(&memory, format, true));
    }
  }
  if (options.group_ns) {
    MeasureGroups(options, operations);
    return 0;
  }
  for (const int threads : options.threads) Measure(options, threads, &memory, &operations);
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
