// A case, a mask, a format and a rule print as text and parse back to the equal value, for random
// values of every field. Replay a failure with the RC_PARAMS line that RapidCheck prints.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <set>
#include <variant>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/codec_choices.h"
#include "reference/spec/text.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {

// Found by RapidCheck through argument-dependent lookup.
void showValue(const Case& c, std::ostream& os) { os << Print(c); }
void showValue(const MaskSpec& mask, std::ostream& os) { os << Print(mask); }
void showValue(const KvFormat& format, std::ostream& os) { os << Print(format); }
void showValue(const ToleranceRule& rule, std::ostream& os) { os << Print(rule); }

namespace {

// A run without RC_PARAMS draws the same cases every time.
const int kSeeded = setenv("RC_PARAMS", "seed=20 max_success=1000", /*overwrite=*/0);

constexpr int64_t kMaxExtent = int64_t{1} << 31;

template <typename T>
T OneOf(const std::vector<T>& values) {
  return *rc::gen::elementOf(values);
}

uint64_t AnyBits() { return *rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>()); }

// Any finite double: random bit patterns, powers of two over the whole range, short decimals.
double AnyFinite() {
  switch (*rc::gen::inRange(0, 3)) {
    case 0: {
      const auto value = std::bit_cast<double>(AnyBits());
      return std::isfinite(value) ? value : 0.5;
    }
    case 1:
      return std::ldexp(1.0, *rc::gen::inRange(-1074, 1024));
    default:
      return static_cast<double>(*rc::gen::inRange(-10000, 10000)) / 1000;
  }
}

double AnyPositive() {
  const double value = std::fabs(AnyFinite());
  return value > 0 ? value : std::numeric_limits<double>::denorm_min();
}

DType AnyRealType() {
  return OneOf<DType>({DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16});
}

KvFormat AnyFormat() { return OneOf(AllKvFormats()); }

// Of an attention case, which stores its tokens one by one.
KvFormat AnyTokenFormat() { return TokenFormatOf(AnyFormat()); }

DataSource AnyData() {
  DataSource data;
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      data.regime = "file";
      break;
    case 1:
      data.regime = "file";
      data.file_hash = OneOf<std::string>({"0", "deadbeef", "0123456789abcdef"});
      break;
    default:
      data.regime = OneOf<std::string>({"gauss", "sink_8", "n1", "_"});
      data.seed = OneOf<uint64_t>({0, 1, AnyBits(), std::numeric_limits<uint64_t>::max()});
  }
  return data;
}

MaskSpec AnyMask(int64_t batch, int64_t kv_len) {
  MaskSpec mask;
  mask.causal = OneOf<CausalAlignment>(
      {CausalAlignment::kNone, CausalAlignment::kBottomRight, CausalAlignment::kTopLeft});
  if (*rc::gen::arbitrary<bool>()) {
    mask.window = OneOf<int64_t>({1, 2, 129, std::numeric_limits<int64_t>::max()});
  }
  if (*rc::gen::arbitrary<bool>()) {
    for (int64_t b = 0; b < batch; ++b) {
      mask.left_padding.push_back(OneOf<int64_t>({0, kv_len / 2, kv_len}));
    }
  }
  mask.array = OneOf<MaskArrayKind>(
      {MaskArrayKind::kNone, MaskArrayKind::kBoolean, MaskArrayKind::kAdditive});
  if (mask.array != MaskArrayKind::kNone) {
    mask.axes = OneOf<MaskAxes>(
        {MaskAxes::kT, MaskAxes::kLT, MaskAxes::kB1LT, MaskAxes::kBHLT, MaskAxes::kB11T});
  }
  if (mask.array == MaskArrayKind::kAdditive) mask.additive_dtype = AnyRealType();
  return mask;
}

ToleranceRule AnyRule(bool ulps_allowed) {
  switch (*rc::gen::inRange(0, ulps_allowed ? 3 : 2)) {
    case 0:
      return ExactRule{};
    case 1:
      return AbsRelRule{std::fabs(AnyFinite()), std::fabs(AnyFinite())};
    default:
      return UlpRule{OneOf<int64_t>({0, 1, 4, std::numeric_limits<int64_t>::max()})};
  }
}

CodecRule AnyCodecRule() {
  CodecRule rule;
  rule.format = OneOf<KvFormat>(AllKvFormats());
  const KvFormat of_f32 = WithRowType(rule.format, DType::kFloat32);
  if (!IsPlain(rule.format) && WithRowType(rule.format, DType::kFloat16) != of_f32 &&
      *rc::gen::arbitrary<bool>()) {
    rule.scale_type_of_want = true;
    rule.format = of_f32;
  }
  bool names_encoder = true;
  for (const CodecField& field : CodecFields()) {
    if (!Leaves(rule.format, field.choice)) continue;
    if (*rc::gen::arbitrary<bool>()) {
      field.copy(*rc::gen::elementOf(field.variants(Profile())), &rule.profile);
      rule.stated.insert(field.choice);
    } else if (field.left_out == LeftOut::kAny) {
      names_encoder = false;
    }
  }
  rule.codes_exact = !IsPlain(rule.format) && names_encoder && *rc::gen::arbitrary<bool>();
  return rule;
}

// 128 divides every affine group.
int64_t AnyHeadDim() { return 128 * *rc::gen::inRange<int64_t>(1, 5); }

constexpr int64_t kMostElements = int64_t{1} << 40;  // of a tensor of a case

CodecCase AnyCodec() {
  CodecCase c;
  c.direction = OneOf<CodecDirection>(
      {CodecDirection::kEncode, CodecDirection::kDecode, CodecDirection::kRoundTrip});
  c.format = AnyFormat();
  c.x = AnyRealType();
  c.rows = OneOf<int64_t>({1, 2, 129, kMaxExtent});
  c.head_dim = IsPlain(c.format) ? OneOf<int64_t>({1, 63, 80, 256})
                                 : AnyHeadDim() * std::max<int64_t>(1, BlockOf(c.format) / 128);
  c.rows = std::min(c.rows, kMostElements / c.head_dim);
  c.data = AnyData();
  return c;
}

AttentionCase AnyAttention() {
  AttentionCase c;
  c.batch = *rc::gen::inRange<int64_t>(1, 5);
  c.kv_heads = *rc::gen::inRange<int64_t>(1, 9);
  c.query_heads = c.kv_heads * *rc::gen::inRange<int64_t>(1, 9);
  c.query_len = OneOf<int64_t>({1, 2, 15, 16, 17, 129});
  c.kv_len = OneOf<int64_t>({1, 2, 63, 64, 65, 129, 1 << 20});
  c.k_dim = AnyHeadDim();
  c.v_dim = *rc::gen::arbitrary<bool>() ? c.k_dim : AnyHeadDim();
  c.q = AnyRealType();
  c.k = AnyTokenFormat();
  c.v = AnyTokenFormat();
  c.out = AnyRealType();
  c.mask = AnyMask(c.batch, c.kv_len);
  c.scale = AnyFinite();
  if (*rc::gen::arbitrary<bool>()) c.softcap = AnyPositive();
  if (*rc::gen::arbitrary<bool>()) c.sinks = AnyRealType();
  c.alibi = *rc::gen::arbitrary<bool>();
  c.lse = OneOf<LseKind>({LseKind::kNone, LseKind::kNatural, LseKind::kBase2});
  if (c.lse != LseKind::kNone && *rc::gen::arbitrary<bool>()) {
    const DType type = AnyRealType();
    if (type != LseType(c)) c.lse_type = type;
  }
  c.against_original = !(IsPlain(c.k) && IsPlain(c.v)) && *rc::gen::arbitrary<bool>();
  c.data = AnyData();
  return c;
}

TensorCase AnyTensor() {
  TensorCase c;
  c.dtype = OneOf<DType>({AllDTypes().begin(), AllDTypes().end()});
  const int rank = *rc::gen::inRange(0, 6);
  for (int i = 0; i < rank; ++i) {
    c.shape.axes.push_back(
        {OneOf<std::string>({"", "", "B", "Hq", "Hkv", "L", "T", "Dk", "Dv", "G", "W"}),
         OneOf<int64_t>({0, 1, 2, 63, 129})});
  }
  c.rule = AnyRule(IsFloat(c.dtype));
  c.data = AnyData();
  return c;
}

void CheckRoundTrip(const Case& c) {
  const std::string text = Print(c);
  const Case parsed = ParseCase(text);
  RC_ASSERT(parsed == c);
  RC_ASSERT(Print(parsed) == text);
}

RC_GTEST_PROP(CaseText, CodecCaseParsesBackToItself, ()) {
  CheckRoundTrip(*rc::gen::exec([] { return Case(AnyCodec()); }));
}

RC_GTEST_PROP(CaseText, AttentionCaseParsesBackToItself, ()) {
  CheckRoundTrip(*rc::gen::exec([] { return Case(AnyAttention()); }));
}

RC_GTEST_PROP(CaseText, TensorCaseParsesBackToItself, ()) {
  CheckRoundTrip(*rc::gen::exec([] { return Case(AnyTensor()); }));
}

RC_GTEST_PROP(MaskText, MaskParsesBackToItself, ()) {
  const MaskSpec mask = *rc::gen::exec([] { return AnyMask(*rc::gen::inRange(1, 6), 129); });
  const std::string text = Print(mask);
  RC_ASSERT(ParseMask(WholeLine(text)) == mask);
}

RC_GTEST_PROP(ToleranceText, RuleParsesBackToItself, ()) {
  const ToleranceRule rule = *rc::gen::exec([] { return AnyRule(true); });
  const std::string text = Print(rule);
  RC_ASSERT(ParseToleranceRule(WholeLine(text)) == rule);
}

RC_GTEST_PROP(ToleranceText, CodecRuleParsesBackToItself, ()) {
  const ToleranceRule rule = *rc::gen::exec([] { return AnyCodecRule(); });
  const std::string text = Print(rule);
  RC_ASSERT(ParseToleranceRule(WholeLine(text)) == rule);
}

TEST(ToleranceText, DerivedParsesBackToItself) {
  EXPECT_EQ(Print(ParseToleranceRule(WholeLine("derived"))), "derived");
}

RC_GTEST_PROP(NumberText, FiniteDoubleParsesBackToTheSameBits, ()) {
  const double value = *rc::gen::exec([] { return AnyFinite(); });
  const std::string text = PrintReal(value);
  RC_ASSERT(std::bit_cast<uint64_t>(ParseReal(WholeLine(text))) == std::bit_cast<uint64_t>(value));
}

TEST(NumberText, EveryPowerOfTwoParsesBackToTheSameBits) {
  for (int exponent = -1074; exponent <= 1023; ++exponent) {
    for (double value : {std::ldexp(1.0, exponent), -std::ldexp(1.0, exponent)}) {
      const std::string text = PrintReal(value);
      EXPECT_EQ(ParseReal(WholeLine(text)), value) << text;
    }
  }
  EXPECT_EQ(PrintReal(0x1p-23), "2^-23");
  EXPECT_EQ(PrintReal(0x1p-1074), "2^-1074");
  EXPECT_EQ(PrintReal(0x1p1023), "2^1023");
  EXPECT_EQ(PrintReal(0.125), "0.125");
  EXPECT_TRUE(std::signbit(ParseReal(WholeLine("-0"))));
}

TEST(FormatText, EveryFormatParsesBackToItselfUnderATextOfItsOwn) {
  std::set<std::string> texts;
  std::vector<size_t> of_family(std::variant_size_v<KvFormat>);
  for (const KvFormat& format : ListedKvFormats()) {
    ++of_family[format.index()];
    const std::string text = Print(format);
    EXPECT_EQ(ParseKvFormat(WholeLine(text)), format) << text;
    EXPECT_TRUE(texts.insert(text).second) << text << " names two formats";
  }
  // 6 plain types; 6 widths x 3 groups x 3 scale types.
  EXPECT_EQ(of_family[0], 6u);
  EXPECT_EQ(of_family[1], 6u * 3 * 3);
  EXPECT_EQ(std::count(of_family.begin(), of_family.end(), 0u), 0);
}

TEST(MaskText, EveryCombinationOfTermsParsesBackToItself) {
  int combinations = 0;
  for (auto causal :
       {CausalAlignment::kNone, CausalAlignment::kBottomRight, CausalAlignment::kTopLeft}) {
    for (bool window : {false, true}) {
      for (bool padding : {false, true}) {
        for (auto array :
             {MaskArrayKind::kNone, MaskArrayKind::kBoolean, MaskArrayKind::kAdditive}) {
          for (auto axes :
               {MaskAxes::kT, MaskAxes::kLT, MaskAxes::kB1LT, MaskAxes::kBHLT, MaskAxes::kB11T}) {
            MaskSpec mask;
            mask.causal = causal;
            if (window) mask.window = 7;
            if (padding) mask.left_padding = {0, 3};
            mask.array = array;
            if (array != MaskArrayKind::kNone) mask.axes = axes;
            const std::string text = Print(mask);
            EXPECT_EQ(ParseMask(WholeLine(text)), mask) << text;
            ++combinations;
          }
        }
      }
    }
  }
  EXPECT_EQ(combinations, 3 * 2 * 2 * 3 * 5);
}

TEST(DTypeText, BothNamesOfEveryTypeParse) {
  for (DType dtype : AllDTypes()) {
    EXPECT_EQ(ParseDType(Name(dtype)), dtype) << Name(dtype);
    EXPECT_EQ(ParseDType(ShortName(dtype)), dtype) << ShortName(dtype);
  }
  EXPECT_EQ(ParseDType(""), std::nullopt);
  EXPECT_EQ(ParseDType("F32"), std::nullopt);
}

TEST(CaseText, FieldsMayComeInAnyOrderAndDefaultsMayBeLeftOut) {
  const auto shuffled = std::get<AttentionCase>(
      ParseCase("attention data=gauss:1 out=f32 v=bf16 k=bf16 q=f32 d=64 t=3 l=2 hkv=2 hq=4"));
  EXPECT_EQ(shuffled.batch, 1);
  EXPECT_EQ(shuffled.v_dim, 64);
  EXPECT_EQ(shuffled.scale, 0.125);
  EXPECT_EQ(shuffled.mask, MaskSpec{});
  EXPECT_EQ(Print(Case(shuffled)),
            "attention b=1 hq=4 hkv=2 l=2 t=3 d=64 q=f32 k=bf16 v=bf16 out=f32 mask=none "
            "scale=0.125 data=gauss:1");
}

TEST(CaseText, KindNamesFollowTheAlternative) {
  EXPECT_EQ(KindName(CodecCase{}), "codec");
  EXPECT_EQ(KindName(AttentionCase{}), "attention");
  EXPECT_EQ(KindName(TensorCase{}), "tensor");
}

}  // namespace
}  // namespace kvcheck
