#include "reference/formats/turboquant_writers.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvcheck {

std::vector<SignsChange> OtherSigns(int64_t seed, std::string_view drawn, bool rotations) {
  // mlx-vlm: K and V, and the high halves of both; 42 is what people choose; and one seed off.
  std::vector<int64_t> seeds = {0, 1, 97, 98, 42};
  if (seed >= 0) seeds.insert(seeds.end(), {seed - 1, seed + 1});
  std::vector<SignsChange> changes;
  std::vector<int64_t> seen = {seed, -1};
  for (const int64_t other : seeds) {
    if (std::find(seen.begin(), seen.end(), other) != seen.end()) continue;
    seen.push_back(other);
    changes.push_back({fmt::format("the {} of seed {}", drawn, other), other});
  }
  if (!rotations) return changes;
  if (seed != TurboquantFormat::kPlainHadamard) {
    changes.push_back({"no random signs", TurboquantFormat::kPlainHadamard});
    changes.push_back(
        {"the signs after the Hadamard transform", seed, TurboquantBasis::kSignsLast});
  }
  changes.push_back({"rows that are not rotated", seed, TurboquantBasis::kNotRotated});
  return changes;
}

std::string CentroidsName(TurboquantCodebook codebook) {
  return fmt::format("the centroids of {}", NameOf(codebook));
}

std::vector<TurboquantCodebook> OtherCodebooks(TurboquantCodebook codebook) {
  std::vector<TurboquantCodebook> others;
  for (const TurboquantCodebook other :
       {TurboquantCodebook::kExact, TurboquantCodebook::kMlxVlm, TurboquantCodebook::kVllm}) {
    if (other != codebook) others.push_back(other);
  }
  return others;
}

}  // namespace kvcheck
