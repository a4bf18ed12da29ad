// A case whose inputs and outputs lie in files without the schema, from its texts to its verdict.

#ifndef TOOLS_COMPARE_FILE_CASE_H_
#define TOOLS_COMPARE_FILE_CASE_H_

#include <optional>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"
#include "reference/spec/case.h"
#include "tools/compare/case_tensors.h"
#include "tools/compare/compare_question.h"
#include "tools/compare/compare_two_plans.h"
#include "tools/corridor/stored_tensors.h"
#include "tools/report/case_result.h"

namespace kvcheck {

class FileCase {
 public:
  // asked: case, plan, profile, gold plan, choice of tensors and files (one, inputs and outputs, or
  // GOLD and GOT). No file is read.
  // Errors: kParse; kIllegalCase; kSelection for a choice of a tensor that the case lacks; kUsage.
  explicit FileCase(CompareQuestion asked);

  const Case& c() const { return c_; }
  const CompareQuestion& asked() const { return asked_; }
  // What is known before it is judged: the text, who answers, the command that repeats it.
  CaseResult Shown() const;
  // Errors: kUnsupported for a file of several packed sequences.
  void CheckFiles(const StoredFile& first, const StoredFile* second) const;
  // second: where there is one. notes: what was taken otherwise than as the case has it, which is
  // said where it cannot be judged, too.
  // Errors: those of CaseTensors, CheckFiles and EvaluateCase; Cancelled.
  Verdict Judge(const StoredFile& first, const StoredFile* second, int threads,
                std::vector<std::string>* notes) const;

 private:
  Verdict Judged(const StoredFile& first, const StoredFile* second, int threads,
                 CaseTensors* tensors) const;
  TwoPlansQuestion TwoPlans() const;

  CompareQuestion asked_;
  Case c_;
  TensorChoices choices_;
};

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_FILE_CASE_H_
