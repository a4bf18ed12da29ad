#include "tools/agree/judge_flips.h"

#include <cmath>
#include <span>

#include "reference/model/propagation.h"
#include "tools/agree/measures.h"

namespace kvcheck {
namespace {

int64_t Second(std::span<const double> logits, int64_t top) {
  int64_t second = top == 0 ? 1 : 0;
  for (int64_t i = 0; i < static_cast<int64_t>(logits.size()); ++i) {
    if (i != top && logits[static_cast<size_t>(i)] > logits[static_cast<size_t>(second)]) {
      second = i;
    }
  }
  return second;
}

}  // namespace

ChunkFlips JudgeFlips(const FlipQuestion& q) {
  const DecoderWeights& weights = *q.steps.weights;
  const auto width = static_cast<size_t>(q.stored.columns);
  const auto propagated = [&](int64_t t, int64_t a, int64_t b) {
    return PropagatedError(weights, q.reference, t, a, b, BoundsOf(q.steps, q.record, t));
  };
  const auto said = [&](int64_t t) {
    const float* row = q.record.logits.data() + static_cast<size_t>(t) * width;
    return std::vector<double>(row, row + width);
  };
  ChunkFlips result;
  int64_t closest = 0;
  double least = HUGE_VAL;
  for (int64_t t = 0; t < q.record.pending; ++t) {
    const double* expected = q.stored.Row(t);
    const int64_t top = Top1({expected, width});
    const double margin = expected[top] - expected[Second({expected, width}, top)];
    if (margin < least) least = margin, closest = t;
    const int64_t got = Top1(said(t));
    if (got == top) continue;
    Flip flip;
    flip.sequence = q.sequence;
    flip.position = q.record.first + t;
    flip.expected = top;
    flip.got = got;
    flip.margin = expected[top] - expected[got];
    flip.propagated = propagated(t, top, got);
    result.flips.push_back(flip);
  }
  const double* expected = q.stored.Row(closest);
  const std::vector<double> got = said(closest);
  const int64_t a = Top1({expected, width});
  const int64_t b = Second({expected, width}, a);
  const double change =
      (got[static_cast<size_t>(a)] - got[static_cast<size_t>(b)]) - (expected[a] - expected[b]);
  result.least_propagated = propagated(closest, a, b);
  // What did not move needs no explanation, not even where none is left.
  result.least_share = change == 0 ? 0 : std::fabs(change) / result.least_propagated;
  return result;
}

}  // namespace kvcheck
