// Two dumps of what engines said over the same text (logits_dump.h), side by side: figures, and,
// where one is asked for, a verdict (judge_dumps.h).

#ifndef TOOLS_AGREE_COMPARE_DUMPS_H_
#define TOOLS_AGREE_COMPARE_DUMPS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"
#include "tools/agree/measures.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

struct DumpQuestion {
  std::string gold, got;
  std::string noise;  // a second dump of the first engine, or ""
  // That a log-probability of either engine may be off by, as stated; nullopt: nothing is stated.
  std::optional<double> logit_error;
  std::optional<double> got_error;  // one of the second engine, beside it
  int threads = 1;                  // nothing but speed depends on it
  bool judge = true;                // else nothing but figures is asked for
  double got_noise = 0;             // of the second engine, measured between two runs of it

  bool JudgesProbabilities() const { return judge && (logit_error || got_error); }
};

struct DumpFlip {
  int64_t position = 0;
  int64_t expected = 0, got = 0;  // tokens
  double margin = 0;              // of the gold, between the two
  bool at_least = false;          // the gold does not have the other token: the margin is not less
  double allowed = 0;             // what errors of both explain
  double by_noise = 0;            // of this, what the noise does
  double by_got = 0;              // beside it, what the second dump says of its own error
  bool excused() const { return margin <= allowed; }
};

// A log-probability that moved by more than errors explain, or may have.
struct DumpChange {
  int64_t position = 0;
  int64_t token = 0;
  double expected = 0, got = 0;  // nats; of what a dump does not list the most that it can have
  double allowed = 0;
};

// What was found at consecutive positions, or at all.
struct DumpFindings {
  std::vector<PositionFigures> positions;
  std::vector<DumpFlip> flips;
  int64_t not_finite = 0;   // positions where a log-probability of `got` is NaN or +inf
  int64_t top_unknown = 0;  // where a list does not say which token is the most likely
  int64_t decided = 0;      // where the gold's margin is above what errors explain
  // Where all log-probabilities of the gold lie within what errors explain, and the first of them:
  // no answer would be a finding.
  int64_t flat = 0;
  int64_t first_flat = 0;
  // Where a log-probability moved by more than errors explain, and the first of them. With what the
  // second dump says of its own error, fewer.
  int64_t changed = 0;
  int64_t changed_beyond_own = 0;
  std::optional<DumpChange> first_change, first_change_beyond_own;
  double largest = 0;   // |difference| of a token that the gold puts first or second
  double rounding = 0;  // the largest that the types of both files explain of a log-probability
  bool same = true;     // every number is the same
  bool within_rounding = true;  // every difference is one that the types of both files explain
  // Some position was not complete in both: what is missing is compared as one token, and KL is a
  // lower bound.
  bool is_lower_bound = false;
  bool has_next = true;  // the text is known: perplexities mean something

  // Of the positions that follow.
  void Append(DumpFindings more);
};

// Of all positions, each of which is left out of `positions`.
struct DumpReport : DumpFindings {
  std::string gold_dump, got_dump;  // descriptions
  AgreementFigures figures;
  int64_t excused = 0;
  int64_t undecided = 0;           // excused only as far as the gold's tokens reach
  std::optional<double> noise;     // the same between the gold and its repetition
  AgreementFigures noise_figures;  // of the gold's repetition beside it
  bool noise_has_next = false;
  bool noise_is_got = false;  // it differs from `got` by no more than their types round
  bool judged = true;
  bool judged_probabilities = false;
  bool one_file = false;
  std::vector<std::string> notes;
  bool interrupted = false;  // all of the above is of the positions that were read
  // Where nothing but figures was asked for, PASS says that they mean something.
  Outcome outcome = Outcome::kPass;
  std::string why;
};

// Errors: kUsage for a noise that is the file of `gold` or `got`; kUnreadableFile; kMissingData
// where one dump has more positions, another vocabulary or another text than the other. When it is
// cancelled the report is of what was read until then.
DumpReport CompareDumps(const DumpQuestion& question, const Cancel& cancel);

// A second dump of several, and what its cache stores.
struct GotDump {
  std::string path;
  std::string cache;           // "q8_0", "q8_0,q4_0", or ""
  std::optional<double> bits;  // per element of it
};

struct DumpsReport {
  std::vector<GotDump> gots;
  std::vector<DumpReport> reports;  // one each; fewer when it was interrupted
  bool interrupted = false;

  // FAIL beats MISTRUSTED beats PASS.
  Outcome outcome() const;
};

// common: what is asked of each of them; its `got` is not looked at. Precondition: not none.
// so_far: told after each but the last the report of those, as if it had been cancelled then.
// Errors: as CompareDumps; kUsage where two of them are one file.
DumpsReport CompareSeveralDumps(const DumpQuestion& common, std::vector<GotDump> gots,
                                const Cancel& cancel,
                                const std::function<void(DumpsReport)>& so_far = {});

// "FILE", or "CACHE=FILE" where no file has that name: CACHE is a format, or K,V, whose bits are of
// rows of head_dim channels; or LABEL@BITS. Errors: kParse for what is none of these.
GotDump ParseGotDump(const std::string& text, int64_t head_dim);

inline constexpr int kDumpSchema = 2;

std::string DumpText(const DumpQuestion& common, const DumpsReport& report);
// Described in tools/agree/README.md.
std::string DumpJson(const DumpQuestion& common, const DumpsReport& report);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_COMPARE_DUMPS_H_
