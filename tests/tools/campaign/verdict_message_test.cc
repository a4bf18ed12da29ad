#include "tools/campaign/verdict_message.h"

#include <gtest/gtest.h>

#include <limits>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

SignedVerdict Sample() {
  SignedVerdict judged;
  judged.signature = "attention out bound";
  Verdict& verdict = judged.verdict;
  verdict.outcome = Outcome::kFail;
  verdict.reasons = {"one", "two"};
  verdict.elements = 24;
  verdict.of_operations = true;
  verdict.warnings = {"careful"};
  verdict.assumptions = {"exp_error=2^-20"};
  verdict.case_text = "attention ...";
  verdict.plan = "base=plain_f32";
  verdict.profile = "masked_row=nan";
  verdict.implementation = "simulated 1";
  verdict.command = "kvcheck run";
  OutputVerdict output;
  output.name = "out";
  output.outcome = Outcome::kFail;
  output.reasons = {"over the bound"};
  output.rule = "derived bound";
  output.dtype = DType::kBFloat16;
  output.shape = "B=1";
  output.counts = {100, 90, 80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  output.special_lines = {"1 NaN"};
  output.median_bound_share = 0.25;
  output.warnings = {"w"};
  output.cause = "c";
  output.rows_with_inputs = 9;
  output.blind_rows = 8;
  output.blind_where = "b=0 hq=1";
  output.hints = {"h"};
  output.plan_changes = {{false, {{"p", "f32", "bf16", "P were rounded to bf16"}}},
                         {true, {{"encode", "mlx_cpu", "mlx_gpu", "", true}}}};
  output.changes_rows = 256;
  output.changes_of_rows = 1000;
  output.with_share = 90;
  output.pass_as_zero = 4;
  output.metrics.finite = 89;
  output.metrics.not_finite = 1;
  output.metrics.max_abs = 0.5;
  output.metrics.ulp_histogram[3] = 7;
  output.metrics.cosine = 0.75;
  output.metrics.bound_ratio.q99 = 12;
  output.metrics.passing_factor = 13;
  output.breakdown = {"b"};
  output.rows_at = {1, 2, 3, 4};
  ElementReport worst;
  worst.element = 7;
  worst.coordinates = "[b=0]";
  worst.expected = 0.1;
  worst.expected_low = 1e-20;
  worst.got = std::numeric_limits<double>::infinity();
  worst.expected_text = "0.1";
  worst.got_text = "inf";
  worst.error = -0.0;
  worst.bound = 0x1p-1074;
  worst.reference_bound = 1;
  worst.mass = 2;
  worst.ratio = 3;
  worst.terms = {{"P.V", 1, 0.5}, {"scores", 2, 0.5}};
  worst.precision = Precision::kOracle50;
  output.worst = worst;
  verdict.outputs = {output, OutputVerdict()};
  verdict.outputs[1].basic_metrics = true;
  return judged;
}

TEST(VerdictMessage, CarriesWhatDecided) {
  const SignedVerdict got = DecodeVerdict(Encode(Sample()));
  EXPECT_EQ(got.signature, Sample().signature);
  EXPECT_EQ(got.verdict, Sample().verdict);
}

TEST(VerdictMessage, CutMessagesAreRefused) {
  const Message message = Encode(Sample());
  for (size_t size = 0; size < message.size(); ++size) {
    EXPECT_THROW(
        DecodeVerdict(Message(message.begin(), message.begin() + static_cast<int64_t>(size))),
        Error)
        << size;
  }
  Message longer = message;
  longer.push_back(std::byte{0});
  EXPECT_THROW(DecodeVerdict(longer), Error);
}

}  // namespace
}  // namespace kvcheck
