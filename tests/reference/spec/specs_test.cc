// The tensors that a case needs and answers with: names, types, named axes and extents, for each
// kind, format and mask; and inputs that do not fit are refused.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "reference/spec/case.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// "name:type[shape]" of every tensor, in the order of names.
std::string Describe(const std::map<std::string, TensorSpec>& specs) {
  std::string text;
  for (const auto& [name, spec] : specs) {
    text += (text.empty() ? "" : "; ") + name + ":" + std::string(ShortName(spec.dtype)) + "[" +
            ToString(spec.shape) + "]";
  }
  return text;
}

std::string In(const std::string& text) { return Describe(InputSpecs(ParseCase(text))); }
std::string Out(const std::string& text) { return Describe(OutputSpecs(ParseCase(text))); }

const std::string kHead = "attention b=2 hq=6 hkv=3 l=4 t=5 d=64 dv=128 q=f16 ";

TEST(CaseSpecs, PlainAttentionNeedsQueryKeyAndValue) {
  const std::string text = kHead + "k=bf16 v=f8e4m3fn out=f32 data=gauss:1";
  EXPECT_EQ(In(text),
            "k:bf16[B=2 Hkv=3 T=5 Dk=64]; q:f16[B=2 Hq=6 L=4 Dk=64]; "
            "v:f8e4m3fn[B=2 Hkv=3 T=5 Dv=128]");
  EXPECT_EQ(Out(text), "out:f32[B=2 Hq=6 L=4 Dv=128]");
}

TEST(CaseSpecs, AffineRowsAreCodesScalesAndBiases) {
  // 64 channels of 3 bits fill 6 words, 128 channels of 8 bits fill 32.
  EXPECT_EQ(In(kHead + "k=affine:3:g32:bf16 v=affine:8:g128:f16 out=f16 data=gauss:1"),
            "k_biases:bf16[B=2 Hkv=3 T=5 G=2]; k_codes:u32[B=2 Hkv=3 T=5 W=6]; "
            "k_scales:bf16[B=2 Hkv=3 T=5 G=2]; q:f16[B=2 Hq=6 L=4 Dk=64]; "
            "v_biases:f16[B=2 Hkv=3 T=5 G=1]; v_codes:u32[B=2 Hkv=3 T=5 W=32]; "
            "v_scales:f16[B=2 Hkv=3 T=5 G=1]");
}

TEST(CaseSpecs, AgainstOriginalAddsTheOriginalOfEachCodedOperand) {
  EXPECT_EQ(In(kHead + "k=affine:4:g64:f32 v=bf16 out=f32 against=original data=gauss:1"),
            "k_biases:f32[B=2 Hkv=3 T=5 G=1]; k_codes:u32[B=2 Hkv=3 T=5 W=8]; "
            "k_original:f16[B=2 Hkv=3 T=5 Dk=64]; k_scales:f32[B=2 Hkv=3 T=5 G=1]; "
            "q:f16[B=2 Hq=6 L=4 Dk=64]; v:bf16[B=2 Hkv=3 T=5 Dv=128]");
}

TEST(CaseSpecs, MaskArrayFollowsItsAxesAndType) {
  const std::map<std::string, std::string> expected = {
      {"bool:T", "b8[T=5]"},
      {"bool:LT", "b8[L=4 T=5]"},
      {"bool:B1LT", "b8[B=2 Hq=1 L=4 T=5]"},
      {"bool:BHLT", "b8[B=2 Hq=6 L=4 T=5]"},
      {"bool:B11T", "b8[B=2 Hq=1 L=1 T=5]"},
      {"additive:LT:bf16", "bf16[L=4 T=5]"},
      {"additive:BHLT:f64", "f64[B=2 Hq=6 L=4 T=5]"},
  };
  for (const auto& [mask, spec] : expected) {
    const std::string text = kHead + "k=f16 v=f16 out=f16 mask=" + mask + " data=gauss:1";
    EXPECT_NE(In(text).find("mask:" + spec + ";"), std::string::npos) << In(text);
  }
  EXPECT_EQ(In(kHead + "k=f16 v=f16 out=f16 mask=causal_top_left data=gauss:1").find("mask:"),
            std::string::npos);
}

TEST(CaseSpecs, SinksAndSlopesAreOnePerQueryHead) {
  EXPECT_EQ(In(kHead + "k=f16 v=f16 out=f16 sinks=bf16 alibi=yes data=gauss:1"),
            "alibi_slopes:f32[Hq=6]; k:f16[B=2 Hkv=3 T=5 Dk=64]; q:f16[B=2 Hq=6 L=4 Dk=64]; "
            "sinks:bf16[Hq=6]; v:f16[B=2 Hkv=3 T=5 Dv=128]");
}

TEST(CaseSpecs, LseIsDoubleOnlyBesideADoubleOutput) {
  EXPECT_EQ(Out(kHead + "k=f16 v=f16 out=f16 lse=natural data=gauss:1"),
            "lse:f32[B=2 Hq=6 L=4]; out:f16[B=2 Hq=6 L=4 Dv=128]");
  EXPECT_EQ(Out(kHead + "k=f16 v=f16 out=f64 lse=base2 data=gauss:1"),
            "lse:f64[B=2 Hq=6 L=4]; out:f64[B=2 Hq=6 L=4 Dv=128]");
}

TEST(CaseSpecs, CodecDirectionsExchangeInputsAndOutputs) {
  const std::string tail = " format=affine:5:g32:bf16 x=f32 rows=3 d=64 data=gauss:1";
  const std::string codes = "biases:bf16[3x2]; codes:u32[3x10]; scales:bf16[3x2]";
  EXPECT_EQ(Out("codec op=encode" + tail), codes);
  EXPECT_EQ(In("codec op=decode" + tail), codes);
  EXPECT_EQ(In("codec op=encode" + tail), "x:f32[3x64]");
  EXPECT_EQ(In("codec op=round_trip" + tail), "x:f32[3x64]");
  EXPECT_EQ(Out("codec op=decode" + tail), "y:bf16[3x64]");
  EXPECT_EQ(Out("codec op=round_trip" + tail), "y:bf16[3x64]");
}

TEST(CaseSpecs, PlainCodecStoresOneTensorAndReturnsTheOriginalType) {
  const std::string tail = " format=f8e5m2 x=bf16 rows=3 d=64 data=gauss:1";
  EXPECT_EQ(Out("codec op=encode" + tail), "codes:f8e5m2[3x64]");
  EXPECT_EQ(In("codec op=decode" + tail), "codes:f8e5m2[3x64]");
  EXPECT_EQ(Out("codec op=decode" + tail), "y:bf16[3x64]");
}

TEST(CaseSpecs, TensorCaseNamesExpectedAndGot) {
  const std::string text = "tensor dtype=u16 shape=2x3 axes=B,T rule=exact data=file";
  EXPECT_EQ(In(text), "expected:u16[B=2 T=3]");
  EXPECT_EQ(Out(text), "got:u16[B=2 T=3]");
}

class CheckInputsOf : public testing::Test {
 protected:
  CheckInputsOf() {
    for (const auto& [name, spec] : InputSpecs(c_)) {
      inputs_[name] = Tensor(spec.dtype, Shape::Unnamed(Extents(spec.shape)));
    }
  }
  static std::vector<int64_t> Extents(const Shape& shape) {
    std::vector<int64_t> extents;
    for (const Axis& axis : shape.axes) extents.push_back(axis.extent);
    return extents;
  }
  std::string Refusal() const {
    try {
      CheckInputs(c_, inputs_);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMissingData);
      return error.what();
    }
  }
  const Case c_ = ParseCase(kHead + "k=bf16 v=f8e4m3fn out=f32 data=file");
  TensorMap inputs_;
};

TEST_F(CheckInputsOf, CaseAcceptsTensorsWithoutAxisNamesAndExtraOnes) {
  inputs_["unrelated"] = Tensor(DType::kInt8, {});
  EXPECT_EQ(Refusal(), "");
}

TEST_F(CheckInputsOf, CaseRefusesAnAbsentTensorAndListsThePresent) {
  inputs_.erase("k");
  EXPECT_EQ(Refusal(), "tensor 'k' is needed and absent; present: q, v; add it under this name");
}

TEST_F(CheckInputsOf, CaseRefusesAnotherType) {
  inputs_["k"].dtype = DType::kFloat16;
  EXPECT_EQ(Refusal(), "input 'k' is float16, the case says bfloat16");
}

TEST_F(CheckInputsOf, CaseRefusesAnotherShape) {
  inputs_["q"] = Tensor(DType::kFloat16, Shape::Unnamed({2, 6, 64, 4}));
  EXPECT_EQ(Refusal(), "input 'q' has shape 2x6x64x4, the case says B=2 Hq=6 L=4 Dk=64");
  inputs_["q"] = Tensor(DType::kFloat16, Shape::Unnamed({2, 6, 4}));
  EXPECT_NE(Refusal(), "");
}

TEST_F(CheckInputsOf, CaseRefusesATensorWithoutAllItsBytes) {
  inputs_["v"].bytes.pop_back();
  EXPECT_EQ(Refusal(), "input 'v' holds 3839 bytes, its shape needs 3840");
}

}  // namespace
}  // namespace kvcheck
