#include "tools/agree/agree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "golden/text_file.h"
#include "reference/spec/error.h"
#include "tools/agree/agree_text.h"
#include "tools/agree/compare_dumps.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/prefix_hit.h"
#include "tools/agree/reference_logits.h"
#include "tools/agree/storage_choice.h"

namespace kvcheck {
namespace {

const std::string kModel = KVCHECK_SOURCE_DIR "/golden/model";

// The trained model over the beginning of its held-out text.
AgreeQuestion Ask(const std::vector<std::string>& formats, int64_t positions, int64_t batch = 1,
                  PathFault fault = PathFault::kNone,
                  const std::vector<std::string>& layouts = {"linear"}) {
  AgreeQuestion question;
  question.model = ReadDecoderFile(kModel);
  question.text_path = kModel + "/held_out.txt";
  for (const char byte : ReadWholeText(question.text_path, 1 << 20)) {
    question.text.push_back(static_cast<unsigned char>(byte));
  }
  question.storages = ChooseStorages(formats, layouts, fault, question.model.config.head_dim);
  question.batch = batch;
  question.positions = positions;
  question.threads = 2;
  question.times = false;
  return question;
}

TEST(Agree, TheFastPathAgreesWithTheReferenceOverEveryKindOfFormat) {
  const AgreeQuestion question =
      Ask({"f32", "bf16", "f8e4m3fn", "fp8:e4m3fn:token:bf16", "affine:4:g64:bf16", "q4_0",
           "q8_0,q4_0", "mxfp4:bf16", "nvfp4:bf16",
           "turboquant:4:g64:mlx_vlm:s0:bf16,turboquant:3:g64:mlx_vlm:s1:bf16"},
          160);
  const AgreeReport report = Agree(question, {});
  ASSERT_EQ(report.storages.size(), 10u);
  EXPECT_EQ(report.positions, 160);
  for (const StorageFigures& f : report.storages) {
    SCOPED_TRACE(PrintFormats(f.storage));
    EXPECT_EQ(f.outcome, Outcome::kPass) << f.why;
    EXPECT_EQ(f.flips.size(), 0u);
    // Every step of 160 tokens was judged: at least x, q, k, v, out, ... of 4 layers.
    EXPECT_GT(f.steps.elements, 160 * 4 * (4 * 256 + 704));
    // The largest effect of arithmetic is within what is propagated, and what is propagated says
    // something: it is far below the margin of an ordinary token, some units.
    EXPECT_GT(f.propagated_share, 0);
    EXPECT_LE(f.propagated_share, 1);
    EXPECT_LT(f.propagated_median, 1);
  }
  // Fewer bits say less of the same: 4 bits against 32.
  EXPECT_LT(report.storages[0].quality.kl_mean.value, 1e-6);
  EXPECT_GT(report.storages[4].quality.kl_mean.value, report.storages[1].quality.kl_mean.value);
}

TEST(Agree, RowsOfABatchSayWhatTheySayAlone) {
  const AgreeReport report =
      Agree(Ask({"f16", "affine:4:g64:bf16"}, 400, 3, PathFault::kNone, {"linear", "ring"}), {});
  ASSERT_EQ(report.storages.size(), 4u);
  EXPECT_EQ(report.sequences, 3);
  for (const StorageFigures& f : report.storages) {
    EXPECT_EQ(f.outcome, Outcome::kPass) << f.why;
    ASSERT_EQ(f.noise.size(), 5u);
    for (const NoiseFloor& noise : f.noise) {
      EXPECT_GT(noise.positions, 0);
      // Rows of optimized/attention and optimized/model are batch-invariant.
      EXPECT_EQ(noise.largest, 0) << noise.what;
    }
    ASSERT_TRUE(f.single);
    EXPECT_EQ(f.single->kl_mean.value, f.quality.kl_mean.value);
  }
}

TEST(Agree, BehindAHitInMemoryOrFromDiskAPathSaysWhatItSaysFresh) {
  // Longer than the window of 256, so that a ring begins with evicted tokens.
  const AgreeQuestion question =
      Ask({"f32", "q4_0", "affine:4:g64:bf16"}, 400, 1, PathFault::kNone, {"linear", "ring"});
  optimized::Decoder decoder(question.model.config, question.model.weights, 2);
  const std::vector<int64_t> tokens = WindowsOf(question).front().tokens;
  const std::vector<std::span<const int64_t>> rows = {tokens};
  const auto width = static_cast<size_t>(question.model.config.vocabulary);
  for (const PathStorage& storage : question.storages) {
    SCOPED_TRACE(PrintFormats(storage));
    std::vector<float> fresh;
    PathRun run(&decoder, storage, rows);
    run.Run(TeacherForcedSteps(run.columns(), 100), nullptr,
            [&](std::span<const int64_t>, int64_t, std::span<const float> logits) {
              fresh.insert(fresh.end(), logits.begin(), logits.end());
            });
    BehindHit hit;
    for (const KeptIn place : {KeptIn::kMemory, KeptIn::kDisk}) {
      hit = FeedBehindHit(&decoder, storage, tokens, 128, place);
      // Whole blocks of 16 of the 300 tokens that are kept.
      EXPECT_EQ(hit.hit_tokens, 288);
      EXPECT_EQ(hit.missing_tokens, 0);
      ASSERT_EQ(hit.logits.size(), (tokens.size() - 288) * width);
      EXPECT_TRUE(std::equal(hit.logits.begin(), hit.logits.end(), fresh.begin() + 288 * 256));
    }
    // Other K in the place of the hit say something else.
    const std::vector<float> other(static_cast<size_t>(288 * question.model.config.kv_width()) *
                                   question.model.config.windows.size());
    PathRun wrong(&decoder, storage, rows);
    wrong.Begin(other, other, 288);
    std::vector<float> said;
    wrong.Run(TeacherForcedSteps(wrong.columns() - 288, 128), nullptr,
              [&](std::span<const int64_t>, int64_t, std::span<const float> logits) {
                said.insert(said.end(), logits.begin(), logits.end());
              });
    EXPECT_NE(said, hit.logits);
  }
}

TEST(Agree, ARingSaysWhatAnAskedWindowSays) {
  // Longer than the window of 256, so that the ring evicts.
  const AgreeReport report = Agree(Ask({"q8_0"}, 420, 1, PathFault::kNone, {"linear", "ring"}), {});
  ASSERT_EQ(report.storages.size(), 2u);
  EXPECT_EQ(report.storages[0].outcome, Outcome::kPass) << report.storages[0].why;
  EXPECT_EQ(report.storages[1].outcome, Outcome::kPass) << report.storages[1].why;
  EXPECT_EQ(report.storages[0].quality.kl_mean.value, report.storages[1].quality.kl_mean.value);
  EXPECT_LT(report.storages[1].bytes_per_token, report.storages[0].bytes_per_token);
}

TEST(Agree, WrittenLogitsAreTheReferencesOverTheStoredBytes) {
  AgreeQuestion question = Ask({"q4_0"}, 150, 2);
  std::vector<Matrix> stored;
  const AgreeReport report = Agree(question, {}, &stored);
  const std::vector<TextWindow> windows = WindowsOf(question);
  ASSERT_EQ(stored.size(), 2u);
  const std::vector<Matrix> full = FullPrecisionLogits(question, windows, {});
  const std::string folder = testing::TempDir();
  const std::string gold = folder + "/kvcheck_agree_full.safetensors";
  const std::string got = folder + "/kvcheck_agree_stored.safetensors";
  WriteReferenceLogits(windows, full, gold);
  WriteReferenceLogits(windows, stored, got);
  // What is read back is what was written, sequence after sequence.
  const auto dump = OpenLogitsDump(got);
  TokenDistribution position;
  for (size_t i = 0; i < windows.size(); ++i) {
    for (int64_t t = 0; t < stored[i].rows; ++t) {
      ASSERT_TRUE(dump->Read(&position));
      const std::span<const double> row(stored[i].Row(t), static_cast<size_t>(stored[i].columns));
      ASSERT_EQ(position.log_p[7], row[7] - LogSumExp(row)) << i << ", " << t;
      ASSERT_EQ(position.next, windows[i].next[static_cast<size_t>(t)]);
    }
  }
  EXPECT_FALSE(dump->Read(&position));
  // The path is within its arithmetic of the reference over the same bytes, so the format costs the
  // same, seen from either.
  EXPECT_EQ(report.outcome(), Outcome::kPass);
  DumpQuestion question_of_dumps;
  question_of_dumps.gold = gold;
  question_of_dumps.got = got;
  const DumpReport compared = CompareDumps(question_of_dumps, {});
  EXPECT_EQ(compared.figures.top1.value, report.storages[0].quality.top1.value);
  EXPECT_GT(compared.figures.kl_mean.value, 0);
  std::remove(gold.c_str());
  std::remove(got.c_str());
}

TEST(Agree, AnInterruptedRunReportsWhatItJudged) {
  const AgreeQuestion question = Ask({"f32", "bf16"}, 300);
  const auto run = [&](int64_t calls) {
    int64_t asked = 0;
    return Agree(question, Cancel([&] { return ++asked > calls; }));
  };
  const AgreeReport none = run(0);
  EXPECT_TRUE(none.interrupted);
  EXPECT_EQ(none.storages.size(), 0u);
  EXPECT_THAT(AgreeText(question, none), testing::HasSubstr("interrupted before"));
  // After the reference, and steps of the first storage.
  AgreeReport part;
  int64_t calls = 4;
  while (part.storages.empty() || part.storages[0].quality.positions == 0) part = run(calls++);
  EXPECT_TRUE(part.interrupted);
  ASSERT_EQ(part.storages.size(), 1u);
  EXPECT_TRUE(part.storages[0].interrupted);
  EXPECT_LT(part.storages[0].quality.positions, 300);
  EXPECT_GT(part.storages[0].steps.elements, 0);
  EXPECT_EQ(part.outcome(), Outcome::kMistrusted);
  EXPECT_THAT(AgreeText(question, part), testing::HasSubstr("interrupted, this report is partial"));
  const nlohmann::json written = nlohmann::json::parse(AgreeJson(question, part));
  EXPECT_EQ(written["interrupted"], true);
  EXPECT_EQ(written["storages"][0]["interrupted"], true);
  // Where the work comes to no place that asks: what was told of the storages before.
  std::vector<AgreeReport> told;
  const AgreeReport whole =
      Agree(question, {}, nullptr, [&](AgreeReport report) { told.push_back(std::move(report)); });
  EXPECT_FALSE(whole.interrupted);
  ASSERT_EQ(told.size(), 1u);
  ASSERT_EQ(told[0].storages.size(), 1u);
  EXPECT_TRUE(told[0].interrupted);
  EXPECT_EQ(told[0].storages[0].quality.positions, 300);
  EXPECT_THAT(AgreeText(question, told[0]),
              testing::HasSubstr("partial: 1 of 2 storages, the last of 300 positions"));
}

struct FaultCase {
  PathFault fault;
  int64_t layer;
  DecoderStep step;
  int64_t head;
};

class AgreeFault : public testing::TestWithParam<FaultCase> {};

TEST_P(AgreeFault, FailsAndNamesTheLayer) {
  const FaultCase& c = GetParam();
  const AgreeReport report = Agree(Ask({"q8_0"}, 300, 2, c.fault), {});
  const StorageFigures& f = report.storages.front();
  EXPECT_EQ(report.outcome(), Outcome::kFail);
  ASSERT_TRUE(f.first);
  EXPECT_EQ(f.first->layer, c.layer) << Print(*f.first);
  EXPECT_EQ(f.first->step, c.step) << Print(*f.first);
  if (c.head >= 0) {
    EXPECT_EQ(f.first->head, c.head);
  }
  EXPECT_GE(f.first->token, 0);
  EXPECT_THAT(f.why, testing::HasSubstr("layer"));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, AgreeFault,
    testing::Values(FaultCase{PathFault::kLeftPadding, 2, DecoderStep::kAttention, -1},
                    FaultCase{PathFault::kKScale, 2, DecoderStep::kStoredK, 1},
                    FaultCase{PathFault::kSwappedV, 2, DecoderStep::kStoredV, -1},
                    FaultCase{PathFault::kRopeOffset, 0, DecoderStep::kQ, -1},
                    FaultCase{PathFault::kLastKey, 2, DecoderStep::kAttention, -1}),
    [](const auto& info) { return PrintPath(info.param.fault).substr(sizeof("fault:") - 1); });

TEST(Agree, OnlyTheFaultyLayerFails) {
  const AgreeReport report = Agree(Ask({"f16"}, 130, 1, PathFault::kKScale), {});
  // One head of K, its only layer, one chunk: what follows is judged on what is stored.
  EXPECT_EQ(report.storages.front().steps_failed, 2);
}

TEST(Agree, TheReportIsTheSameInEveryRunAndForAnyNumberOfThreads) {
  AgreeQuestion question = Ask({"q4_0"}, 100);
  const std::string first = AgreeJson(question, Agree(question, {}));
  question.threads = 1;
  EXPECT_EQ(AgreeJson(question, Agree(question, {})), first);
  const auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json["storages"][0]["k"], "q4_0");
  EXPECT_EQ(json["storages"][0]["outcome"], "PASS");
  EXPECT_GT(json["storages"][0]["quality"]["kl_mean"]["value"], 0);
}

TEST(Agree, ATextThatIsTooShortIsRefused) {
  AgreeQuestion question = Ask({"f32"}, 100);
  question.text.resize(99);
  EXPECT_THROW(Agree(question, {}), Error);
}

TEST(Agree, AQuestionOfNothingIsRefused) {
  for (int64_t AgreeQuestion::* field :
       {&AgreeQuestion::batch, &AgreeQuestion::context, &AgreeQuestion::positions}) {
    AgreeQuestion question = Ask({"f32"}, 100);
    question.*field = 0;
    EXPECT_THROW(WindowsOf(question), Error);
  }
}

TEST(Agree, WindowsAreRaggedWithinABatchAndHoldWhatIsAsked) {
  AgreeQuestion question = Ask({"f32"}, 1000, 3);
  question.context = 200;
  const auto windows = WindowsOf(question);
  ASSERT_EQ(windows.size() % 3, 0u);
  size_t positions = 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    EXPECT_EQ(windows[i].tokens.size(), windows[i].next.size());
    EXPECT_EQ(windows[i].tokens.front(), question.model.config.bos);
    EXPECT_EQ(windows[i].tokens[1], windows[i].next[0]);
    if (i % 3 > 0) {
      EXPECT_LT(windows[i].tokens.size(), windows[i - 1].tokens.size());
    }
    positions += windows[i].tokens.size();
  }
  EXPECT_GE(positions, 1000u);
  EXPECT_EQ(windows[0].tokens.size(), 200u);
}

TEST(Flip, IsExcusedWhereArithmeticMayMoveTheMarginBelowZero) {
  Flip flip;
  flip.margin = 0.5;
  flip.propagated = 0.5;
  EXPECT_TRUE(flip.excused());
  flip.propagated = 0.25;
  EXPECT_FALSE(flip.excused());
}

}  // namespace
}  // namespace kvcheck
