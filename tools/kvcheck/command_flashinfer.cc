// kvcheck flashinfer: what FlashInfer dumped of its calls.

#include <memory>

#include "tools/flashinfer/judge_dump.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/run_report.h"

namespace kvcheck {
namespace {

struct FlashInferOptions {
  CommonOptions common;
  FlashInferQuestion question;
};

int JudgeFlashInfer(const CommonOptions& common, FlashInferQuestion question) {
  common.Check();
  question.settings.strict = common.text.strict;
  question.settings.rule = common.rule;
  question.settings.must_see = common.must_see;
  question.settings.threads = common.threads;
  question.settings.sample_rows = common.sample_rows;
  question.settings.sample_seed = common.sample_seed;
  question.settings.cancelled = [] { return IsInterruptRequested(); };
  question.arguments = common.JudgeArguments();
  RunReport report("flashinfer", common);
  report.WatchInterrupts();
  JudgeDump(question, &report);
  return report.Finish();
}

}  // namespace

void AddFlashInferCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<FlashInferOptions>();
  CLI::App* command = app->add_subcommand(
      "flashinfer", "Judge the calls that FlashInfer dumped: attention by its own arguments");
  command->footer(
      "DUMPDIR is what FLASHINFER_DUMP_DIR named at FLASHINFER_LOGLEVEL=10 with\n"
      "FLASHINFER_DUMP_SAFETENSORS=1. Judged are single_decode_with_kv_cache,\n"
      "single_prefill_with_kv_cache, and run() of BatchDecodeWithPagedKVCacheWrapper,\n"
      "BatchPrefillWithPagedKVCacheWrapper and BatchPrefillWithRaggedKVCacheWrapper, with the "
      "tables\n"
      "of the wrapper's last plan() before it. Other functions are UNSUPPORTED, by name; a call\n"
      "without outputs is CRASHED. Files of torch.save are not read.");
  FlashInferQuestion* question = &options->question;
  command->add_option("DUMPDIR", question->folder, "The folder of a dump")->required();
  command
      ->add_option("--include,--only", question->include,
                   "Only calls whose function, or folder, matches; repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_option("--plan", question->plan,
                      "How the kernels compute (default: what is known of the function's kernel, "
                      "flashinfer_prefill or flashinfer_decode)");
  command->add_option("--profile", question->profile, "Which conventions they follow");
  AddCommonOptions(command, &options->common);
  AddRowsOptions(command, &options->common);
  command->callback(
      [=] { *chosen = [=] { return JudgeFlashInfer(options->common, options->question); }; });
}

}  // namespace kvcheck
