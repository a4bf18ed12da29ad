// Who answers a case of a kind, and how one case of a campaign is judged on him: the corridor of
// `kvcheck run` in the form that workers of fuzz and gate call millions of times.

#ifndef TOOLS_CORRIDOR_CASE_JUDGES_H_
#define TOOLS_CORRIDOR_CASE_JUDGES_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/judge.h"
#include "reference/spec/attention_space.h"
#include "reference/spec/cache_space.h"
#include "reference/spec/case_kind.h"
#include "reference/spec/codec_space.h"
#include "reference/spec/implementation.h"
#include "reference/spec/prefix_space.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/case_judge.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

// An implementation of one kind of case, as --impl names it.
struct Answerer {
  CaseKind kind = CaseKind::kCache;
  std::string name;
  std::string version;
  std::string title;  // what it calls itself: the name, of an implementation in this program
  // As in Capabilities.
  bool foreign = false;
  Conventions conventions = Conventions::kAsAsked;
  // What it has of its kind, for drawing; empty: everything.
  std::vector<CacheSpace> cache_spaces{};
  std::vector<AttentionSpace> attention_spaces{};
  std::vector<CodecSpace> codec_spaces{};
  std::vector<PrefixSpace> prefix_spaces{};
  std::vector<std::string> warnings{};
  // What its profile and its spaces take out (left_open.h); empty of those in this program.
  std::vector<std::string> left_open{};
  std::vector<std::string> not_asked{};

  // "optimized 1", "mlx-lm 0.32.2 (adapters/mlx-lm/run)".
  std::string Shown() const;
  // What a command tells before anything else, of a process of its own: which version of whose
  // library is judged, unless quiet, and what it warns of.
  std::vector<std::string> Notices(std::string_view command, bool quiet) const;
};

// name "": the default of the kind.
// Errors: kUsage where the implementation does not exist, or has not the kind; Cancelled.
Answerer FindAnswerer(CaseKind kind, const std::string& name, const Cancel& cancel = {});
// Whether a kind has an implementation of this name.
bool HasAnswerer(CaseKind kind, const std::string& name, const Cancel& cancel = {});

// Whether the case is among those that the implementation says it has; true where it says nothing.
bool IsInSpaces(const Answerer& answerer, const Case& c);

// options: of Explain; Judge takes no statistics and explains what fails alone. limit: since the
// last progress of an implementation in a process of its own.
std::unique_ptr<CaseJudge> MakeCaseJudge(const Answerer& answerer, const JudgeOptions& options,
                                         std::chrono::milliseconds limit,
                                         const Cancel& cancel = {});

// What a case of attention or of a codec asks of the named implementation, under the plan and
// profile that judge its answer. Errors: kParse; those of GenerateCaseInputs.
Question QuestionOf(const CaseEntry& entry, const std::string& implementation);
// What broke, the same for failures with one cause: "attention out bound: one older key visible",
// "codec encode affine:4 codes bytes". And the sentence about the element that decided it.
std::string SignatureOf(const Case& c, const Verdict& verdict);
std::string ReasonOf(const Verdict& verdict);

// "kvcheck run '...' --impl optimized".
std::string RunCommand(const CaseEntry& entry, const Answerer& answerer);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_CASE_JUDGES_H_
