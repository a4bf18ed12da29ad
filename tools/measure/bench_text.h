// What was measured, as tables for a reader.

#ifndef TOOLS_MEASURE_BENCH_TEXT_H_
#define TOOLS_MEASURE_BENCH_TEXT_H_

#include <span>
#include <string>
#include <string_view>

#include "tools/measure/format_bench.h"
#include "tools/measure/judge_bench.h"
#include "tools/measure/kv_cache_bench.h"

namespace kvcheck {

// interrupted: the figures are what was measured until then, and the first line says so.
// data: "normal", or the places of stored tensors.
std::string FormatBenchText(const FormatBenchQuestion& question,
                            std::span<const FormatFigures> figures, std::string_view data,
                            bool interrupted = false);
// Each length a table; of several lengths, how far the time per token differs between them.
std::string KvCacheText(const KvCacheQuestion& question, std::span<const KvCacheFigures> figures,
                        bool interrupted = false);

// Each case a table, a line for each plan and rule.
std::string JudgeBenchText(const JudgeQuestion& question, std::span<const JudgeFigures> figures,
                           bool interrupted = false);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_BENCH_TEXT_H_
