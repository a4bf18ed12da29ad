// What was measured, for programs: one JSON document each, described in tools/measure/README.md.

#ifndef TOOLS_MEASURE_BENCH_JSON_H_
#define TOOLS_MEASURE_BENCH_JSON_H_

#include <span>
#include <string>
#include <string_view>

#include "tools/measure/format_bench.h"
#include "tools/measure/judge_bench.h"
#include "tools/measure/kv_cache_bench.h"

namespace kvcheck {

inline constexpr int kBenchSchema = 1;

// Of all fields those named speed, quantize, dequantize, processor and resident_peak_bytes alone
// differ from run to run.
// interrupted: the figures are what was measured until then.
std::string FormatBenchJson(const FormatBenchQuestion& question,
                            std::span<const FormatFigures> figures, std::string_view data,
                            bool interrupted = false);
std::string KvCacheJson(const KvCacheQuestion& question, std::span<const KvCacheFigures> figures,
                        bool interrupted = false);
std::string JudgeBenchJson(const JudgeQuestion& question, std::span<const JudgeFigures> figures,
                           bool interrupted = false);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_BENCH_JSON_H_
