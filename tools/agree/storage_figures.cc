#include "tools/agree/storage_figures.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvcheck {

void Conclude(StorageFigures* figures) {
  const auto unexcused = static_cast<int64_t>(figures->flips.size()) - figures->excused;
  const auto say = [&](Outcome outcome, std::string why) {
    if (Combine(figures->outcome, outcome) == figures->outcome) return;
    figures->outcome = outcome;
    figures->why = std::move(why);
  };
  if (figures->steps_failed > 0) say(Outcome::kFail, Print(*figures->first));
  if (unexcused > 0) {
    const auto flip = std::find_if(figures->flips.begin(), figures->flips.end(),
                                   [](const Flip& f) { return !f.excused(); });
    say(Outcome::kFail,
        fmt::format("token {} of sequence {}: top-1 is {} instead of {}, whose margin {:.2g} is "
                    "more than the {:.2g} that arithmetic explains",
                    flip->position, flip->sequence, flip->got, flip->expected, flip->margin,
                    flip->propagated));
  }
  if (!(figures->propagated_share <= 1)) {
    say(Outcome::kFail, fmt::format("a margin moved by {:.3g} times what arithmetic explains",
                                    figures->propagated_share));
  }
  for (const NoiseFloor& noise : figures->noise) {
    if (noise.missing_tokens > 0) {
      say(Outcome::kFail, fmt::format("{}: {} more had been kept and were not found", noise.what,
                                      noise.missing_tokens));
    }
    // Rows of optimized/attention and optimized/model are batch-invariant and a hit is what was
    // computed, so that nothing may differ.
    if (!(noise.largest == 0)) {
      say(Outcome::kFail, fmt::format("{}: a logit differs by {:.3g}", noise.what, noise.largest));
    }
  }
  if (figures->interrupted) {
    say(Outcome::kMistrusted, "it was interrupted, and what was left was not looked at");
  }
  if (figures->steps_mistrusted > 0) say(Outcome::kMistrusted, Print(*figures->first));
  const auto positions = static_cast<double>(figures->correctness.positions);
  if (!(static_cast<double>(figures->excused) <= kMostExcused * positions)) {
    say(Outcome::kMistrusted, fmt::format("{} of {} positions are excused flips", figures->excused,
                                          figures->correctness.positions));
  }
  // Bounds grow with what is computed.
  if (figures->propagated_largest == 0) {
    say(Outcome::kMistrusted, "nothing but zeros was computed, of which no mistake would show");
  }
  if (figures->steps.elements == 0) say(Outcome::kMistrusted, "nothing was judged");
}

}  // namespace kvcheck
