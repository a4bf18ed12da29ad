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
#include <optional>
#include <string>
#include <vector>

#include "golden/decoder_file.h"
#include "reference/judge/verdict.h"
#include "reference/model/linear.h"
#include "tools/agree/judge_steps.h"
#include "tools/agree/measures.h"
#include "tools/agree/path.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

// More flips than this share of all positions cannot be explained one by one: nothing is proved.
inline constexpr double kMostExcused = 0.05;

struct AgreeQuestion {
  DecoderFile model;
  std::string text_path;
  std::vector<int64_t> text;  // tokens
  std::vector<PathStorage> storages;
  int64_t batch = 1;       // rows of a batch, each a sequence, ragged
  int64_t context = 2048;  // tokens of the longest sequence, BOS included
  int64_t positions = 2048;
  int64_t chunk = 128;  // tokens of a prefill step
  int threads = 1;
  bool times = true;
};

// A path on its own, without anybody who watches.
struct PathTimes {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
};

// How far the logits of one path differ from those of the same path fed otherwise.
struct NoiseFloor {
  std::string what;  // "chunks of 17"
  int64_t positions = 0;
  int64_t flips = 0;
  double largest = 0;  // of |logit - logit|
  double kl_max = 0;
};

// A flip against the reference over the same stored bytes.
struct Flip {
  int64_t sequence = 0;
  int64_t position = 0;
  int64_t expected = 0, got = 0;  // tokens
  double margin = 0;              // of the reference, between the two
  double propagated = 0;          // largest change of it that the bounds of the steps allow
  bool excused() const { return margin <= propagated; }
};

struct StorageFigures {
  PathStorage storage;
  Outcome outcome = Outcome::kPass;
  std::string why;               // where it is not PASS
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

struct AgreeReport {
  double reference_bits = 0;  // per token of the text, full precision
  int64_t positions = 0;
  int64_t sequences = 0;
  std::vector<StorageFigures> storages;

  // FAIL beats MISTRUSTED beats PASS.
  Outcome outcome() const;
};

// The tokens of sequence `index`, BOS first, and those that follow each of them.
struct TextWindow {
  std::vector<int64_t> tokens, next;
};
// Batches of sequences of `context` tokens and less and less (ragged), as many as hold at least
// `positions`; shorter ones where a single batch would hold more.
// Errors: kSelection where the text is shorter than the positions that are asked for.
std::vector<TextWindow> WindowsOf(const AgreeQuestion& question);

// stored: null, or given what the reference says over the stored bytes of the only storage, by
// window: (tokens, vocabulary). Errors: those of a text and of storages; Cancelled
// (tools/corridor/cancel.h).
AgreeReport Agree(const AgreeQuestion& question, const Cancel& cancel,
                  std::vector<Matrix>* stored = nullptr);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_AGREE_H_
