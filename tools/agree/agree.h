// The question of `kvcheck agree`: does a model say the same over quantized caches? Two answers,
// kept apart.
//
//   correctness  every step of the fast path, on its own inputs, is within the bound of its
//                arithmetic; and where its top-1 token is not that of the reference over the same
//                stored bytes, the flip is excused by the reference's margin and the propagated
//                bounds, or it is not
//   quality      how far the format moves what is said from full precision: top-1 agreement, KL,
//                perplexity. Facts of the format, for which nobody needs an excuse
//
// Derivation: reference/model/bound.md.

#ifndef TOOLS_AGREE_AGREE_H_
#define TOOLS_AGREE_AGREE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/model/linear.h"
#include "tools/agree/agree_question.h"
#include "tools/agree/storage_figures.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

struct AgreeReport {
  double reference_bits = 0;  // per token of the text, full precision
  int64_t positions = 0;
  int64_t sequences = 0;
  std::vector<StorageFigures> storages;
  bool interrupted = false;  // it is of what was done until then: no storage, or the last a part

  // FAIL beats MISTRUSTED beats PASS.
  Outcome outcome() const;
};

// stored: null, or given what the reference says over the stored bytes of the only storage, by
// window: (tokens, vocabulary). When it is cancelled (tools/corridor/cancel.h) the report is
// partial, and what is stored too. so_far: told after each storage but the last the report of
// those, as if it had been cancelled then. Errors: those of a text and of storages.
AgreeReport Agree(const AgreeQuestion& question, const Cancel& cancel,
                  std::vector<Matrix>* stored = nullptr,
                  const std::function<void(AgreeReport)>& so_far = {});

}  // namespace kvcheck

#endif  // TOOLS_AGREE_AGREE_H_
