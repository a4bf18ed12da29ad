// The excuse is honest, on the trained model: errors of the declared size flip tokens, and every
// flip is excused; an error of twice the size is found and named.

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "golden/decoder_file.h"
#include "golden/text_file.h"
#include "tests/tools/agree/erring_path.h"
#include "tools/agree/judge_flips.h"
#include "tools/agree/path.h"
#include "tools/agree/storage_figures.h"

namespace kvcheck {
namespace {

const std::string kModel = KVCHECK_SOURCE_DIR "/golden/model";
constexpr int64_t kTokens = 96;

class Excuse : public testing::Test {
 protected:
  Excuse() {
    tokens_.push_back(model_.config.bos);
    for (const char byte : ReadWholeText(kModel + "/held_out.txt", 1 << 20)) {
      if (static_cast<int64_t>(tokens_.size()) == kTokens) break;
      tokens_.push_back(static_cast<unsigned char>(byte));
    }
    optimized::Decoder decoder(model_.config, model_.weights, 1);
    const std::span<const int64_t> rows[] = {tokens_};
    const CacheCapabilities capabilities = PathRun(&decoder, PathStorage(), rows).capabilities();
    plan_ = capabilities.plan;
    steps_.weights = &weights_;
    steps_.profile = capabilities.profile;
    steps_.threads = 2;
    // Arithmetic so coarse that a random direction of its errors moves logits by some hundredths,
    // which is more than the margins of a few tokens in a hundred.
    steps_.arithmetic.u = 0x1p-16;
  }

  std::vector<StepFinding> FindingsOf(const SequenceRecord& record) const {
    std::vector<StepFinding> findings;
    StepCounts counts;
    JudgeSteps(steps_, record, 0, &findings, &counts);
    EXPECT_GT(counts.elements, 0);
    std::sort(findings.begin(), findings.end(), ComesBefore);
    return findings;
  }
  std::vector<Flip> FlipsOf(const SequenceRecord& record) const {
    DecoderSequence reference(weights_, 2);
    const Matrix stored = reference.Forward(tokens_, StoredRowsOf(steps_, record));
    const ChunkFlips flips = JudgeFlips({steps_, record, 0, reference, stored});
    EXPECT_LE(flips.least_share, 1);
    return flips.flips;
  }

  const DecoderFile model_ = ReadDecoderFile(kModel);
  const DecoderWeights weights_{model_.config, model_.weights};
  std::vector<int64_t> tokens_;
  StepQuestion steps_;
  Plan plan_;
};

TEST_F(Excuse, EveryFlipInTenRandomDirectionsOfTheDeclaredErrorsIsExcused) {
  size_t flips = 0;
  for (uint64_t direction = 1; direction <= 10; ++direction) {
    const SequenceRecord record = ErringPath(steps_, direction).Run(tokens_, plan_);
    EXPECT_TRUE(FindingsOf(record).empty()) << "direction " << direction;
    const std::vector<Flip> found = FlipsOf(record);
    flips += found.size();
    for (const Flip& flip : found) {
      EXPECT_TRUE(flip.excused()) << "direction " << direction << ", token " << flip.position
                                  << ": margin " << flip.margin << " of " << flip.propagated;
    }
    EXPECT_LE(static_cast<double>(found.size()), kMostExcused * kTokens);
  }
  // Without a flip nothing was excused, and nothing shown.
  EXPECT_GT(flips, 0u);
}

TEST_F(Excuse, ErrorsOfTwiceTheDeclaredSizeAreFoundInEveryDirection) {
  StepQuestion twice = steps_;
  twice.arithmetic.u *= 2;
  for (uint64_t direction = 1; direction <= 10; ++direction) {
    const std::vector<StepFinding> findings =
        FindingsOf(ErringPath(twice, direction).Run(tokens_, plan_));
    ASSERT_FALSE(findings.empty()) << "direction " << direction;
    EXPECT_EQ(findings.front().outcome, Outcome::kFail);
    EXPECT_EQ(findings.front().layer, 0);
    EXPECT_EQ(findings.front().step, DecoderStep::kQ);
  }
}

TEST_F(Excuse, OneElementThatErrsTwiceAsMuchIsFoundAndNamed) {
  using Step = DecoderStep;
  int64_t layer = 0;
  uint64_t direction = 20;
  for (const Step step :
       {Step::kQ, Step::kK, Step::kV, Step::kMid, Step::kInner, Step::kNext, Step::kLogits}) {
    const DoubledError doubled = {layer++ % model_.config.layers(), step, 17};
    const std::vector<StepFinding> findings =
        FindingsOf(ErringPath(steps_, direction++, doubled).Run(tokens_, plan_));
    ASSERT_EQ(findings.size(), 1u) << Name(step);
    EXPECT_EQ(findings[0].outcome, Outcome::kFail);
    EXPECT_EQ(findings[0].step, step);
    EXPECT_EQ(findings[0].layer, step == Step::kLogits ? model_.config.layers() : doubled.layer);
    EXPECT_EQ(findings[0].token, doubled.token);
  }
}

}  // namespace
}  // namespace kvcheck
