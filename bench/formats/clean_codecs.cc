// False alarms of the bound of a round trip: rows of every regime and type through the fast codec,
// each error beside the bound that the reference derives from the row, format by format, until a
// number of elements has a bound.
//
//   clean_codecs [--elements 1e6] [--formats GLOB,...] [--seed 1]
//
// A Markdown table, a row per coded format and one of all: elements, how many lie beyond their
// bound, how many have none (not finite, or beyond the range of the scales), the largest
// error / bound and the rows where it is.

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "reference/data/row_regime.h"
#include "reference/formats/error_bound.h"
#include "reference/numerics/convert.h"
#include "reference/spec/glob.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {
namespace {

constexpr int64_t kRows = 64;

struct Options {
  double elements = 1e6;
  std::vector<std::string> formats;
  uint64_t seed = 1;
};

struct Count {
  int64_t judged = 0, violations = 0, without_bound = 0;
  double largest = 0;
  std::string where = "-";
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  const auto fail = [](const std::string& why) {
    fmt::print(stderr, "clean_codecs: {}\n", why);
    std::exit(2);
  };
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) fail(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--elements") {
      options.elements = std::atof(value.c_str());
    } else if (key == "--seed") {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "--formats") {
      std::stringstream stream(value);
      for (std::string part; std::getline(stream, part, ',');) options.formats.push_back(part);
    } else {
      fail("there is no option " + key);
    }
  }
  return options;
}

// Values that the fast codec keeps of rows, in the type of rows.
std::vector<double> Kept(const KvFormat& format, const Tensor& x) {
  const int64_t dim = x.shape.RowLength(), rows = x.shape.RowCount();
  optimized::RowCodec codec;
  codec.Start(format, x.dtype, dim);
  const optimized::RowBytes bytes = codec.bytes();
  const auto of = [&](int64_t row_bytes) {
    return std::vector<std::byte>(static_cast<size_t>(rows * row_bytes));
  };
  std::vector<std::byte> codes = of(bytes.codes), scales = of(bytes.scales),
                         biases = of(bytes.scales);
  codec.Encode(x.bytes.data(), dim * static_cast<int64_t>(SizeInBytes(x.dtype)), rows,
               {codes.data(), scales.data(), biases.data(), bytes.codes, bytes.scales});
  Tensor y(RowDType(format), x.shape);
  codec.DecodeToRowType({codes.data(), scales.data(), biases.data(), bytes.codes, bytes.scales},
                        rows, y.bytes.data());
  std::vector<double> values(static_cast<size_t>(rows * dim));
  DecodeTo(y, 0, values);
  return values;
}

void Judge(const KvFormat& format, const Tensor& x, const std::string& where, Count* count) {
  const auto dim = static_cast<size_t>(x.shape.RowLength());
  std::vector<double> given(static_cast<size_t>(x.ElementCount()));
  DecodeTo(x, 0, given);
  const std::vector<double> kept = Kept(format, x);
  const Profile profile;
  for (size_t at = 0; at < given.size(); at += dim) {
    const RowBound bound = RoundTripBound(format, profile, DecodeRounding::kTwoRoundings, x.dtype,
                                          std::span(given).subspan(at, dim));
    for (size_t i = 0; i < dim; ++i) {
      if (bound.overflows[i]) {
        ++count->without_bound;
        continue;
      }
      ++count->judged;
      const double error = std::fabs(given[at + i] - kept[at + i]);
      if (!(error <= bound.total[i])) ++count->violations;
      if (bound.total[i] > 0 && error / bound.total[i] > count->largest) {
        count->largest = error / bound.total[i];
        count->where = where;
      }
    }
  }
}

Count JudgeFormat(const KvFormat& format, const Options& options) {
  const int64_t dim = 5 * BlockOf(format);
  Count count;
  for (uint64_t seed = options.seed; static_cast<double>(count.judged) < options.elements; ++seed) {
    for (const std::string_view regime : RowRegimes()) {
      for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        Judge(format, GenerateRows(regime, seed, type, kRows, dim),
              fmt::format("{}:{} {}", regime, seed, Name(type)), &count);
      }
    }
  }
  return count;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const kvcheck::Options options = kvcheck::ParseOptions(argc, argv);
  fmt::print("| format | elements | violations | without bound | max err/bound | where |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  const auto print = [](const std::string& what, const kvcheck::Count& count) {
    fmt::print("| {} | {} | {} | {} | {:.6f} | {} |\n", what, count.judged, count.violations,
               count.without_bound, count.largest, count.where);
    std::fflush(stdout);
  };
  kvcheck::Count all;
  for (const kvcheck::KvFormat& format : kvcheck::AllKvFormats()) {
    const std::string text = kvcheck::Print(format);
    if (kvcheck::IsPlain(format) || !kvcheck::MatchesAnyGlob(options.formats, text)) continue;
    const kvcheck::Count count = kvcheck::JudgeFormat(format, options);
    print(text, count);
    all.judged += count.judged;
    all.violations += count.violations;
    all.without_bound += count.without_bound;
    if (count.largest > all.largest) {
      all.largest = count.largest;
      all.where = text;
    }
  }
  print("all", all);
  return all.violations == 0 ? 0 : 1;
}
