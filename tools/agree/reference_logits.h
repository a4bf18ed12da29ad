// What the reference says over a text, and a dump of it that engines are compared with.

#ifndef TOOLS_AGREE_REFERENCE_LOGITS_H_
#define TOOLS_AGREE_REFERENCE_LOGITS_H_

#include <span>
#include <string>
#include <vector>

#include "reference/model/forward.h"
#include "tools/agree/agree_question.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

// In full precision. Shapes: result (tokens, vocabulary). Errors: Cancelled.
Matrix FullPrecisionLogits(const DecoderWeights& weights, const TextWindow& window, int threads,
                           const Cancel& cancel);
// Of all windows of a question.
std::vector<Matrix> FullPrecisionLogits(const AgreeQuestion& question,
                                        std::span<const TextWindow> windows, const Cancel& cancel);

// A safetensors file for --logits, sequence after sequence: `logits` (positions, vocabulary) and
// `next` (positions), and what an engine has to be fed for the same: `tokens` (positions) and
// `sequence` (positions), whose number goes up where the next sequence begins. Errors:
// kUnreadableFile.
void WriteReferenceLogits(std::span<const TextWindow> windows, std::span<const Matrix> logits,
                          const std::string& path);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_REFERENCE_LOGITS_H_
