// The first pass over two whole files, taken as one tensor, beside the best read of the same files
// in the same run, and the resident memory of the pass.
//
//   compare_files FILE FILE [DTYPE [TOLERANCE [REPEATS]]]     f32 abs:1e-6,rel:1e-3 5
//
// The best of each measurement is printed (beside_reads.h), in bytes of both files per second of
// wall-clock time. The CPU time of a mapped read holds the making of its page tables.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/compare/beside_reads.h"
#include "golden/mapped_file.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "reference/spec/text.h"
#include "tools/compare/first_pass_run.h"

namespace kvcheck {
namespace {

double PassSeconds(const std::string& expected, const std::string& got, DType dtype,
                   const PassRule& rule, int threads) {
  try {
    const auto start = std::chrono::steady_clock::now();
    const MappedFile a(expected);
    const MappedFile b(got);
    PassPair pair;
    pair.expected.file = &a;
    pair.got.file = &b;
    pair.dtype = dtype;
    pair.elements = std::min(a.size(), b.size()) / static_cast<int64_t>(SizeInBytes(dtype));
    pair.rule = rule;
    const PassSummary summary = RunFirstPass({&pair, 1}, threads).front();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (threads == 1) {
      fmt::print(stderr, "{} of {} elements not certified, max abs {} rel {} ulp {} rms {}\n",
                 summary.not_certified, summary.elements, summary.max_abs, summary.max_rel,
                 summary.max_ulp, summary.RmsAbs());
    }
    return seconds;
  } catch (const Error& error) {
    fmt::print(stderr, "compare_files: {}: {}\n", error.context(), error.message());
    _exit(2);
  }
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: compare_files FILE FILE [DTYPE [TOLERANCE [REPEATS]]]\n");
    return 2;
  }
  const std::string expected = argv[1];
  const std::string got = argv[2];
  const DType dtype = ParseDType(argc > 3 ? argv[3] : "f32").value();
  const std::string tolerance = argc > 4 ? argv[4] : "abs:1e-6,rel:1e-3";
  const int repeats = argc > 5 ? std::atoi(argv[5]) : 5;
  const PassRule rule = PassRuleOf(ParseToleranceRule(WholeLine(tolerance)), kTensorPolicy).value();

  std::vector<MeasuredPass> passes;
  for (const int threads : {1, 2}) {
    passes.push_back({fmt::format("first pass, {} threads", threads),
                      [=] { return PassSeconds(expected, got, dtype, rule, threads); }});
  }
  PrintBesideReads(expected, got, passes, repeats);
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
