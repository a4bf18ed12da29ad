// How fast attention reads stored K and V: milliseconds, and the share of what this machine reads
// at all, of decoding one token over contexts of growing length. Every round measures a plain read
// of as many bytes first (the probe) and then each format once, so that what else the machine does
// falls on all alike; the numbers are medians over the rounds, of the share with its quartiles.
//
//   attention_speed [--threads N] [--rounds N] [--formats f16,affine:4:g64:f16] [--tokens 1024,...]
//                   [--layout head|token|both] [--batch N] [--portable] [--prefill L]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/attention/worker_pool.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck {
namespace {

constexpr int64_t kQueryHeads = 32;
constexpr int64_t kKvHeads = 8;
constexpr int64_t kDim = 128;

struct Options {
  int threads = 2;
  int rounds = 7;
  std::vector<std::string> formats = {"f32", "f16", "bf16", "affine:8:g64:f16", "affine:4:g64:f16"};
  std::vector<int64_t> tokens = {1024, 4096, 16384, 32768};
  std::string layout = "head";
  int64_t batch = 1;
  int64_t prefill = 0;  // queries; 0: decode
  bool portable = false;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

// One operand of every sequence: random bytes that are finite in every format.
struct Stored {
  Stored(const KvFormat& format, int64_t tokens, int64_t batch, bool by_token)
      : bytes(optimized::RowBytesOf(format, kDim)),
        vectors(tokens * kKvHeads),
        tokens(tokens),
        by_token(by_token),
        codes(static_cast<size_t>(vectors * bytes.codes * batch + 64)),
        scales(static_cast<size_t>(vectors * bytes.scales * batch + 64)),
        biases(scales.size()) {
    optimized::RowCodec codec;
    codec.Start(format, DType::kFloat32, kDim);
    std::mt19937 random(1);
    constexpr int64_t kDrawn = 257;  // vectors; then they repeat
    std::vector<float> x(static_cast<size_t>(kDrawn * kDim));
    for (float& value : x) value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    for (int64_t done = 0; done < vectors * batch; done += kDrawn) {
      const int64_t count = std::min(kDrawn, vectors * batch - done);
      codec.Encode(reinterpret_cast<const std::byte*>(x.data()), kDim * 4, count,
                   {codes.data() + done * bytes.codes, scales.data() + done * bytes.scales,
                    biases.data() + done * bytes.scales, bytes.codes, bytes.scales});
    }
  }
  optimized::StoredHeads Heads(int64_t row) const {
    const int64_t token = by_token ? kKvHeads : 1;
    const int64_t head = by_token ? 1 : tokens;
    return {codes.data() + row * vectors * bytes.codes,
            scales.data() + row * vectors * bytes.scales,
            biases.data() + row * vectors * bytes.scales,
            token * bytes.codes,
            head * bytes.codes,
            token * bytes.scales,
            head * bytes.scales};
  }
  int64_t Bytes() const { return vectors * bytes.Total(); }

  optimized::RowBytes bytes;
  int64_t vectors, tokens;
  bool by_token;
  std::vector<std::byte> codes, scales, biases;
};

// Decoding (or prefill) over one format.
struct Problem {
  Problem(const Options& options, const std::string& text, int64_t tokens, bool by_token)
      : name(text + (by_token ? " token-major" : "")),
        queries(std::max<int64_t>(1, options.prefill)),
        k(ParseKvFormat(WholeLine(text)), tokens, options.batch, by_token),
        v(ParseKvFormat(WholeLine(text)), tokens, options.batch, by_token),
        run{0, 0, tokens} {
    shape.query_heads = kQueryHeads;
    shape.kv_heads = kKvHeads;
    shape.k_dim = shape.v_dim = kDim;
    shape.k = shape.v = ParseKvFormat(WholeLine(text));
    shape.scale = 0.08838834764831845;
    shape.portable = options.portable;
    visible.resize(static_cast<size_t>(queries));
    for (optimized::VisibleKeys& keys : visible) keys.end = tokens;
    const int64_t rows = kQueryHeads * queries * options.batch;
    q.resize(static_cast<size_t>(rows * kDim));
    out.resize(q.size());
    std::mt19937 random(2);
    for (float& value : q) value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    for (int64_t b = 0; b < options.batch; ++b) {
      optimized::SequenceQueries row;
      row.k = k.Heads(b);
      row.v = v.Heads(b);
      row.columns = {&run, 1};
      row.queries = queries;
      row.q = q.data() + b * kQueryHeads * queries * kDim;
      row.q_stride = kDim;
      row.q_head_stride = queries * kDim;
      row.visible = visible.data();
      row.out = out.data() + b * kQueryHeads * queries * kDim;
      row.out_stride = kDim;
      row.out_head_stride = queries * kDim;
      batch.push_back(row);
    }
  }
  int64_t Bytes() const { return (k.Bytes() + v.Bytes()) * static_cast<int64_t>(batch.size()); }

  std::string name;
  int64_t queries;
  Stored k, v;
  optimized::ColumnRun run;
  optimized::AttentionShape shape;
  std::vector<optimized::VisibleKeys> visible;
  std::vector<float> q, out;
  std::vector<optimized::SequenceQueries> batch;
};

// The or of all words, each thread a part: how fast memory can be read.
class ReadProbe {
 public:
  explicit ReadProbe(int threads) : pool_(threads) {}
  double Seconds(const std::byte* from, int64_t bytes) {
    from_ = from;
    share_ = bytes / pool_.workers() / 512 * 512;
    const double start = Now();
    pool_.Run([](void* probe, int worker) { static_cast<ReadProbe*>(probe)->Read(worker); }, this);
    return Now() - start;
  }

 private:
  void Read(int worker) {
    const std::byte* at = from_ + worker * share_;
    uint64_t lanes[16] = {};
    for (int64_t i = 0; i < share_; i += 128) {
      __builtin_prefetch(at + i + 2048);
      __builtin_prefetch(at + i + 2112);
      uint64_t words[16];
      std::memcpy(words, at + i, 128);
      for (int k = 0; k < 16; ++k) lanes[k] |= words[k];
    }
    uint64_t all = 0;
    for (const uint64_t lane : lanes) all |= lane;
    sink_[worker] = all;
  }

  optimized::WorkerPool pool_;
  const std::byte* from_ = nullptr;
  int64_t share_ = 0;
  volatile uint64_t sink_[64] = {};
};

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  const auto fail = [](const std::string& why) {
    fmt::print(stderr, "attention_speed: {}\n", why);
    std::exit(2);
  };
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--portable") {
      options.portable = true;
      continue;
    }
    if (i + 1 == argc) fail(key + " needs a value");
    const std::string value = argv[++i];
    if (key == "--threads") {
      options.threads = std::clamp(std::atoi(value.c_str()), 1, 64);
    } else if (key == "--rounds") {
      options.rounds = std::max(1, std::atoi(value.c_str()));
    } else if (key == "--formats") {
      options.formats = Split(value);
    } else if (key == "--tokens") {
      options.tokens.clear();
      for (const std::string& part : Split(value))
        options.tokens.push_back(std::atoll(part.c_str()));
      for (const int64_t tokens : options.tokens) {
        if (tokens < 1) fail("--tokens takes numbers from 1 on");
      }
    } else if (key == "--layout") {
      options.layout = value;
      if (value != "head" && value != "token" && value != "both") {
        fail("--layout is head, token or both");
      }
    } else if (key == "--batch") {
      options.batch = std::max(1, std::atoi(value.c_str()));
    } else if (key == "--prefill") {
      options.prefill = std::atoll(value.c_str());
    } else {
      fail("there is no option " + key);
    }
  }
  return options;
}

void Measure(const Options& options, int64_t tokens) {
  std::vector<std::unique_ptr<Problem>> problems;
  for (const std::string& format : options.formats) {
    for (const bool by_token : {false, true}) {
      if (options.layout != "both" && by_token != (options.layout == "token")) continue;
      problems.push_back(std::make_unique<Problem>(options, format, tokens, by_token));
    }
  }
  optimized::Attention attention(options.threads);
  ReadProbe probe(options.threads);
  // As many bytes as the largest problem, so that what fits a cache fits it for both.
  const auto f32_bytes = static_cast<int64_t>(kKvHeads * kDim * 8 * tokens) * options.batch;
  std::vector<std::byte> memory(static_cast<size_t>(f32_bytes), std::byte{1});
  std::vector<std::vector<double>> seconds(problems.size()), share(problems.size());
  std::vector<double> read;
  // Short problems are repeated within a round.
  const int repeats = static_cast<int>(std::max<int64_t>(1, 16384 / (tokens * options.batch)));
  for (int round = -1; round < options.rounds; ++round) {
    for (size_t i = 0; i < problems.size(); ++i) {
      Problem& problem = *problems[i];
      const int64_t bytes = problem.Bytes();
      double of_read = 1e9;
      for (int r = 0; r < 3; ++r) {
        of_read = std::min(of_read, probe.Seconds(memory.data(), bytes));
      }
      attention.Run(problem.shape, problem.batch);
      const double start = Now();
      for (int r = 0; r < repeats; ++r) attention.Run(problem.shape, problem.batch);
      const double once = (Now() - start) / repeats;
      if (round < 0) continue;  // warms
      seconds[i].push_back(once);
      share[i].push_back(of_read / once);
      read.push_back(static_cast<double>(bytes) / of_read / 1e9);
    }
  }
  fmt::print("{} tokens: probe {:.1f} GB/s\n", tokens, Quantile(read, 0.5));
  for (size_t i = 0; i < problems.size(); ++i) {
    const double once = Quantile(seconds[i], 0.5);
    const auto bytes = static_cast<double>(problems[i]->Bytes());
    fmt::print("  {:28} {:9.3f} ms {:7.2f} GB/s  {:5.1f} % of the probe [{:.1f}, {:.1f}]",
               problems[i]->name, once * 1e3, bytes / once / 1e9, 100 * Quantile(share[i], 0.5),
               100 * Quantile(share[i], 0.25), 100 * Quantile(share[i], 0.75));
    const double flops = 4.0 * static_cast<double>(tokens * problems[i]->queries * kQueryHeads *
                                                   kDim * options.batch);
    fmt::print("  {:6.1f} GFLOP/s\n", flops / once / 1e9);
  }
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const kvcheck::Options options = kvcheck::ParseOptions(argc, argv);
  for (const int64_t tokens : options.tokens) kvcheck::Measure(options, tokens);
  return 0;
}
