#include "tools/measure/judge_bench.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "reference/spec/error.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/kvcheck.h"
#include "tools/measure/codec_speed.h"
#include "tools/measure/pages.h"

namespace kvcheck {
namespace {

// Errors: kParse; kIllegalCase.
Case DrawnAttention(const std::string& text) {
  Case c = ParseCase(text);
  if (!std::holds_alternative<AttentionCase>(c)) {
    throw Error(ErrorCode::kIllegalCase, "it is no case of attention", text);
  }
  if (DataOf(c).IsFile()) {
    throw Error(ErrorCode::kIllegalCase,
                "its data are drawn here: write data=REGIME:SEED, as data=gauss:1", text);
  }
  return c;
}

// One combination and its rounds.
struct Timed {
  JudgeFigures figures;
  std::vector<double> seconds;
};

void Judge(const Question& question, const MemorySink& answer, const Cancel& cancel, Timed* timed) {
  JudgeOptions options;
  options.rule = timed->figures.rule;
#ifdef __GLIBC__
  // What others have freed is given back, or this one would take it unseen.
  malloc_trim(0);
#endif
  ResidentPeak peak;
  peak.Restart();
  const double start = ThreadSeconds();
  const Verdict verdict = EvaluateCase(question, answer, options, cancel);
  timed->seconds.push_back(ThreadSeconds() - start);
  JudgeFigures& figures = timed->figures;
  if (const auto bytes = peak.Bytes()) {
    figures.resident_peak_bytes = std::max(figures.resident_peak_bytes.value_or(0), *bytes);
  }
  figures.outcome = verdict.outcome;
  figures.elements = 0;
  for (const OutputVerdict& output : verdict.outputs) figures.elements += output.counts.judged;
  figures.rounds = static_cast<int>(timed->seconds.size());
  figures.seconds = Median(timed->seconds);
}

}  // namespace

std::vector<std::string> DefaultJudgeCases() {
  const std::string types = "q=bf16 k=bf16 v=bf16 out=bf16";
  return {
      fmt::format("attention hq=8 hkv=8 l=1 t=512 d=64 {} data=gauss:1", types),
      fmt::format("attention hq=32 hkv=8 l=1 t=8192 d=128 {} data=gauss:1", types),
      fmt::format("attention hq=8 hkv=8 l=128 t=1024 d=128 {} data=gauss:1", types),
      fmt::format("attention hq=8 hkv=8 l=512 t=512 d=128 {} mask=causal_bottom_right data=gauss:1",
                  types)};
}

std::vector<std::string> DefaultJudgePlans() {
  return {"base=torch_cpu_math", "base=flash_attention_2"};
}

std::vector<JudgeFigures> MeasureJudge(
    const JudgeQuestion& question, const Cancel& cancel, Progress* progress,
    const std::function<void(std::vector<JudgeFigures>)>& so_far) {
  for (const std::string& text : question.cases) DrawnAttention(text);
  std::vector<Plan> plans;
  for (const std::string& plan : question.plans) plans.push_back(ParsePlan(plan));
  std::vector<JudgeFigures> measured;
  for (const std::string& text : question.cases) {
    Question asked;
    asked.c = DrawnAttention(text);
    asked.inputs = GenerateCaseInputs(asked.c, asked.profile);
    Settings settings;
    settings.cancelled = [&cancel] { return cancel.IsRequested(); };
    const MemorySink answer(AnswerCase(text, {}, "", settings));
    std::vector<Timed> all;
    for (const Plan& plan : plans) {
      for (const Rule rule : question.rules) {
        Timed& timed = all.emplace_back();
        timed.figures.case_text = Print(asked.c);
        timed.figures.plan = CommandPlan(plan);
        timed.figures.rule = rule;
      }
    }
    const auto figures = [&] {
      std::vector<JudgeFigures> now = measured;
      for (const Timed& timed : all) {
        if (timed.figures.rounds > 0) now.push_back(timed.figures);
      }
      return now;
    };
    for (int round = 0; round < question.rounds; ++round) {
      for (size_t i = 0; i < all.size(); ++i) {
        if (progress != nullptr && progress->IsDue()) {
          progress->Show(fmt::format("round {} of {}: {}, {}, {}", round + 1, question.rounds,
                                     Name(all[i].figures.rule), all[i].figures.plan, text));
        }
        asked.plan = plans[i / question.rules.size()];
        Judge(asked, answer, cancel, &all[i]);
        if (so_far) so_far(figures());
      }
    }
    measured = figures();
  }
  return measured;
}

}  // namespace kvcheck
