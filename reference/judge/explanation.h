// What the explanation of a failing verdict comes to, for comparing failures: a smaller case whose
// failure is explained worse is no better case.

#ifndef REFERENCE_JUDGE_EXPLANATION_H_
#define REFERENCE_JUDGE_EXPLANATION_H_

#include <set>
#include <string>

#include "reference/judge/verdict.h"

namespace kvcheck {

struct Explanation {
  std::string cause;     // OutputVerdict::cause
  std::string left_out;  // the word of passes_with: its value may follow the sizes of the case
  std::set<std::string> words;  // of plan_changes: "p=bf16"
  bool empty() const { return cause.empty() && left_out.empty() && words.empty(); }
  bool operator==(const Explanation&) const = default;
};

// Of the first output that fails; empty where none does.
Explanation ExplanationOf(const Verdict& verdict);
Explanation ExplanationOf(const OutputVerdict& output);

// Whether `other` says less of a failure than `said`, or something else: another cause or none,
// another word that was left out or none, no word of the plan, or one that `said` does not name.
bool IsPoorer(const Explanation& other, const Explanation& said);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_EXPLANATION_H_
