// The report for people. A case that passed is one line; any other one shows, in this order, the
// worst element, what explains it, where the failures are, the bound with its rule, warnings, and
// the command that reproduces it. Everything else follows where it is asked for: counts, maps,
// special values, metrics, statistics, sensitivity, plan and profile.

#ifndef TOOLS_REPORT_TEXT_REPORT_H_
#define TOOLS_REPORT_TEXT_REPORT_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>

#include "tools/report/case_result.h"
#include "tools/report/summary.h"

namespace kvcheck {

struct TextOptions {
  // Nothing about cases that are as they should be, unless something is to be said about how they
  // were judged: a rule that is looser than it need be.
  bool quiet = false;
  bool verbose = false;  // everything that is known, of these too
  bool strict = false;
  // Cases of each outcome shown in detail, and lines of any one list of a case. Nothing is left out
  // silently.
  int64_t max_print = 10;
  bool blocks = false;  // UTF-8 shades in heat maps
  bool colour = false;  // of the first word of a headline, for a terminal
  // What failed is written as it comes, everything else behind it.
  bool failures_first = false;
};

// "FAIL  gqa/mlx  out[b=1, hq=3, l=0, dv=17]: got 0.53, expected 0.5, error 3.1e-2 is 412 x the
// bound 7.5e-5": one line, without a line end.
std::string Headline(const CaseResult& result, const TextOptions& options);

// The headline with its first word coloured, where the options say so: what is as it should be
// green, a failure red, anything else yellow.
std::string ShownHeadline(const CaseResult& result, const TextOptions& options);

// The headline and, unless the result is as it should be, what explains it (verbose: everything).
std::string CaseText(const CaseResult& result, const TextOptions& options);

class TextReport {
 public:
  // out must outlive the report.
  TextReport(const TextOptions& options, std::ostream& out) : options_(options), out_(out) {}
  void Add(const CaseResult& result);
  // What was left out, and the counts.
  void Finish(const Summary& summary);

 private:
  TextOptions options_;
  std::ostream& out_;
  std::string held_;  // behind what fails
  std::map<std::pair<Standpoint, Outcome>, int64_t> detailed_;
  int64_t left_out_ = 0;
};

}  // namespace kvcheck

#endif  // TOOLS_REPORT_TEXT_REPORT_H_
