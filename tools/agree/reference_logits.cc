#include "tools/agree/reference_logits.h"

#include <algorithm>

#include "tools/agree/safetensors_output.h"

namespace kvcheck {
namespace {

// Tokens of one call: no number depends on it, but memory and the wait for a cancel do.
constexpr int64_t kTokensOfACall = 128;

}  // namespace

Matrix FullPrecisionLogits(const DecoderWeights& weights, const TextWindow& window, int threads,
                           const Cancel& cancel) {
  Matrix logits(static_cast<int64_t>(window.tokens.size()), weights.config.vocabulary);
  DecoderSequence sequence(weights, threads);
  for (int64_t t = 0; t < logits.rows; t += kTokensOfACall) {
    cancel();
    const int64_t count = std::min(kTokensOfACall, logits.rows - t);
    const Matrix chunk = sequence.Forward(
        std::span(window.tokens).subspan(static_cast<size_t>(t), static_cast<size_t>(count)));
    std::copy(chunk.values.begin(), chunk.values.end(), logits.Row(t));
  }
  return logits;
}

std::vector<Matrix> FullPrecisionLogits(const AgreeQuestion& question,
                                        std::span<const TextWindow> windows, const Cancel& cancel) {
  const DecoderWeights weights(question.model.config, question.model.weights);
  std::vector<Matrix> logits;
  for (const TextWindow& window : windows) {
    logits.push_back(FullPrecisionLogits(weights, window, question.threads, cancel));
  }
  return logits;
}

void WriteReferenceLogits(std::span<const TextWindow> windows, std::span<const Matrix> logits,
                          const std::string& path) {
  std::string values, next, sequence, tokens;
  int64_t positions = 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    for (const double value : logits[i].values) AppendNumber(value, &values);
    for (size_t t = 0; t < windows[i].tokens.size(); ++t, ++positions) {
      AppendNumber(static_cast<int32_t>(windows[i].next[t]), &next);
      AppendNumber(static_cast<int32_t>(i), &sequence);
      AppendNumber(static_cast<int32_t>(windows[i].tokens[t]), &tokens);
    }
  }
  WriteSafetensors(
      path, {},
      std::vector<OutputTensor>{{"logits", "F64", {positions, logits.front().columns}, values},
                                {"next", "I32", {positions}, next},
                                {"sequence", "I32", {positions}, sequence},
                                {"tokens", "I32", {positions}, tokens}});
}

}  // namespace kvcheck
