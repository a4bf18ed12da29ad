#include "reference/judge/explanation.h"

#include <algorithm>

namespace kvcheck {

Explanation ExplanationOf(const OutputVerdict& output) {
  Explanation explanation;
  explanation.cause = output.cause;
  explanation.left_out = output.passes_with.substr(0, output.passes_with.find('='));
  for (const DeclaredChange& change : output.plan_changes) {
    explanation.words.insert(PrintValues(change));
  }
  return explanation;
}

Explanation ExplanationOf(const Verdict& verdict) {
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.outcome == Outcome::kFail) return ExplanationOf(output);
  }
  return {};
}

bool IsPoorer(const Explanation& other, const Explanation& said) {
  if (!said.cause.empty() && other.cause != said.cause) return true;
  if (!said.left_out.empty() && other.left_out != said.left_out) return true;
  if (said.words.empty()) return false;
  return other.words.empty() || !std::includes(said.words.begin(), said.words.end(),
                                               other.words.begin(), other.words.end());
}

}  // namespace kvcheck
