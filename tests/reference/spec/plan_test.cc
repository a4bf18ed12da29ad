// A plan and a profile print as text and parse back to the equal value, whichever of their fields
// are said; a known plan is a base that later fields override.

#include "reference/spec/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/codec_choices.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/profile.h"
#include "reference/spec/text.h"
#include "tests/reference/spec/expect_error.h"

namespace kvcheck {

// Found by RapidCheck through argument-dependent lookup.
void showValue(const Plan& plan, std::ostream& os) { os << Print(plan); }
void showValue(const Profile& profile, std::ostream& os) { os << Print(profile); }

namespace {

// A run without RC_PARAMS draws the same plans every time.
const int kSeeded = setenv("RC_PARAMS", "seed=21 max_success=2000", /*overwrite=*/0);

constexpr int kMaxCount = 1 << 30;

bool Coin() { return *rc::gen::arbitrary<bool>(); }

template <typename T>
T OneOf(const std::vector<T>& values) {
  return *rc::gen::elementOf(values);
}

DType AnyFloat() {
  return OneOf<DType>({DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                       DType::kFloat8E4M3FN, DType::kFloat8E5M2, DType::kFloat4E2M1FN});
}

RoundedType AnyRoundedType() { return {AnyFloat(), Coin()}; }

int AnyCount(int lowest) { return OneOf<int>({lowest, lowest + 1, 129, kMaxCount}); }

double AnyError() {
  return OneOf<double>(
      {0.0, std::ldexp(1.0, *rc::gen::inRange(-1074, 0)), 0.1, std::nextafter(1.0, 0.0)});
}

SumPlan AnySum() {
  SumPlan sum;
  sum.accumulator = AnyRoundedType();
  sum.order = OneOf<SumOrder>({SumOrder::kSequential, SumOrder::kLanes, SumOrder::kPairwise,
                               SumOrder::kTensorCore, SumOrder::kDepth});
  if (sum.order == SumOrder::kLanes || sum.order == SumOrder::kTensorCore) sum.width = AnyCount(1);
  if (sum.order == SumOrder::kDepth) sum.width = AnyCount(0);
  if (sum.order == SumOrder::kTensorCore) sum.aligned_bits = *rc::gen::inRange(2, 53);
  sum.fma = Coin();
  sum.chained = Coin();
  return sum;
}

OperandCut AnyCut() {
  return {OneOf<OperandType>({OperandType::kTf32, OperandType::kBf16, OperandType::kF16}),
          OneOf<int>({1, 3, 6, 9}), Coin()};
}

Plan AnyPlan() {
  Plan plan;
  if (Coin()) plan.name = OneOf<std::string>({"mine", "plain_f32", "v1.2-rc_3", "a"});
  if (Coin()) plan.qk = AnySum();
  if (Coin()) plan.pv = AnySum();
  if (Coin()) plan.l = AnySum();
  if (Coin()) plan.op = AnyRoundedType();
  if (Coin()) plan.scale_roundings = AnyCount(0);
  if (Coin()) {
    plan.prescale_roundings = *rc::gen::inRange(0, 9);
    if (*plan.prescale_roundings > 0) plan.prescale_dtype = AnyFloat();
  }
  if (Coin()) plan.integer_qk = OneOf(AllKvFormats());
  if (Coin()) plan.fixed_q = AnyError();
  if (Coin()) plan.fixed_p = AnyError();
  if (Coin()) plan.qk_operands = AnyCut();
  if (Coin()) plan.pv_operands = Coin() ? plan.qk_operands : AnyCut();
  if (Coin()) plan.scores = AnyFloat();
  if (Coin()) plan.bias_roundings = AnyCount(0);
  if (Coin()) plan.tanh_error = AnyError();
  if (Coin()) {
    plan.exp = OneOf<ExpForm>({ExpForm::kExp, ExpForm::kExp2Scaled, ExpForm::kExp2Log2,
                               ExpForm::kExp2Fma, ExpForm::kExp2FmaDrift});
  }
  if (Coin()) plan.exp_error = AnyError();
  if (Coin()) plan.exp_floor = AnyError();
  if (Coin()) plan.lazy_rescale = OneOf<double>({0.0, 5.545, 0x1p-30, 1e300});
  if (Coin()) plan.block = AnyCount(0);
  if (Coin()) plan.late_sink = Coin();
  if (Coin()) plan.p = AnyFloat();
  if (Coin()) plan.p_scale = OneOf<double>({1.0, 448.0, 0x1p-20, 0x1p300, 0.1});
  if (Coin()) plan.p_normalised = Coin();
  if (Coin()) plan.l_from_rounded_p = Coin();
  if (Coin()) {
    plan.merge = OneOf<MergeKind>(
        {MergeKind::kNone, MergeKind::kAccumulators, MergeKind::kLse, MergeKind::kLseDivisionFree});
  }
  if (Coin()) plan.splits = AnyCount(1);
  if (Coin()) plan.log_error = AnyError();
  if (Coin()) plan.partial = AnyFloat();
  if (Coin()) plan.merge_weights = AnyFloat();
  if (Coin()) plan.through = AnyFloat();
  if (Coin()) {
    plan.normalise = OneOf<NormaliseKind>(
        {NormaliseKind::kDivide, NormaliseKind::kReciprocal, NormaliseKind::kApproximate});
  }
  if (Coin()) plan.flush_subnormals = Coin();
  if (Coin()) plan.saturate_output = Coin();
  if (Coin()) {
    plan.dequantize = OneOf<DequantizeKind>({DequantizeKind::kStored, DequantizeKind::kInside,
                                             DequantizeKind::kFactored, DequantizeKind::kRounded,
                                             DequantizeKind::kRotated});
    if (*plan.dequantize == DequantizeKind::kRotated) {
      plan.dequantize_roundings = *rc::gen::inRange(0, 1025);
    }
    if (*plan.dequantize == DequantizeKind::kInside) {
      plan.dequantize_roundings = *rc::gen::inRange(0, 9);
    }
    if (*plan.dequantize == DequantizeKind::kRounded) plan.dequantize_dtype = AnyFloat();
  }
  return plan;
}

Profile AnyProfile() {
  Profile profile;
  profile.masked_row =
      OneOf<MaskedRow>({MaskedRow::kZero, MaskedRow::kNan, MaskedRow::kMean, MaskedRow::kAny});
  profile.mask_value = OneOf<MaskValueKind>(
      {MaskValueKind::kMinusInfinity, MaskValueKind::kLowest, MaskValueKind::kNumber});
  if (profile.mask_value == MaskValueKind::kNumber) {
    profile.mask_number = OneOf<double>({0.0, -1e9, -10000.0, -0x1.fffffep127, 0x1p-20});
  }
  profile.maximum_over_all = Coin();
  for (const CodecField& field : CodecFields()) {
    field.copy(*rc::gen::elementOf(field.variants(Profile())), &profile);
  }
  return profile;
}

RC_GTEST_PROP(PlanText, PlanParsesBackToItself, ()) {
  const Plan plan = *rc::gen::exec([] { return AnyPlan(); });
  RC_ASSERT(ParsePlan(Print(plan)) == plan);
}

RC_GTEST_PROP(PlanText, SaidFieldsOverrideAnyBaseAndUnsaidOnesKeepIt, ()) {
  const Plan plan = *rc::gen::exec([] { return AnyPlan(); });
  const std::string text = Print(plan);
  for (const KnownPlan& known : KnownPlans()) {
    const std::string base = "base=" + std::string(known.name);
    const Plan both = ParsePlan(text.empty() ? base : base + " " + text);
    const Plan alone = ParsePlan(base);
    RC_ASSERT(both.qk == (plan.qk ? plan.qk : alone.qk));
    RC_ASSERT(both.prescale_roundings ==
              (plan.prescale_roundings ? plan.prescale_roundings : alone.prescale_roundings));
    RC_ASSERT(both.prescale_dtype ==
              (plan.prescale_roundings ? plan.prescale_dtype : alone.prescale_dtype));
    RC_ASSERT(both.dequantize_roundings ==
              (plan.dequantize ? plan.dequantize_roundings : alone.dequantize_roundings));
    RC_ASSERT(both.name == (plan.name.empty() ? alone.name : plan.name));
    RC_ASSERT(ParsePlan(Print(both)) == both);
  }
}

RC_GTEST_PROP(ProfileText, ProfileParsesBackToItself, ()) {
  const Profile profile = *rc::gen::exec([] { return AnyProfile(); });
  RC_ASSERT(ParseProfile(Print(profile)) == profile);
}

TEST(PlanText, EmptyTextIsThePlanThatSaysNothing) {
  EXPECT_EQ(ParsePlan(""), Plan{});
  EXPECT_EQ(Print(Plan{}), "");
  EXPECT_EQ(ParseProfile(""), Profile{});
  EXPECT_EQ(Print(Profile{}), "");
}

TEST(KnownPlan, EachHasAReasonAndParsesBackUnderItsName) {
  for (const KnownPlan& known : KnownPlans()) {
    EXPECT_EQ(FindKnownPlan(known.name), &known);
    EXPECT_FALSE(known.reason.empty());
    EXPECT_EQ(ParsePlan(known.text).name, "") << known.name;
    const Plan plan = ParsePlan("base=" + std::string(known.name));
    EXPECT_EQ(plan.name, known.name);
    EXPECT_EQ(ParsePlan(Print(plan)), plan) << known.name;
  }
}

TEST(KnownPlan, StrangerIsABaseWithoutAnyField) {
  Plan expected;
  expected.name = "stranger";
  EXPECT_EQ(ParsePlan("base=stranger"), expected);
  expected.op = RoundedType{DType::kFloat32, true};
  EXPECT_EQ(ParsePlan("base=stranger op=f32.rz"), expected);
}

TEST(KnownPlan, BareNameInTheFirstPlaceIsABase) {
  for (const KnownPlan& known : KnownPlans()) {
    const std::string name(known.name);
    EXPECT_EQ(ParsePlan(name), ParsePlan("base=" + name));
    EXPECT_EQ(ParsePlan(name + " p=f32"), ParsePlan("base=" + name + " p=f32"));
  }
  EXPECT_THAT(ErrorOf([] { ParsePlan("plain_f32 base=stranger"); }),
              testing::HasSubstr("the plan is named before"));
  for (const char* text : {"plane_f32", "plane_f32 p=f32", "fastest", "p=f32 plain_f32"}) {
    EXPECT_NE(ErrorOf([&] { ParsePlan(text); }), "") << text;
  }
  EXPECT_THAT(ErrorOf([] { ParsePlan("plane_f32"); }), testing::HasSubstr("plain_f32"));
  EXPECT_THAT(ErrorOf([] { ParsePlan("fastest"); }), testing::HasSubstr("kvcheck plans"));
}

TEST(KnownPlan, EveryNumberHasItsSourceAndNoSourceIsWithoutANumber) {
  const std::vector<std::string> keys = PlanKeys();
  for (const KnownPlan& known : KnownPlans()) {
    EXPECT_FALSE(known.kernel.empty()) << known.name;
    const std::string text = Print(ParsePlan(known.text));
    for (const Piece& field : Split(WholeLine(text), ' ')) {
      const std::string_view key = field.text.substr(0, field.text.find('='));
      if (key.empty()) continue;
      EXPECT_NE(SourceOf(known, key), "") << known.name << ": " << key;
    }
    for (const std::span<const PlanSource> sources : {known.sources, known.more_sources}) {
      for (const PlanSource& source : sources) {
        for (const Piece& key : Split(WholeLine(source.fields), ' ')) {
          EXPECT_THAT(keys, testing::Contains(std::string(key.text))) << known.name;
        }
      }
    }
  }
}

TEST(KnownPlan, ExcludesTheCallsThatItsPageExcludes) {
  const auto excluded = [](const char* plan, const std::string& fields) {
    const Case c = ParseCase("attention hq=2 hkv=2 " + fields + " data=gauss:1");
    return ExcludedBy(*FindKnownPlan(plan), std::get<AttentionCase>(c)).size();
  };
  const std::string half = "l=4 t=64 d=64 q=bf16 k=bf16 v=bf16 out=bf16";
  EXPECT_EQ(excluded("vllm_triton", half), 0U);
  EXPECT_EQ(excluded("vllm_triton", half + " softcap=30"), 1U);
  EXPECT_EQ(excluded("flash_attention_2", half + " softcap=30"), 0U);
  EXPECT_EQ(excluded("vllm_triton", half + " mask=causal_bottom_right+window:49"), 0U);
  EXPECT_EQ(excluded("vllm_triton", half + " mask=causal_bottom_right+window:48"), 1U);
  EXPECT_EQ(excluded("vllm_triton", "l=4 t=64 d=64 q=f32 k=f32 v=f32 out=f32"), 1U);
  EXPECT_EQ(excluded("torch_flex_attention", half), 1U);
  EXPECT_EQ(excluded("torch_flex_decoding", half), 0U);
  EXPECT_EQ(excluded("torch_flex_decoding", "l=128 t=128 d=64 q=f16 k=f16 v=f16 out=f16"), 1U);
  EXPECT_EQ(excluded("torch_flex_attention", "l=128 t=128 d=64 q=f16 k=f16 v=f16 out=f16"), 0U);
  for (const char* any : {"plain_f32", "stranger", "auto", "torch_cuda_math"}) {
    EXPECT_EQ(excluded(any, half + " softcap=30"), 0U) << any;
  }
}

TEST(KnownPlan, NameAfterBaseRenamesThePlan) {
  EXPECT_EQ(ParsePlan("base=plain_f32 name=mine").name, "mine");
  EXPECT_EQ(ParsePlan("name=mine base=plain_f32").name, "mine");
}

TEST(PlanText, NameThatWouldNotParseBackIsRefusedBothWays) {
  for (const char* name : {"two words", "a=b", "", "tab\there", "caf\xc3\xa9"}) {
    EXPECT_THROW(ParsePlan(std::string("name=") + name), Error) << name;
    if (*name == '\0') continue;
    Plan plan;
    plan.name = name;
    EXPECT_THROW(Print(plan), Error) << name;
  }
}

TEST(PlanText, TypeWithoutASignIsNoTypeOfAnOperation) {
  for (const char* text : {"p=f8e8m0fnu", "op=f8e8m0fnu", "qk=f8e8m0fnu:pairwise"}) {
    EXPECT_THROW(ParsePlan(text), Error) << text;
  }
}

// A resolved plan has every member filled.
TEST(PlanText, MembersThatMeanNothingBesideTheOthersAreNotPrinted) {
  Plan plan;
  plan.qk = SumPlan{{}, SumOrder::kPairwise, 8, 23, false, false};
  plan.prescale_roundings = 0;
  plan.prescale_dtype = DType::kFloat16;
  plan.dequantize = DequantizeKind::kStored;
  plan.dequantize_roundings = 2;
  plan.dequantize_dtype = DType::kFloat16;
  EXPECT_EQ(Print(plan), "qk=f32:pairwise prescale=none dequantize=stored");
}

TEST(PlanTextDeathTest, FieldWhosePartnerIsUnsaidIsABugOfTheCaller) {
  const auto exits = testing::ExitedWithCode(kInternalErrorExitCode);
  Plan plan;
  plan.dequantize = DequantizeKind::kInside;
  EXPECT_EXIT(Print(plan), exits, "dequantize");
  plan.dequantize = DequantizeKind::kRounded;
  EXPECT_EXIT(Print(plan), exits, "dequantize");
  plan.dequantize = DequantizeKind::kRotated;
  EXPECT_EXIT(Print(plan), exits, "dequantize");
  plan = {};
  plan.prescale_roundings = 1;
  EXPECT_EXIT(Print(plan), exits, "prescale");
}

TEST(Plan, SaysWhichOperandsAreCut) {
  const Plan both = ParsePlan("operands=tf32x3.rz");
  ASSERT_TRUE(both.qk_operands && both.pv_operands);
  EXPECT_EQ(*both.qk_operands, (OperandCut{OperandType::kTf32, 3, true}));
  EXPECT_EQ(both.qk_operands, both.pv_operands);
  EXPECT_EQ(Print(both), "operands=tf32x3.rz");
  const Plan one = ParsePlan("operands=pv:bf16x6");
  EXPECT_FALSE(one.qk_operands);
  EXPECT_EQ(Print(one), "operands=pv:bf16x6");
  EXPECT_EQ(Print(ParsePlan("operands=qk:tf32,pv:bf16")), "operands=qk:tf32,pv:bf16");
  EXPECT_EQ(Print(ParsePlan("operands=none")), "");
  const Plan base = ParsePlan("vllm_triton_f32");
  ASSERT_TRUE(base.qk_operands && base.pv_operands);
  const Plan overridden = ParsePlan("vllm_triton_f32 operands=qk:tf32");
  EXPECT_FALSE(overridden.pv_operands) << "the field as a whole";
  for (const std::string wrong : {"tf33", "tf32x2", "tf32.rzx3", "f32", "qk:tf32,qk:tf32",
                                  "kv:tf32", "qk:tf32,pv", "", "tf32x", ".rz"}) {
    EXPECT_NE(ErrorOf([&] { ParsePlan("operands=" + wrong); }), "") << wrong;
  }
}

}  // namespace
}  // namespace kvcheck
