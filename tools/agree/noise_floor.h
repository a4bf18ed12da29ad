// The same path fed otherwise: how far its logits differ when the same tokens come in other chunks,
// beside another row, or behind what a cache across requests has kept of them.

#ifndef TOOLS_AGREE_NOISE_FLOOR_H_
#define TOOLS_AGREE_NOISE_FLOOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/agree/path.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

struct NoiseFloor {
  std::string what;  // "chunks of 37"
  int64_t positions = 0;
  int64_t flips = 0;
  double largest = 0;  // of |logit - logit|; NaN where one is no number
  double kl_max = 0;
  int64_t missing_tokens = 0;  // that a cache across requests had kept and did not find

  // Of other positions.
  void Add(const NoiseFloor& more);
};

// Logits that the path says of each row, (tokens, vocabulary). Errors: those of PathRun; Cancelled.
std::vector<std::vector<float>> FeedRows(optimized::Decoder* decoder, const PathStorage& storage,
                                         std::span<const std::span<const int64_t>> rows,
                                         int64_t chunk, const Cancel& cancel);

// Shapes: both (tokens, vocabulary), of as many tokens.
NoiseFloor Difference(std::string what, int64_t vocabulary, std::span<const float> a,
                      std::span<const float> b);

// chunk: tokens of a prefill step in the run that the others are compared with.
// Errors: as FeedRows and FeedBehindHit.
std::vector<NoiseFloor> MeasureNoise(optimized::Decoder* decoder, const PathStorage& storage,
                                     std::span<const int64_t> tokens, int64_t chunk,
                                     const Cancel& cancel);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_NOISE_FLOOR_H_
