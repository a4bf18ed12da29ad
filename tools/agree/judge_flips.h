// Top-1 tokens of a path that are not those of the reference over the same stored bytes: excused by
// the reference's margin and the propagated bounds of the steps, or not (reference/model/bound.md,
// section 4).

#ifndef TOOLS_AGREE_JUDGE_FLIPS_H_
#define TOOLS_AGREE_JUDGE_FLIPS_H_

#include <cstdint>
#include <vector>

#include "reference/model/forward.h"
#include "tools/agree/judge_steps.h"
#include "tools/agree/recorder.h"

namespace kvcheck {

struct Flip {
  int64_t sequence = 0;
  int64_t position = 0;
  int64_t expected = 0, got = 0;  // tokens
  double margin = 0;              // of the reference, between the two
  double propagated = 0;          // largest change of it that the bounds of the steps allow
  bool excused() const { return margin <= propagated; }
};

// A chunk: the pending tokens of a record, over whose stored bytes the reference has said `stored`.
struct FlipQuestion {
  const StepQuestion& steps;
  const SequenceRecord& record;
  int64_t sequence = 0;              // its number, for flips
  const DecoderSequence& reference;  // the chunk is what it was fed last
  const Matrix& stored;              // (pending, vocabulary)
};

struct ChunkFlips {
  std::vector<Flip> flips;
  // At the token whose margin is the least: what the bounds can move it, and the share of that
  // which the path has moved it. NaN fails every comparison, and so do these.
  double least_propagated = 0;
  double least_share = 0;
};

// Precondition: something is pending.
ChunkFlips JudgeFlips(const FlipQuestion& question);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_JUDGE_FLIPS_H_
