// What a storage format costs and loses: bits per element, compression, the error of rows, the
// error of attention over them, the speed of the optimized codec. Formats are known by their
// planes and their codec alone. Errors are those of the reference: rows are encoded and decoded by
// reference/formats, attention is its definition in double, over the stored and over the original
// K and V. Nothing is judged.

#ifndef TOOLS_MEASURE_FORMAT_BENCH_H_
#define TOOLS_MEASURE_FORMAT_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/progress.h"
#include "tools/measure/bench_data.h"
#include "tools/measure/codec_speed.h"
#include "tools/measure/error_figures.h"

namespace kvcheck {

struct FormatBenchQuestion {
  std::vector<KvFormat> formats;
  KvRows rows;
  // Queries of a head, N(0, 1) from this seed; scores are q.k / sqrt(head_dim).
  int64_t queries = 16;
  uint64_t seed = 1;
  Profile profile;
  int threads = 1;  // figures do not depend on it
  int rounds = 9;   // of timing; 0: nothing is timed
};

struct FormatFigures {
  KvFormat format;
  double bits = 0;    // per element, of K and V together
  int64_t heads = 0;  // that were measured: all, but where it was cancelled
  double CompressionToF32() const { return 32 / bits; }
  double CompressionTo16Bits() const { return 16 / bits; }
  ErrorSums rows;       // of K and V
  ErrorSums attention;  // of the outputs, against those over the original K and V
  // nullopt where nothing is timed, or the optimized codec does not follow the profile.
  std::optional<CodecSpeed> speed;
};

// In the order of the formats. progress: told before each step; null: nobody is. so_far: told after
// each step what was measured until then, without formats of which nothing was. Errors:
// kUnsupported for a format that has parameters which are data; Cancelled.
std::vector<FormatFigures> MeasureFormats(
    const FormatBenchQuestion& question, const Cancel& cancel = {}, Progress* progress = nullptr,
    const std::function<void(std::vector<FormatFigures>)>& so_far = {});

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_FORMAT_BENCH_H_
