// A KV cache that is quantized when it is stored and dequantized when it is fetched, as prefix
// caches do: memory, errors, times. Layer by layer, so that there are never three copies: the
// original of a layer is freed when the layer is stored, before anything is fetched, and what is
// fetched of a layer is freed before the next one. Counterpart: the command bench-kv-cache of
// vllm-mlx (pull request 62), whose compression is that against f32.

#ifndef TOOLS_MEASURE_KV_CACHE_BENCH_H_
#define TOOLS_MEASURE_KV_CACHE_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/progress.h"
#include "tools/measure/error_figures.h"
#include "tools/measure/pages.h"

namespace kvcheck {

struct KvCacheShape {
  int64_t layers = 32;
  int64_t heads = 32;  // of queries, for the report alone
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  DType dtype = DType::kFloat16;  // of the original: f32, f16 or bf16

  int64_t LayerElements(int64_t seq_len) const { return 2 * kv_heads * seq_len * head_dim; }
  int64_t LayerBytes(int64_t seq_len) const {
    return LayerElements(seq_len) * static_cast<int64_t>(SizeInBytes(dtype));
  }
};

struct KvCacheQuestion {
  KvCacheShape shape;
  std::vector<int64_t> seq_lens = {4096};
  std::vector<KvFormat> formats;
  uint64_t seed = 1;
  int rounds = 3;
};

struct KvCacheFigures {
  KvFormat format;
  int64_t seq_len = 0;
  int rounds = 0;  // that were measured: all, but where it was cancelled
  int64_t original_bytes = 0;
  int64_t stored_bytes = 0;
  int64_t layer_bytes = 0;  // of one original layer
  ErrorSums errors;         // of every element of every layer
  // Seconds of processor time of all layers, on one thread: medians of the rounds.
  double quantize_seconds = 0;
  double dequantize_seconds = 0;
  // Of the layer in the middle of all layers of all rounds, per token of one layer.
  double quantize_token_ns = 0;
  double dequantize_token_ns = 0;
  // The largest of the rounds: of the copies by count, and of the process by the system.
  int64_t held_peak_bytes = 0;
  std::optional<int64_t> resident_peak_bytes;
};

// By length, then by format. Times are those of the optimized codec: rows of the original's type to
// their stored planes and back to that type. Original rows are N(0, 1), drawn once and dealt to
// layers and heads. Of formats that group tokens all are in closed groups. Preconditions: the
// formats fit head_dim, and their groups every length.
// progress: told before each format of a round; null: nobody is. so_far: told after each what was
// measured until then, without caches of which nothing was. Errors: kUnsupported where memory does
// not hold it, or a format has parameters which are data; Cancelled.
std::vector<KvCacheFigures> MeasureKvCache(
    const KvCacheQuestion& question, const Cancel& cancel = {}, Progress* progress = nullptr,
    const std::function<void(std::vector<KvCacheFigures>)>& so_far = {});

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_KV_CACHE_BENCH_H_
