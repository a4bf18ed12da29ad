// What was found of one path over one storage, and the verdict that follows from it.

#ifndef TOOLS_AGREE_STORAGE_FIGURES_H_
#define TOOLS_AGREE_STORAGE_FIGURES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"
#include "tools/agree/judge_flips.h"
#include "tools/agree/judge_steps.h"
#include "tools/agree/measures.h"
#include "tools/agree/noise_floor.h"
#include "tools/agree/path.h"

namespace kvcheck {

// A path on its own, without anybody who watches.
struct PathTimes {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
};

struct StorageFigures {
  PathStorage storage;
  Outcome outcome = Outcome::kPass;
  std::string why;               // where it is not PASS
  bool interrupted = false;      // all of this is of the positions that were judged until then
  double bytes_per_token = 0;    // of all layers' caches, at the end of the longest context
  AgreementFigures quality;      // the path beside the reference in full precision
  AgreementFigures correctness;  // the path beside the reference over the same stored bytes
  std::vector<Flip> flips;       // against the latter
  int64_t excused = 0;
  // At the least certain position of each chunk: |change of the margin| over the propagated bound,
  // and that bound.
  double propagated_share = 0;
  double propagated_median = 0;
  double propagated_largest = 0;
  StepCounts steps;
  int64_t steps_failed = 0;
  int64_t steps_mistrusted = 0;
  std::optional<StepFinding> first;  // the first step that did not pass
  std::vector<NoiseFloor> noise;
  std::optional<PathTimes> times;          // of the batch
  std::optional<PathTimes> single_times;   // of its rows one by one, where there are several
  std::optional<AgreementFigures> single;  // quality of the rows one by one
};

// More flips than this share of all positions cannot be explained one by one: nothing is proved.
inline constexpr double kMostExcused = 0.05;

// Sets outcome and why from the rest. A step or flip that fails comes before what proves nothing.
void Conclude(StorageFigures* figures);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_STORAGE_FIGURES_H_
