// kvcheck bench judge: what judging attention costs, by case, plan and rule.

#include <iostream>
#include <memory>
#include <string>

#include "reference/spec/error.h"
#include "tools/kvcheck/bench_run.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_text.h"
#include "tools/measure/judge_bench.h"
#include "tools/report/output_file.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

struct BenchJudgeOptions {
  JudgeQuestion question;
  std::string json;
};

int BenchJudge(const BenchJudgeOptions& options) {
  const JudgeQuestion& question = options.question;
  const auto write = [&](const Measured<JudgeFigures>& measured) {
    if (!options.json.empty()) {
      WriteOutput(options.json, JudgeBenchJson(question, measured.figures, measured.interrupted));
    }
    if (options.json != "-") {
      std::cout << JudgeBenchText(question, measured.figures, measured.interrupted) << std::flush;
    }
  };
  ReportOnce<Measured<JudgeFigures>> report({{}, true}, write);
  return Measure<JudgeFigures>(&report, write, [&](Progress* progress, const auto& so_far) {
    return MeasureJudge(question, OnInterrupt(), progress, so_far);
  });
}

}  // namespace

void AddBenchJudgeCommand(CLI::App* bench, ChosenCommand* chosen) {
  auto options = std::make_shared<BenchJudgeOptions>();
  JudgeQuestion* question = &options->question;
  question->cases = DefaultJudgeCases();
  question->plans = DefaultJudgePlans();
  CLI::App* command = bench->add_subcommand(
      "judge", "Processor time and memory of judging attention, by case, plan and rule");
  command->footer(
      "What is judged are answers of kvcheck's own kernel, on one thread. Exit code 0 says that "
      "it\n"
      "was measured. Beside numpy's attention in double: bench/python/judge_cost.py --beside "
      "numpy.\n"
      "Example: kvcheck bench judge --plan base=vllm_triton --case 'attention hq=8 hkv=8 l=1 "
      "t=4096 "
      "d=128\n  q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:1'");
  command
      ->add_option(
          "--case", question->cases,
          "A case of attention whose data are drawn; repeatable (default: two of decoding, "
          "two of prefill)")
      ->type_name("CASE")
      ->allow_extra_args(false);
  command
      ->add_option("--plan", question->plans,
                   "How the kernel computes; repeatable (default: torch_cpu_math, "
                   "flash_attention_2)")
      ->type_name("PLAN")
      ->allow_extra_args(false);
  command->add_option("--rounds", question->rounds, "Rounds, whose median is shown")
      ->transform(Decimal())
      ->check(CLI::Range(1, 10000))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--json", options->json,
                   "Write a JSON report to FILE; - is standard output, in place of the text")
      ->type_name("FILE");
  command->callback([=] { *chosen = [=] { return BenchJudge(*options); }; });
}

}  // namespace kvcheck
