// Verdicts written by hand, for the reports' tests.

#ifndef TESTS_TOOLS_REPORT_SAMPLE_VERDICTS_H_
#define TESTS_TOOLS_REPORT_SAMPLE_VERDICTS_H_

#include <string>

#include "tools/report/case_result.h"

namespace kvcheck {

// An output of attention with one element far outside its bound.
CaseResult FailedResult();
// The same output within its bound.
CaseResult PassedResult();
CaseResult ResultOf(Outcome outcome, Expectation expectation = Expectation::kPass);

}  // namespace kvcheck

#endif  // TESTS_TOOLS_REPORT_SAMPLE_VERDICTS_H_
