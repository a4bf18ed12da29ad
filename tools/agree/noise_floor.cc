#include "tools/agree/noise_floor.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "reference/spec/error.h"
#include "tools/agree/measures.h"
#include "tools/agree/prefix_hit.h"

namespace kvcheck {
namespace {

// Coprime to blocks of 16, 64 and 128, so that chunks end anywhere in them.
constexpr int64_t kOtherChunk = 37;

std::vector<double> Doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// A NaN stays.
double Larger(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

}  // namespace

void NoiseFloor::Add(const NoiseFloor& more) {
  positions += more.positions;
  flips += more.flips;
  largest = Larger(largest, more.largest);
  kl_max = Larger(kl_max, more.kl_max);
  missing_tokens += more.missing_tokens;
}

std::vector<std::vector<float>> FeedRows(optimized::Decoder* decoder, const PathStorage& storage,
                                         std::span<const std::span<const int64_t>> rows,
                                         int64_t chunk, const Cancel& cancel) {
  PathRun run(decoder, storage, rows);
  const auto width = static_cast<size_t>(decoder->config().vocabulary);
  std::vector<std::vector<float>> logits(rows.size());
  run.Run(TeacherForcedSteps(run.columns(), chunk), nullptr,
          [&](std::span<const int64_t> positions, int64_t columns, std::span<const float> all) {
            cancel();
            for (size_t i = 0; i < positions.size(); ++i) {
              if (positions[i] == optimized::kPadding) continue;
              const auto from = all.subspan(i * width, width);
              auto& to = logits[i / static_cast<size_t>(columns)];
              to.insert(to.end(), from.begin(), from.end());
            }
          });
  return logits;
}

NoiseFloor Difference(std::string what, int64_t vocabulary, std::span<const float> a,
                      std::span<const float> b) {
  KVCHECK_CHECK(a.size() == b.size(), "logits of as many tokens");
  NoiseFloor noise;
  noise.what = std::move(what);
  const auto width = static_cast<size_t>(vocabulary);
  for (size_t t = 0; t < a.size(); t += width, ++noise.positions) {
    const std::vector<double> x = Doubles(a.subspan(t, width));
    const std::vector<double> y = Doubles(b.subspan(t, width));
    const PositionFigures figures = ComparePosition(x, y, 0);
    noise.flips += figures.same_top1 ? 0 : 1;
    noise.kl_max = Larger(noise.kl_max, figures.kl);
    for (size_t i = 0; i < width; ++i) {
      noise.largest = Larger(noise.largest, std::fabs(x[i] - y[i]));
    }
  }
  return noise;
}

std::vector<NoiseFloor> MeasureNoise(optimized::Decoder* decoder, const PathStorage& storage,
                                     std::span<const int64_t> tokens, int64_t chunk,
                                     const Cancel& cancel) {
  const int64_t vocabulary = decoder->config().vocabulary;
  const auto first_of = [&](std::span<const std::span<const int64_t>> rows, int64_t of_chunk) {
    return std::move(FeedRows(decoder, storage, rows, of_chunk, cancel).front());
  };
  const std::span<const int64_t> alone[] = {tokens};
  const std::vector<float> base = first_of(alone, chunk);
  std::vector<NoiseFloor> noise;
  noise.push_back(Difference(fmt::format("chunks of {}", kOtherChunk), vocabulary, base,
                             first_of(alone, kOtherChunk)));
  const std::span<const int64_t> pair[] = {tokens, tokens.first(tokens.size() - tokens.size() / 3)};
  noise.push_back(
      Difference("a batch of 2, the other row padded", vocabulary, base, first_of(pair, chunk)));
  for (const KeptIn place : {KeptIn::kMemory, KeptIn::kDisk}) {
    cancel();
    const BehindHit hit = FeedBehindHit(decoder, storage, tokens, chunk, place);
    const auto fed = static_cast<size_t>(hit.hit_tokens * vocabulary);
    noise.push_back(Difference(fmt::format("{} tokens of a prefix cache{}", hit.hit_tokens,
                                           place == KeptIn::kDisk ? ", reloaded from disk" : ""),
                               vocabulary, std::span<const float>(base).subspan(fed), hit.logits));
    noise.back().missing_tokens = hit.missing_tokens;
  }
  return noise;
}

}  // namespace kvcheck
