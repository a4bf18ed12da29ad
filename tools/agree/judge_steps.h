// Judges what a recorder holds, step by step: every layer's projections, stored bytes, attention
// and products, each on the implementation's own inputs of that step.

#ifndef TOOLS_AGREE_JUDGE_STEPS_H_
#define TOOLS_AGREE_JUDGE_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"
#include "reference/model/forward.h"
#include "reference/model/propagation.h"
#include "reference/model/steps.h"
#include "reference/spec/profile.h"
#include "tools/agree/recorder.h"

namespace kvcheck {

// The steps in the order in which they are computed.
enum class DecoderStep : uint8_t {
  kQ,
  kK,
  kV,
  kStoredK,
  kStoredV,
  kAttention,
  kMid,
  kInner,
  kNext,
  kLogits
};
inline constexpr int kDecoderSteps = 10;
// "q", "stored k", "attention", ...
std::string_view Name(DecoderStep step);

// A step of one layer that did not pass.
struct StepFinding {
  Outcome outcome = Outcome::kFail;
  int64_t sequence = 0;
  int64_t chunk = 0;  // position of the first token that was judged with it
  int64_t layer = 0;  // the number of layers: the logits
  DecoderStep step = DecoderStep::kQ;
  int64_t head = -1;   // -1: the step has no heads
  int64_t token = -1;  // position of the worst one; -1: not one token's
  std::string message;
  std::vector<std::string> hints;
};
// By sequence and chunk, then in the order of computation.
bool ComesBefore(const StepFinding& a, const StepFinding& b);
std::string Print(const StepFinding& finding);

struct StepCounts {
  int64_t elements = 0;  // judged
  // By DecoderStep: the largest median, over chunks and layers, of bound over mass.
  std::vector<double> bound_share = std::vector<double>(kDecoderSteps);
};

struct StepQuestion {
  const DecoderWeights* weights = nullptr;
  DecoderArithmetic arithmetic;
  Profile profile;
  int threads = 1;
};

// What is pending of the record. sequence: its number, for findings.
void JudgeSteps(const StepQuestion& question, const SequenceRecord& record, int64_t sequence,
                std::vector<StepFinding>* findings, StepCounts* counts);

// The stored K and V of what is pending, decoded, for the reference's forward pass.
std::vector<LayerRows> StoredRowsOf(const StepQuestion& question, const SequenceRecord& record);

// Bounds of the steps of one pending token, on the implementation's inputs.
StepBounds BoundsOf(const StepQuestion& question, const SequenceRecord& record, int64_t row);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_JUDGE_STEPS_H_
