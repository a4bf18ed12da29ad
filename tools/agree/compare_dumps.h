// Two dumps of what engines said over the same text (logits_dump.h), side by side.

#ifndef TOOLS_AGREE_COMPARE_DUMPS_H_
#define TOOLS_AGREE_COMPARE_DUMPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/measures.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

struct DumpQuestion {
  std::string gold, got;
  std::string noise;       // a second dump of the first engine, or ""
  double logit_error = 0;  // that a log-probability of either engine may be off by, as stated
  double got_error = 0;    // one of the second engine, beside it
  int threads = 1;         // nothing but speed depends on it
};

struct DumpFlip {
  int64_t position = 0;
  int64_t expected = 0, got = 0;  // tokens
  double margin = 0;              // of the gold, between the two
  bool at_least = false;          // the gold does not have the other token: the margin is not less
  double allowed = 0;             // what errors of both explain
  bool excused() const { return margin <= allowed; }
};

struct DumpReport {
  std::string gold, got;  // descriptions
  AgreementFigures figures;
  // Some position was not complete in both: what is missing is compared as one token, and KL is a
  // lower bound.
  bool is_lower_bound = false;
  bool has_next = false;  // the text is known: perplexities mean something
  std::vector<DumpFlip> flips;
  int64_t excused = 0;
  int64_t undecided = 0;        // excused only as far as the gold's tokens reach
  int64_t not_finite = 0;       // positions where a log-probability of `got` is NaN or +inf
  double largest = 0;           // |difference| of a token that the gold puts first or second
  std::optional<double> noise;  // the same between the gold and its repetition
  Outcome outcome = Outcome::kPass;
  std::string why;
};

// Errors: kUnreadableFile; kMissingData where one dump has more positions, another vocabulary or
// another text than the other; Cancelled.
DumpReport CompareDumps(const DumpQuestion& question, const Cancel& cancel);

std::string DumpText(const DumpQuestion& question, const DumpReport& report);
// Described in tools/agree/README.md.
std::string DumpJson(const DumpQuestion& question, const DumpReport& report);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_COMPARE_DUMPS_H_
