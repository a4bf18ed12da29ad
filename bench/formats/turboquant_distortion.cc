// The mean squared error of turboquant codes on rows of N(0,1) beside the distortion of their
// quantiser, D(d, b): for a fixed orthogonal rotation and normal rows the expectation is exactly D.
//
//   turboquant_distortion [--rows N] [--seed N]
//
// A row is |x - y|^2 / |x|^2 of one group through the optimized codec. Exit 1 where a mean is more
// than five standard errors from D, or above the bound of TurboQuant's Theorem 1, (sqrt(3) pi / 2)
// 4^-b. Codebooks of mlx-vlm have up to 6e-4 more than D; the f16 norm adds up to 2.4e-7.

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "reference/data/generator.h"
#include "reference/formats/lloyd_max.h"

namespace kvcheck {
namespace {

struct Mean {
  double mean = 0;
  double deviation = 0;  // of a row
  double error = 0;      // of the mean
};

// Marsaglia's polar method.
void FillNormal(Generator* random, std::vector<float>* row) {
  for (size_t i = 0; i < row->size(); i += 2) {
    double u = 0, v = 0, s = 0;
    do {
      u = 2 * random->Uniform() - 1;
      v = 2 * random->Uniform() - 1;
      s = u * u + v * v;
    } while (s >= 1 || s == 0);
    const double factor = std::sqrt(-2 * std::log(s) / s);
    (*row)[i] = static_cast<float>(u * factor);
    (*row)[i + 1] = static_cast<float>(v * factor);
  }
}

Mean Measure(const TurboquantFormat& format, int64_t rows, uint64_t seed) {
  const int64_t d = format.group_size;
  optimized::RowCodec codec;
  codec.Start(format, DType::kFloat32, d);
  std::vector<float> x(static_cast<size_t>(d)), y(x.size());
  std::vector<std::byte> codes(static_cast<size_t>(codec.bytes().codes)), norms(2);
  double sum = 0, squares = 0;
  for (int64_t row = 0; row < rows; ++row) {
    Generator random(seed, "turboquant", static_cast<uint64_t>(row));
    FillNormal(&random, &x);
    const int64_t bytes = codec.bytes().codes;
    codec.Encode(reinterpret_cast<const std::byte*>(x.data()), 4 * d, 1,
                 {codes.data(), norms.data(), nullptr, bytes, 2});
    codec.Decode({codes.data(), norms.data(), nullptr, bytes, 2}, 1, y.data());
    double error = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
      error += difference * difference;
      size += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    sum += error / size;
    squares += error / size * (error / size);
  }
  const auto n = static_cast<double>(rows);
  const double mean = sum / n;
  const double deviation = std::sqrt((squares / n - mean * mean) * n / (n - 1));
  return {mean, deviation, deviation / std::sqrt(n)};
}

int Main(int argc, char** argv) {
  int64_t rows = 20000;
  uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--rows") rows = std::atoll(argv[i + 1]);
    if (key == "--seed") seed = static_cast<uint64_t>(std::atoll(argv[i + 1]));
  }
  fmt::print("| format | D(d, b) | mean of {} rows | standard error | of it | bound |\n", rows);
  fmt::print("|---|---|---|---|---|---|\n");
  bool failed = false;
  const auto measure = [&](const TurboquantFormat& format) {
    const double exact = SolveLloydMax(format.group_size, format.bits).distortion.ToDouble();
    const Mean mean = Measure(format, rows, seed);
    const double bound = std::numbers::sqrt3 * std::numbers::pi / 2 * std::pow(4, -format.bits);
    const double more = format.codebook == TurboquantCodebook::kExact ? 0 : 6e-4 * exact;
    const double distance = (mean.mean - exact) / mean.error;
    const bool fits = mean.mean - exact <= 5 * mean.error + more &&
                      mean.mean - exact >= -5 * mean.error && mean.mean <= bound;
    failed = failed || !fits;
    fmt::print("| {} | {:.6f} | {:.6f} | {:.6f} | {:+.2f} | {:.6f}{} |\n", format.Text(), exact,
               mean.mean, mean.error, distance, bound, fits ? "" : ", missed");
  };
  for (const int d : {64, 128, 256}) {
    for (int bits = 1; bits <= 5; ++bits) measure({bits, d});
  }
  for (int bits = 1; bits <= 4; ++bits) measure({bits, 128, TurboquantCodebook::kMlxVlm, 1});
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
