// Right outputs under incomplete cases: the verdict says with what they would pass. An output that
// is wrong names nothing.

#include "reference/attention/completions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/judge/explain.h"
#include "reference/judge/judge.h"
#include "reference/numerics/convert.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

const std::string kWholeShape = "attention b=2 hq=4 hkv=2 l=6 t=40 d=16 q=bf16 k=bf16 v=bf16 ";

// The answer to `whole`, judged as if it had been asked `asked`, over the inputs of both.
Verdict JudgeIncomplete(const std::string& whole, const std::string& asked,
                        const std::string& plan = "stranger partial=f32") {
  const AttentionCase full = CaseOf(whole), part = CaseOf(asked);
  const TensorMap inputs = GenerateInputs(Case(full), {});
  SimulatedKernel kernel(ParsePlan("plain_f32 p=bf16"), {});
  return Judge(AttentionSource(part, {}, ParsePlan(plan), inputs),
               MemorySink(Answer(&kernel, full, inputs)));
}

std::string PassesWithOf(const Verdict& verdict) {
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  std::string all;
  for (const OutputVerdict& output : verdict.outputs) {
    EXPECT_FALSE(output.seen && output.seen->has_free_numbers) << output.seen->text;
    if (all.empty()) all = output.passes_with;
  }
  return all;
}

struct Incomplete {
  std::string left_out;  // of the case
  std::string said;      // with what it passes
  std::string rest = "out=bf16 data=gauss:3";
  std::string asked = "";  // in place of what was left out
};

TEST(Completions, NameWhatACaseLeftOut) {
  const std::vector<Incomplete> all = {
      {"sinks=f32", "sinks=f32 (input 'sinks' is not in the case)"},
      {"softcap=30", "softcap=30", "out=bf16 scale=4 data=gauss:3"},
      {"softcap=50", "softcap=50", "out=bf16 scale=4 data=gauss:3"},
      {"mask=causal_bottom_right", "mask=causal_bottom_right"},
      {"mask=causal_top_left", "mask=causal_top_left"},
      {"mask=causal_bottom_right", "mask=causal_bottom_right", "out=bf16 data=gauss:3",
       "mask=causal_top_left"},
      {"mask=causal_top_left", "mask=causal_top_left", "out=bf16 data=gauss:3",
       "mask=causal_bottom_right"},
      {"", "mask=none", "out=bf16 data=gauss:3", "mask=causal_bottom_right"},
      {"mask=causal_bottom_right+window:12", "mask=causal_bottom_right+window:12",
       "out=bf16 data=gauss:3", "mask=causal_bottom_right"},
      {"mask=causal_bottom_right+window:17", "mask=causal_bottom_right+window:17",
       "out=bf16 data=gauss:3", "mask=causal_bottom_right"},
      {"mask=causal_bottom_right+window:20", "mask=causal_bottom_right+window:20"},
      {"mask=window:16", "mask=window:16"},
      {"mask=bool:LT", "mask=bool:LT (input 'mask' is not in the case)"},
      {"mask=bool:B11T", "mask=bool:B11T (input 'mask' is not in the case)"},
      {"mask=additive:LT:f32", "mask=additive:LT:f32 (input 'mask' is not in the case)"},
      {"alibi=yes", "alibi=yes (input 'alibi_slopes' is not in the case)"},
      {"scale=1", "scale=1"},
      {"scale=0.0625", "scale=0.0625"},
      {"", "scale=0.25", "out=bf16 data=gauss:3", "scale=0.3"},
      {"lse=base2", "lse=base2", "out=bf16 data=gauss:3", "lse=natural"},
      {"lse=natural", "lse=natural", "out=bf16 data=gauss:3", "lse=base2"},
      {"mask=causal_bottom_right+window:12 sinks=f32",
       "sinks=f32 (input 'sinks' is not in the case) mask=causal_bottom_right+window:12",
       "out=bf16 data=gauss:3", "mask=causal_bottom_right"},
  };
  for (const Incomplete& one : all) {
    // Keys of a case stand in one order.
    const auto text = [&](const std::string& what) {
      std::string line = kWholeShape + one.rest;
      return line.insert(line.find(" data="), what.empty() ? "" : " " + what);
    };
    const Verdict verdict = JudgeIncomplete(text(one.left_out), text(one.asked));
    EXPECT_EQ(PassesWithOf(verdict), one.said) << one.left_out << " asked as " << one.asked;
  }
}

TEST(Completions, NameScalesThatLieBesideTheInputs) {
  const AttentionCase c = CaseOf(kWholeShape + "out=bf16 data=gauss:3");
  TensorMap inputs = GenerateInputs(Case(c), {});
  for (const bool both : {true, false}) {
    for (const int64_t count : {int64_t{1}, c.kv_heads}) {
      TensorMap scaled = inputs;
      for (const std::string name : {"k", "v"}) {
        if (name == "k" && !both) continue;
        Tensor scale(DType::kFloat32, Shape::Unnamed({count}));
        for (int64_t i = 0; i < count; ++i) {
          scale.As<float>()[i] = name == "k" ? 1.75f : 0.37f + 0.25f * static_cast<float>(i);
        }
        // Rounded to bf16 as a kernel has it that dequantizes before it multiplies.
        Tensor& rows = scaled.at(name);
        std::vector<double> values = Decoded(rows);
        const auto of_head = values.size() / static_cast<size_t>(c.batch * c.kv_heads);
        for (size_t i = 0; i < values.size(); ++i) {
          const auto head = static_cast<int64_t>(i / of_head) % c.kv_heads;
          values[i] *= static_cast<double>(scale.As<float>()[count == 1 ? 0 : head]);
        }
        EncodeFrom(values, DType::kBFloat16, rows.bytes.data());
        inputs[name + "_scale"] = std::move(scale);
      }
      SimulatedKernel kernel(ParsePlan("plain_f32 p=bf16"), {});
      const Verdict verdict = Judge(AttentionSource(c, {}, ParsePlan("plain_f32 p=bf16"), inputs),
                                    MemorySink(Answer(&kernel, c, scaled)));
      // What V loses by being rounded is within what P may lose.
      const std::string passes_with = PassesWithOf(verdict);
      EXPECT_TRUE(both ? passes_with ==
                             "K and V times their scales, rounded to bf16 (inputs 'k_scale' and "
                             "'v_scale' are not in the case)"
                       : passes_with == "V times its scale (input 'v_scale' is not in the case)")
          << passes_with;
      inputs.erase("k_scale"), inputs.erase("v_scale");
    }
  }
}

TEST(Completions, NameSequencesThatArePackedOneBehindTheOther) {
  const std::string text = "attention hq=4 hkv=2 l=30 t=30 d=16 q=bf16 k=bf16 v=bf16 out=bf16 ";
  for (const std::string causal : {"", "causal_bottom_right+"}) {
    const AttentionCase c =
        CaseOf(text + (causal.empty() ? "" : "mask=causal_bottom_right ") + "data=gauss:3");
    const AttentionCase packed = CaseOf(text + "mask=" + causal + "bool:LT data=gauss:3");
    TensorMap inputs = GenerateInputs(Case(packed), {});
    for (int64_t l = 0; l < 30; ++l) {
      for (int64_t t = 0; t < 30; ++t) {
        const auto sequence = [](int64_t at) { return at < 7 ? 0 : at < 22 ? 1 : 2; };
        inputs.at("mask").bytes[static_cast<size_t>(l * 30 + t)] =
            static_cast<std::byte>(sequence(l) == sequence(t));
      }
    }
    SimulatedKernel kernel(ParsePlan("plain_f32 p=bf16"), {});
    const TensorMap answer = Answer(&kernel, packed, inputs);
    inputs.erase("mask");
    Tensor starts(DType::kInt32, Shape::Unnamed({4}));
    const int32_t numbers[] = {0, 7, 22, 30};
    std::copy_n(numbers, 4, starts.As<int32_t>());
    inputs["cu_seqlens_q"] = std::move(starts);
    const Verdict verdict = Judge(AttentionSource(c, {}, ParsePlan("stranger partial=f32"), inputs),
                                  MemorySink(answer));
    EXPECT_EQ(PassesWithOf(verdict),
              "3 sequences packed one behind the other (input 'cu_seqlens_q' is not in the case)");
  }
}

TEST(Completions, FindAWindowAmongManyThousandKeys) {
  const std::string text = "attention hq=2 hkv=1 l=1 t=9000 d=32 q=bf16 k=bf16 v=bf16 out=bf16 ";
  for (const int window : {512, 1025, 4096}) {
    const std::string mask = "mask=causal_bottom_right+window:" + std::to_string(window);
    const Verdict verdict =
        JudgeIncomplete(text + mask + " data=gauss:3", text + "data=gauss:3", "plain_f32 p=bf16");
    // Under one query the causal term hides nothing.
    EXPECT_EQ(PassesWithOf(verdict), "mask=window:" + std::to_string(window));
  }
}

// Where each element is inside its bound, and all of them together are not.
TEST(Completions, NameWhatOnlyTheStatisticsSee) {
  int64_t seen = 0;
  for (const std::string keys : {"300", "600", "1200", "2400"}) {
    const std::string text =
        "attention hq=8 hkv=2 l=16 t=" + keys + " d=64 q=bf16 k=bf16 v=bf16 out=bf16";
    const Verdict verdict =
        JudgeIncomplete(text + " sinks=f32 data=gauss:3", text + " data=gauss:3");
    const OutputVerdict& out = verdict.outputs[0];
    EXPECT_TRUE(out.passes_with.empty() || out.passes_with.starts_with("sinks=f32 (input"))
        << out.passes_with;
    seen += out.counts.failed == 0 && !out.passes_with.empty() ? 1 : 0;
  }
  EXPECT_GT(seen, 0);
}

// Its errors are less under many a question, and least as what they are.
TEST(Completions, ATruncatedOutputIsNoSoftcap) {
  ConvertRule cut;
  cut.rounding = Rounding::kTowardZero;
  for (const std::string keys : {"64", "100"}) {
    const AttentionCase c = CaseOf("attention hq=8 hkv=2 l=4 t=" + keys +
                                   " d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:3");
    const TensorMap inputs = GenerateInputs(Case(c), {});
    AttentionCase wide = c;
    wide.out = DType::kFloat32;
    SimulatedKernel kernel(ParsePlan("plain_f32"), {});
    const TensorMap exact = Answer(&kernel, wide, inputs);
    Tensor out(DType::kBFloat16, exact.at("out").shape);
    EncodeFrom(Decoded(exact.at("out")), DType::kBFloat16, out.bytes.data(), cut);
    const Verdict verdict = Judge(AttentionSource(c, {}, ParsePlan("flash_attention_2"), inputs),
                                  MemorySink(TensorMap{{"out", std::move(out)}}));
    EXPECT_EQ(PassesWithOf(verdict), "") << keys;
  }
}

TEST(Completions, NameNothingForAWrongOutput) {
  const AttentionCase c = CaseOf(kWholeShape + "out=bf16 lse=natural data=gauss:3");
  TensorMap inputs = GenerateInputs(Case(c), {});
  Tensor sinks(DType::kFloat32, {{"Hq", c.query_heads}});
  for (int64_t h = 0; h < c.query_heads; ++h) sinks.As<float>()[h] = 1;
  inputs["sinks"] = std::move(sinks);
  SimulatedKernel kernel(ParsePlan("plain_f32 p=bf16"), {});
  const TensorMap right = Answer(&kernel, c, inputs);
  const auto judged = [&](TensorMap answer) {
    const Verdict verdict = Judge(AttentionSource(c, {}, ParsePlan("stranger partial=f32"), inputs),
                                  MemorySink(std::move(answer)));
    return PassesWithOf(verdict);
  };
  // One element, a head of another batch row, and noise of several bounds.
  TensorMap one = right;
  one.at("out").As<uint16_t>()[33] ^= 0x4000;
  EXPECT_EQ(judged(one), "");
  TensorMap head = right;
  std::copy_n(right.at("out").bytes.begin(), 6 * 16 * 2, head.at("out").bytes.end() - 6 * 16 * 2);
  EXPECT_EQ(judged(head), "");
  TensorMap noise = right;
  for (int64_t i = 0; i < noise.at("out").ElementCount(); i += 3) {
    noise.at("out").As<uint16_t>()[i] =
        static_cast<uint16_t>(noise.at("out").As<uint16_t>()[i] + 9);
  }
  EXPECT_EQ(judged(noise), "");
  // Right under sinks, but for the lse of one row.
  AttentionCase with = c;
  with.sinks = DType::kFloat32;
  TensorMap sunk = Answer(&kernel, with, inputs);
  EXPECT_NE(judged(sunk), "");
  sunk.at("lse").As<float>()[5] += 1;
  EXPECT_EQ(judged(sunk), "");
}

}  // namespace
}  // namespace kvcheck
