// The inputs of a case: exactly those it names, stored in its formats, free of NaN and infinity.

#include "reference/formats/generate_inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/data/attention_regime.h"
#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/spec/error.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

TEST(GenerateInputs, GivesExactlyTheTensorsOfTheCase) {
  for (const char* text : {
           "codec op=encode format=affine:4:g64:bf16 x=bf16 rows=3 d=128 data=gauss:1",
           "codec op=decode format=affine:3:g32:f16 x=f16 rows=2 d=96 data=huge:1",
           "codec op=decode format=f8e5m2 x=f32 rows=2 d=129 data=codes:1",
           "codec op=round_trip format=f8e4m3fn x=f16 rows=129 d=1 data=mixed:7",
           "attention hq=4 hkv=2 l=3 t=129 d=64 q=f32 k=f32 v=f32 out=f32 data=sink:1",
           "attention b=2 hq=4 hkv=2 l=1 t=5 d=64 dv=32 q=bf16 k=affine:8:g64:bf16 "
           "v=affine:2:g32:f16 out=bf16 mask=causal_bottom_right+additive:BHLT:f16 sinks=f32 "
           "alibi=yes against=original data=outlier:3",
           "attention hq=2 hkv=2 l=1 t=2 d=32 q=f16 k=f8e4m3fn v=affine:4:g32:f32 out=f16 "
           "mask=bool:T data=huge:5",
           "tensor dtype=f16 shape=3x129 rule=exact data=gauss:1",
           "tensor dtype=i32 shape=scalar rule=exact data=gauss:1",
           "tensor dtype=b8 shape=2x0x3 rule=exact data=gauss:1",
       }) {
    const Case c = ParseCase(text);
    const TensorMap inputs = GenerateInputs(c, Profile());
    const auto specs = InputSpecs(c);
    EXPECT_EQ(inputs.size(), specs.size()) << text;
    for (const auto& [name, tensor] : inputs) {
      ASSERT_TRUE(specs.contains(name)) << name;
      EXPECT_EQ(tensor.dtype, specs.at(name).dtype);
      EXPECT_EQ(tensor.shape, specs.at(name).shape);
      EXPECT_EQ(tensor.bytes.size(),
                static_cast<size_t>(tensor.ElementCount()) * SizeInBytes(tensor.dtype));
    }
    EXPECT_EQ(GenerateInputs(c, Profile()), inputs);
  }
}

TEST(GenerateInputs, StoredKeysAndValuesAreFiniteInEveryFormatAndRegime) {
  for (const std::string_view regime : AttentionRegimes()) {
    for (const KvFormat& format : AllKvFormats()) {
      AttentionCase c;
      c.query_heads = 2;
      c.kv_len = 9;
      c.k_dim = c.v_dim = 256;
      c.q = DType::kFloat32;
      c.k = c.v = format;
      c.data = {std::string(regime), 4, ""};
      const TensorMap inputs = GenerateInputs(c, Profile());
      for (const char* name : {"k", "v"}) {
        const EncodedRows rows = CacheRows(format, inputs, name);
        for (const DecodeRounding decode :
             {DecodeRounding::kExact, DecodeRounding::kTwoRoundings}) {
          Profile profile;
          profile.decode = decode;
          for (const double x : DecodeRows(format, profile, rows, 0, 9).hi) {
            ASSERT_TRUE(std::isfinite(x)) << Print(format) << " " << regime << " " << name;
          }
        }
      }
    }
  }
}

TEST(GenerateInputs, StoredKeysAreTheOriginalsEncoded) {
  const Case c = ParseCase(
      "attention hq=2 hkv=1 l=1 t=4 d=64 q=f32 k=affine:8:g64:f32 v=f32 out=f32 against=original "
      "data=gauss:1");
  const TensorMap inputs = GenerateInputs(c, Profile());
  const TensorMap encoded =
      EncodeRows(std::get<AttentionCase>(c).k, Profile(), inputs.at("k_original"));
  EXPECT_EQ(inputs.at("k_codes").bytes, encoded.at("codes").bytes);
  EXPECT_FALSE(inputs.contains("v_original"));
}

TEST(GenerateInputs, ArbitraryCodesReachEveryPattern) {
  const Case c = ParseCase("codec op=decode format=f8e4m3fn x=f32 rows=64 d=128 data=codes:1");
  const Tensor codes = GenerateInputs(c, Profile()).at("codes");
  std::vector<int> seen(256);
  for (const std::byte byte : codes.bytes) ++seen[std::to_integer<size_t>(byte)];
  for (const int count : seen) EXPECT_GT(count, 0);
}

TEST(GenerateInputs, RefusesUnknownRegimesAndFiles) {
  const auto code = [](const char* text) {
    try {
      GenerateInputs(ParseCase(text), Profile());
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kUsage;
  };
  EXPECT_EQ(code("codec op=encode format=f16 x=f32 rows=1 d=1 data=sink:1"),
            ErrorCode::kIllegalCase);
  EXPECT_EQ(code("codec op=encode format=f16 x=f32 rows=1 d=1 data=codes:1"),
            ErrorCode::kIllegalCase);
  EXPECT_EQ(code("attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 data=cauchy:1"),
            ErrorCode::kIllegalCase);
  EXPECT_EQ(code("codec op=encode format=f16 x=f32 rows=1 d=1 data=file"), ErrorCode::kMissingData);
}

}  // namespace
}  // namespace kvcheck
