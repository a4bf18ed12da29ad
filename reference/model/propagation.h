// How far the bounds of the single steps may move a difference of two logits of one token, to first
// order: the gradient of the difference with respect to what every step gives, in magnitude, times
// the bound of that step (bound.md, section 4).

#ifndef REFERENCE_MODEL_PROPAGATION_H_
#define REFERENCE_MODEL_PROPAGATION_H_

#include <cstdint>
#include <vector>

#include "reference/model/forward.h"

namespace kvcheck {

// Bounds of the steps of one token. Shapes: per layer q and out (query_heads head_dim), mid and
// next (hidden), inner (intermediate); logits (vocabulary).
struct StepBounds {
  struct Layer {
    std::vector<double> q, out, mid, inner, next;
  };
  std::vector<Layer> layers;
  std::vector<double> logits;
};

// Of logit a - logit b at row `row` of the last chunk of the sequence, K and V given.
double PropagatedError(const DecoderWeights& weights, const DecoderSequence& sequence, int64_t row,
                       int64_t a, int64_t b, const StepBounds& bounds);

}  // namespace kvcheck

#endif  // REFERENCE_MODEL_PROPAGATION_H_
