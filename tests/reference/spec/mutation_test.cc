// Whatever bytes arrive, a parser either accepts them (and then its print parses back to the equal
// value) or throws kvcheck::Error: every prefix, every single-byte substitution, every deletion and
// duplication of a byte, and random splices, over a corpus of valid lines.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {
namespace {

enum class Outcome { kParsed, kRefused };

template <typename T>
Outcome Try(const std::string& text, const std::function<T(std::string_view)>& parse) {
  T value;
  try {
    value = parse(text);
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    return Outcome::kRefused;
  }
  // Outside the try: the print of what was accepted must be accepted.
  EXPECT_TRUE(parse(Print(value)) == value) << text;
  return Outcome::kParsed;
}

Outcome TryCase(const std::string& text) { return Try<Case>(text, ParseCase); }
Outcome TryPlan(const std::string& text) { return Try<Plan>(text, ParsePlan); }
Outcome TryProfile(const std::string& text) { return Try<Profile>(text, ParseProfile); }

const std::vector<std::string> kCases = {
    "codec op=encode format=affine:4:g64:bf16 x=bf16 rows=3 d=128 data=gauss:1",
    "codec op=decode format=f8e4m3fn x=f32 rows=129 d=1 data=file",
    "codec op=round_trip format=affine:3:g32:f16 x=f16 rows=1 d=32 data=file:0123abcdef",
    "codec op=encode format=bfloat16 x=float64 rows=2147483648 d=64 data=n0_1:18446744073709551615",
    "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 data=gauss:0",
    "attention b=2 hq=8 hkv=2 l=4 t=17 d=64 dv=128 q=bf16 k=affine:8:g32:f32 v=f8e5m2 out=f16 "
    "layout=dense mask=causal_bottom_right scale=0.1 softcap=30 sinks=f32 alibi=yes lse=base2 "
    "against=original data=sink:7",
    "attention b=2 hq=4 hkv=4 l=2 t=9 d=80 q=f16 k=f16 v=f16 out=f32 "
    "mask=causal_top_left+window:4+left_pad:0,9+additive:B1LT:bf16 scale=2^-3 data=gauss:2",
    "attention hq=2 hkv=1 l=3 t=5 d=2 q=f64 k=f64 v=f64 out=f64 mask=bool:BHLT scale=-0 "
    "lse=natural:bf16 data=ties:3",
    "attention hq=2 hkv=1 l=3 t=5 d=2 q=f64 k=f64 v=f64 out=f64 mask=window:9223372036854775807 "
    "scale=1e-320 softcap=2^1023 against=stored data=ties:3",
    "attention b=1 hq=1 hkv=1 l=1 t=4 d=8 q=f32 k=f8e4m3fn v=f8e4m3fn out=bf16 mask=left_pad:2 "
    "scale=17.25e+2 sinks=bf16 lse=none data=file:ff",
    "tensor dtype=f32 shape=2x3 rule=exact data=file",
    "tensor dtype=f8e8m0fnu shape=scalar rule=ulp:4 data=gauss:1",
    "tensor dtype=b8 shape=1x0x2 axes=B,,T rule=abs:2^-20,rel:0.001 data=file:0a",
    "tensor dtype=u32 shape=5 axes=W rule=rel:1e-3 data=gauss:9",
    "cache k=f32 dk=8 data=tokens:1",
    "cache layout=ring:w=4:keep=1 k=f8e5m2 v=f16 x=bf16 hkv=2 hq=4 dk=3 dv=5 growth=1 "
    "observe=last data=file; new A rows=2 pad=1,0; append A 3 wrong=k_dim; filter A 1,-1; filter A",
    "cache layout=linear:w=7 k=affine:2:g32:f16 dk=32 data=tokens:0\nnew B layout=chunk:c=3 k=f32\n"
    "prepare B 0\nfinalize B\ntrim B -1; merge B,B -> C; extract C 1 -> B\nextend B C\n",
    "cache k=f32 dk=8 data=tokens:1; to_quantized A k=affine:4:g64:bf16 v=f8e4m3fn; copy A -> E; "
    "save E s0; damage s0 flip at=12; load s9 -> A; attend A window=3 scale=2^-3 sinks; drop A",
};
const std::vector<std::string> kPlans = {
    "",
    "base=stranger",
    "base=plain_f32 name=mine block=64",
    "base=flash_attention_2 dequantize=factored prescale=none",
    "qk=f32:lanes:8:fma pv=f16.rz:depth:0:chained l=bf16:pairwise:fma:chained op=f32.rz",
    "qk=f32:tensor_core:16:23 prescale=bf16:2 scores=bf16 exp=exp2_log2 exp_error=2^-22",
    "scale_roundings=3 bias_roundings=1 tanh_error=0.001 exp_floor=2^-126 lazy_rescale=5.545",
    "block=all sink=last p=f8e4m3fn p_scale=448 p_normalised=yes l_from=rounded",
    "merge=lse_division_free splits=8 log_error=0 partial=bf16 merge_weights=f16 "
    "normalise=reciprocal through=bf16 operands=qk:tf32x3.rz,pv:bf16",
    "flush=no saturate=yes dequantize=inside:2",
    "integer_qk=affine:8:g32:f16 prescale=none scale_roundings=2",
    "dequantize=factored fixed_q=2^-23 fixed_p=none block=64",
    "base=plain_f32 integer_qk=none",
    "dequantize=rounded:f16 name=x",
    "dequantize=rotated:1 block=64",
};
const std::vector<std::string> kProfiles = {
    "",
    "masked_row=any mask_value=-inf maximum=all",
    "mask_value=-1e9 decode=one_rounding encode=mlx_gpu fp8_overflow=saturate_all",
    "mask_value=lowest maximum=visible decode=two_roundings fp8_overflow=saturate ggml_encode=x86",
    "mx_encode=mlx_0_31 nvfp4_encode=vllm_4over6 token_encode=vllm",
    "masked_row=mean mask_value=2^10",
};

struct Tally {
  int64_t parsed = 0;
  int64_t refused = 0;
  void Add(Outcome outcome) { ++(outcome == Outcome::kParsed ? parsed : refused); }
};

using Trial = Outcome (*)(const std::string&);

void EveryPrefix(const std::string& line, Trial trial, Tally* tally) {
  for (size_t length = 0; length <= line.size(); ++length) {
    tally->Add(trial(line.substr(0, length)));
  }
}

// Under sanitizers, which take ten times as long, every eighth value at a place, another one at the
// next place.
#ifdef __SANITIZE_ADDRESS__
constexpr int kByteStep = 8;
#else
constexpr int kByteStep = 1;
#endif

void EveryByteChange(const std::string& line, Trial trial, Tally* tally) {
  for (size_t i = 0; i < line.size(); ++i) {
    std::string changed = line;
    for (int byte = static_cast<int>(i) % kByteStep; byte < 256; byte += kByteStep) {
      changed[i] = static_cast<char>(byte);
      if (changed[i] != line[i]) tally->Add(trial(changed));
    }
    tally->Add(trial(line.substr(0, i) + line.substr(i + 1)));
    tally->Add(trial(line.substr(0, i + 1) + line.substr(i)));
  }
}

// Pieces of two lines joined, and runs of one byte: what neighbours of single lines do not reach.
void RandomSplices(const std::vector<std::string>& lines, Trial trial, Tally* tally) {
  std::mt19937_64 random(22);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  for (int i = 0; i < 20000 / kByteStep; ++i) {
    const std::string& a = lines[below(lines.size())];
    const std::string& b = lines[below(lines.size())];
    std::string text = a.substr(0, below(a.size() + 1)) + b.substr(below(b.size() + 1));
    if (!text.empty() && i % 4 == 0) {
      text.insert(below(text.size()), below(300), "09 =:,x+-.^\xff"[below(12)]);
    }
    tally->Add(trial(text));
  }
}

void Mutate(const std::vector<std::string>& lines, Trial trial) {
  Tally tally;
  for (const std::string& line : lines) {
    EXPECT_EQ(trial(line), Outcome::kParsed) << line;
    EveryPrefix(line, trial, &tally);
    EveryByteChange(line, trial, &tally);
  }
  RandomSplices(lines, trial, &tally);
  // Both outcomes must have been met, or the test looked at nothing.
  EXPECT_GT(tally.parsed, 100);
  EXPECT_GT(tally.refused, 1000);
}

TEST(MutatedText, CaseParsesOrIsRefused) { Mutate(kCases, TryCase); }
TEST(MutatedText, PlanParsesOrIsRefused) { Mutate(kPlans, TryPlan); }
TEST(MutatedText, ProfileParsesOrIsRefused) { Mutate(kProfiles, TryProfile); }

}  // namespace
}  // namespace kvcheck
