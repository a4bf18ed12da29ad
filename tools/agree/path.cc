#include "tools/agree/path.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kDraftTokens = 3;
constexpr int64_t kDraftEvery = 16;
// Capacity grows by it; small enough that caches grow many times in a run.
constexpr int64_t kGrowthTokens = 64;

void Demand(const OpResult& result, const char* what) {
  if (result.ok()) return;
  throw Error(ErrorCode::kUnsupported, fmt::format("{}: {}", what, result.message), "--format");
}

}  // namespace

std::vector<PathStep> TeacherForcedSteps(int64_t columns, int64_t chunk) {
  std::vector<PathStep> steps;
  const int64_t decoded = columns / 8;
  for (int64_t left = columns - decoded; left > 0; left -= steps.back().columns) {
    steps.push_back({std::min(chunk, left), 0});
  }
  for (int64_t i = 0; i < decoded; ++i) {
    steps.push_back({1, i % kDraftEvery == 0 ? kDraftTokens : 0});
  }
  return steps;
}

std::vector<PathStep> WithoutDrafts(std::vector<PathStep> steps) {
  for (PathStep& step : steps) step.drafts = 0;
  return steps;
}

std::string WhyFaultIsHidden(PathFault fault, std::span<const int64_t> lengths) {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const std::vector<PathStep> steps = TeacherForcedSteps(*longest, *longest);
  const bool trims =
      std::any_of(steps.begin(), steps.end(), [](const PathStep& step) { return step.drafts > 0; });
  if (fault == PathFault::kLeftPadding && *shortest == *longest) {
    return "no row has padding: ask with --batch 2 or more, and more --positions";
  }
  if (fault == PathFault::kSwappedV && steps.front().columns == 1) {
    return "every token is appended alone: ask for more --positions and --context";
  }
  if (fault == PathFault::kRopeOffset && !trims) {
    return "nothing is trimmed: ask for at least 8 --positions and --context";
  }
  return "";
}

PathRun::PathRun(optimized::Decoder* decoder, const PathStorage& storage,
                 std::span<const std::span<const int64_t>> sequences)
    : decoder_(decoder), storage_(storage), sequences_(sequences.begin(), sequences.end()) {
  const DecoderConfig& c = decoder->config();
  for (const auto& sequence : sequences_) {
    columns_ = std::max(columns_, static_cast<int64_t>(sequence.size()));
  }
  for (const auto& sequence : sequences_) {
    padding_.push_back(columns_ - static_cast<int64_t>(sequence.size()));
  }
  CacheSetup setup;
  setup.k = storage.k;
  setup.v = storage.v;
  setup.kv_heads = c.kv_heads;
  setup.query_heads = c.query_heads;
  setup.k_dim = setup.v_dim = c.head_dim;
  setup.growth_tokens = kGrowthTokens;
  Demand(factory_.Start(setup), "the caches cannot be set up");
  const bool of_cache =
      storage.fault != PathFault::kNone && storage.fault != PathFault::kRopeOffset;
  for (int64_t layer = 0; layer < c.layers(); ++layer) {
    const int64_t window = c.windows[static_cast<size_t>(layer)];
    CacheLayout layout;
    if (window > 0 && storage.ring) layout = {LayoutKind::kRing, window, 0, 0};
    std::unique_ptr<Cache> cache;
    const OpResult made =
        of_cache && layer == FaultyLayer(c.layers())
            ? NewFaultyCache(storage.fault, &factory_, layout, storage.k, storage.v, padding_,
                             &cache)
            : factory_.New(layout, storage.k, storage.v, static_cast<int64_t>(padding_.size()),
                           padding_, &cache);
    Demand(made, "a cache cannot be made");
    layers_.push_back(cache.get());
    caches_.push_back(std::move(cache));
  }
}

void PathRun::Feed(int64_t column, int64_t columns, bool draft, Recorder* recorder) {
  const DecoderConfig& c = decoder_->config();
  tokens_.clear(), positions_.clear(), true_positions_.clear();
  for (size_t b = 0; b < sequences_.size(); ++b) {
    for (int64_t i = column; i < column + columns; ++i) {
      const int64_t position = i - padding_[b];
      const bool is_padding = position < 0;
      int64_t token = c.bos;
      if (!is_padding) {
        // A draft is what the text does not say.
        const size_t at = std::min(static_cast<size_t>(position), sequences_[b].size() - 1);
        token = draft ? (sequences_[b][at] + 1) % c.vocabulary : sequences_[b][at];
      }
      tokens_.push_back(token);
      true_positions_.push_back(is_padding ? optimized::kPadding : position);
      positions_.push_back(is_padding ? optimized::kPadding : position + rope_drift_);
    }
  }
  if (recorder != nullptr) recorder->Expect(true_positions_, columns);
  const optimized::DecoderColumns asked = {
      static_cast<int64_t>(sequences_.size()), columns, tokens_, positions_, layers_, true};
  Demand(decoder_->Forward(asked, recorder, &logits_), "a cache refuses");
}

void PathRun::Trim(int64_t count) {
  for (Cache* cache : layers_) {
    int64_t trimmed = 0;
    Demand(cache->Trim(count, &trimmed), "a cache cannot be trimmed");
    if (trimmed != count) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("a cache trims {} of {} tokens", trimmed, count), "--layout");
    }
  }
  if (storage_.fault == PathFault::kRopeOffset) rope_drift_ += count;
}

void PathRun::Begin(std::span<const float> k, std::span<const float> v, int64_t tokens) {
  KVCHECK_CHECK(sequences_.size() == 1 && begun_ == 0, "one row, which nothing was fed to");
  constexpr int64_t kFloat = sizeof(float);
  const DecoderConfig& c = decoder_->config();
  TokenColumns columns;
  columns.rows = 1;
  columns.kv_heads = c.kv_heads;
  columns.columns = begun_ = tokens;
  columns.k_dim = columns.v_dim = c.head_dim;
  const int64_t layer_elements = c.kv_width() * tokens;
  columns.k_strides = columns.v_strides = {layer_elements * kFloat, tokens * c.head_dim * kFloat,
                                           c.head_dim * kFloat};
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const auto at = layer * static_cast<size_t>(layer_elements);
    columns.k = reinterpret_cast<const std::byte*>(k.data() + at);
    columns.v = reinterpret_cast<const std::byte*>(v.data() + at);
    Demand(layers_[layer]->Append(columns), "a cache refuses what a prefix cache holds");
  }
}

void PathRun::Run(std::span<const PathStep> steps, Recorder* recorder, const OnStep& on_step) {
  int64_t column = begun_;
  for (const PathStep& step : steps) {
    if (step.drafts > 0) {
      Feed(column, step.drafts, true, nullptr);
      Trim(step.drafts);
    }
    Feed(column, step.columns, false, recorder);
    if (recorder != nullptr) recorder->Logits(logits_);
    if (on_step) on_step(true_positions_, step.columns, logits_);
    column += step.columns;
  }
}

}  // namespace kvcheck
