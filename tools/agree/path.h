// The path under test: kvcheck's fast model over its fast caches, fed a text token by token
// whatever it would say itself (teacher forcing): prefill in chunks, decode, drafts that are
// trimmed again, rows of a batch that begin with padding.

#ifndef TOOLS_AGREE_PATH_H_
#define TOOLS_AGREE_PATH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optimized/cache/cache_factory.h"
#include "optimized/model/decoder.h"
#include "tools/agree/path_faults.h"
#include "tools/agree/recorder.h"

namespace kvcheck {

// Which caches hold K and V.
struct PathStorage {
  KvFormat k = PlainFormat{};
  KvFormat v = PlainFormat{};
  // Layers with a window: a ring of as many tokens; else all tokens, and attention is asked for the
  // window.
  bool ring = false;
  PathFault fault = PathFault::kNone;
};

// What is fed in one call.
struct PathStep {
  int64_t columns = 1;
  // Tokens of a draft that are appended before, and trimmed again.
  int64_t drafts = 0;
};

// Of `columns` columns: chunks of `chunk`, the last eighth one by one, every 16th of these after a
// draft of 3.
std::vector<PathStep> TeacherForcedSteps(int64_t columns, int64_t chunk);
// Drafts are no tokens of the text: times and stored prefixes are those of it alone.
std::vector<PathStep> WithoutDrafts(std::vector<PathStep> steps);

// Why a path with the fault says what a right one says of sequences of so many tokens; "" where the
// fault shows.
std::string WhyFaultIsHidden(PathFault fault, std::span<const int64_t> lengths);

class PathRun {
 public:
  // sequences: tokens of each row, the BOS token first; shorter ones are padded on the left.
  // Errors: kUnsupported where a cache cannot be made.
  PathRun(optimized::Decoder* decoder, const PathStorage& storage,
          std::span<const std::span<const int64_t>> sequences);

  int64_t columns() const { return columns_; }
  // The plan and profile of attention where an answer states none.
  CacheCapabilities capabilities() const { return factory_.GetCapabilities(); }

  // K and V of the first tokens of the only row, as if they had been fed: (layers, kv_heads,
  // tokens, head_dim). What Run feeds comes behind them.
  void Begin(std::span<const float> k, std::span<const float> v, int64_t tokens);

  // Called after each step with its positions, (rows, columns), and logits, (rows, columns,
  // vocabulary).
  using OnStep = std::function<void(std::span<const int64_t> positions, int64_t columns,
                                    std::span<const float> logits)>;
  // recorder: null, or told of every step but drafts.
  void Run(std::span<const PathStep> steps, Recorder* recorder, const OnStep& on_step);

 private:
  void Feed(int64_t column, int64_t columns, bool draft, Recorder* recorder);
  void Trim(int64_t count);

  optimized::Decoder* decoder_;
  PathStorage storage_;
  std::vector<std::span<const int64_t>> sequences_;
  std::vector<int64_t> padding_;
  int64_t columns_ = 0;
  int64_t begun_ = 0;  // columns that are there before the first step
  int64_t rope_drift_ = 0;
  optimized::OptimizedCacheFactory factory_;
  std::vector<std::unique_ptr<Cache>> caches_;
  std::vector<Cache*> layers_;
  std::vector<int64_t> tokens_, positions_, true_positions_;
  std::vector<float> logits_;
};

}  // namespace kvcheck

#endif  // TOOLS_AGREE_PATH_H_
