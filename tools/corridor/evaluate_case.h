// One case from question to verdict: which source of expected values answers it, and the judge's
// call. Every command that judges goes through here.

#ifndef TOOLS_CORRIDOR_EVALUATE_CASE_H_
#define TOOLS_CORRIDOR_EVALUATE_CASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "reference/attention/row_sums.h"
#include "reference/judge/judge.h"
#include "reference/spec/case.h"
#include "reference/spec/implementation.h"
#include "reference/spec/implementation_loss.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

// The plan of implementations of which nothing is known.
inline constexpr const char* kStrangerPlan = "base=stranger";

// What a case came to whose implementation was lost.
Outcome OutcomeOf(LossKind kind);

// What is asked and how the answer says that it was computed.
struct Question {
  Case c;
  TensorMap inputs;
  Plan plan = ParsePlan(kStrangerPlan);
  Profile profile;
  DeviceSums device_sums{};  // of attention; empty: everything is evaluated here
};

// The expected values of a question, which must outlive them.
// Errors: kMissingData, kIllegalCase, kUnsupported.
std::unique_ptr<ExpectedSource> MakeExpected(const Question& question);

// Judges observed. The verdict carries the case, plan and profile; name, implementation and command
// are the caller's. The plan is printed only where the case has one (attention).
// Errors: as MakeExpected; Cancelled.
Verdict EvaluateCase(const Question& question, const ObservedSource& observed, JudgeOptions options,
                     const Cancel& cancel = {});

// The directions of a list by commas, of "standard" (all) or "none"; "": standard where strict and
// by statistics, else none. Errors: kUsage for a name that is none, and for a list where the bound
// alone is asked, which does not say what it could not see.
std::vector<std::string> MustSee(const std::string& list, bool strict, Rule rule);

// A plan as a command names it: "base=NAME" when it is a known plan unchanged, else its fields.
std::string CommandPlan(const Plan& plan);

// " --rule bound --rows 4096 --rows-seed 7": the options of a command that repeats a verdict; "":
// the default ones.
std::string JudgeArguments(const JudgeOptions& options);

// Whether judging a case takes so long that threads share one, and not several of them: of what is
// not large one thread judges some in a second.
bool IsLarge(const Case& c);

// Inputs of a case whose data are generated. Errors: kMissingData for data=file; kUnsupported when
// they would not fit the memory of this machine.
TensorMap GenerateCaseInputs(const Case& c, const Profile& profile);

// Refuses tensors which this machine cannot hold. Errors: kUnsupported.
void CheckFitsMemory(double bytes, const std::string& what);

// A stranger's message as part of a signature: short, and numbers as '#'.
std::string WithoutNumbers(std::string_view message);

// What an implementation answers; nullopt when it declines the case. Errors: Cancelled.
std::optional<MemorySink> Answer(Implementation& implementation, const Question& question,
                                 const Cancel& cancel = {});

// Whether the plan and the profile of a question are what the implementation says, so that an
// answer may say something else. What the question names itself stands, whatever an answer says.
struct StatedBySelf {
  bool plan = false;
  bool profile = false;
  // Conventions that the question is about, as a profile's text: an answer that states others is of
  // an implementation that has not what is asked for, and UNSUPPORTED.
  std::string conventions{};
};

// Asks and judges: UNSUPPORTED where `name` declines the case; CRASHED, TIMED_OUT or FAIL where its
// process was lost, with *loss as the signature; FAIL where an answer states a plan that cannot be.
// Errors: as MakeExpected; Cancelled.
Verdict AskAndJudge(Implementation& implementation, const std::string& name, Question question,
                    const StatedBySelf& stated, const JudgeOptions& options,
                    std::string* loss = nullptr, const Cancel& cancel = {});

// Stops judging at the next tile once that was requested. Both outlive it.
class CancellableSource : public ExpectedSource {
 public:
  CancellableSource(const ExpectedSource& source, const Cancel& cancel)
      : source_(source), cancel_(cancel) {}
  const std::vector<OutputInfo>& Outputs() const override { return source_.Outputs(); }
  int64_t TileCount() const override { return source_.TileCount(); }
  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override;
  Precision FinestPrecision() const override { return source_.FinestPrecision(); }
  std::vector<int64_t> UnusualRows(int output, int64_t most) const override {
    return source_.UnusualRows(output, most);
  }
  std::vector<OtherReading> OtherReadings(int output) const override {
    return source_.OtherReadings(output);
  }
  std::shared_ptr<const SeenKeys> Seen(int output, const RowsToExplain& rows) const override {
    return source_.Seen(output, rows);
  }
  std::vector<OtherReading> Completions(int output, int64_t row,
                                        std::span<const double> got) const override {
    return source_.Completions(output, row, got);
  }
  std::vector<std::string> Assumptions() const override { return source_.Assumptions(); }

 private:
  const ExpectedSource& source_;
  const Cancel& cancel_;
};

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_EVALUATE_CASE_H_
