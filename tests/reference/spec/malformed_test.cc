// A malformed text is refused with the column of the first offending character and a reason that
// says what to do; a well-formed but undefined case is refused as illegal.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {
namespace {

enum class What { kCase, kPlan, kProfile, kRule };

struct Malformed {
  What what;
  std::string text;
  // The offending character is the first one of this piece of the text; "" means its end.
  std::string at;
  std::string reason;
};

// The piece is searched from the right, so that "t=0" finds the field and not "out=0".
size_t ExpectedColumn(const Malformed& row) {
  return (row.at.empty() ? row.text.size() : row.text.rfind(row.at)) + 1;
}

const std::string kCodec = "codec op=encode format=f16 x=f32 rows=4 d=64 data=gauss:1";
const std::string kTensor = "tensor dtype=f32 shape=2x3 rule=exact data=file";
const std::string kAttention =
    "attention b=2 hq=4 hkv=2 l=2 t=9 d=64 q=f32 k=bf16 v=bf16 out=f32 mask=none data=gauss:1";

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) ADD_FAILURE() << "no '" << from << "' in " << text;
  return text.replace(at, from.size(), to);
}

Malformed Codec(std::string_view from, std::string_view to, std::string_view at,
                std::string_view reason) {
  return {What::kCase, Replaced(kCodec, from, to), std::string(at), std::string(reason)};
}

Malformed Attention(std::string_view from, std::string_view to, std::string_view at,
                    std::string_view reason) {
  return {What::kCase, Replaced(kAttention, from, to), std::string(at), std::string(reason)};
}

Malformed TensorRow(std::string_view from, std::string_view to, std::string_view at,
                    std::string_view reason) {
  return {What::kCase, Replaced(kTensor, from, to), std::string(at), std::string(reason)};
}

std::vector<Malformed> Table() {
  using namespace std::string_literals;
  const auto plan = [](std::string_view text, std::string_view at, std::string_view reason) {
    return Malformed{What::kPlan, std::string(text), std::string(at), std::string(reason)};
  };
  const auto profile = [](std::string_view text, std::string_view at, std::string_view reason) {
    return Malformed{What::kProfile, std::string(text), std::string(at), std::string(reason)};
  };
  const auto rule = [](std::string_view text, std::string_view at, std::string_view reason) {
    return Malformed{What::kRule, std::string(text), std::string(at), std::string(reason)};
  };
  return {
      // Kind and separators.
      {What::kCase, "", "", "expected KIND"},
      {What::kCase, "codec", "codec", "expected KIND"},
      {What::kCase, "codec ", "codec ", "expected KIND"},
      {What::kCase, "paged hq=1", "paged", "kinds: codec, attention, tensor"},
      {What::kCase, "Codec op=encode", "Codec", "not a kind"},
      {What::kCase, "caf\xc3\xa9 op=encode", "caf", "not a kind"},
      Codec("x=f32", "x=f32\v", "\v", "byte 0x0b"),
      Codec("x=f32", "x=f32\0"s, "\0"s, "byte 0x00"),
      Codec("gauss", "gau\xc3\x9f", "\xc3", "byte 0xc3"),
      Codec("x=f32", "x=f\x7f", "\x7f", "byte 0x7f"),
      // Keys.
      Codec("x=f32", "x", "x rows", "expected key=value, got 'x'"),
      Codec("x=f32", "=f32", "=f32", "expected key=value"),
      Codec("x=f32", "x=f32 y=f32", "y=f32", "unknown key 'y'; known: op, format"),
      Codec("x=f32", "x=f32 x=f32", "x=f32", "'x' is given twice"),
      // The mistyped key, before the one that is missing for it.
      Codec("x=f32", "X=f32", "X=f32", "unknown key 'X' (did you mean 'x'?); known: op, format"),
      Attention("hkv=2", "hk=2", "hk=2", "unknown key 'hk' (did you mean 'hkv'?); known: b, hq"),
      Codec(" data=gauss:1", "", "", "'data=' is missing"),
      Attention("hkv=2 ", "", "", "'hkv=' is missing"),
      Attention(" k=bf16", "", "", "'k=' is missing"),
      Attention("mask=none", "shape=1", "shape", "unknown key 'shape'"),
      {What::kCase, kAttention.substr(0, kAttention.size() - 1), "", "non-negative integer"},
      {What::kCase, kAttention.substr(0, kAttention.size() - 2), "gauss", "REGIME:SEED"},
      // Numbers.
      Codec("rows=4", "rows=0", "0 d", "0 is outside 1.."),
      Codec("rows=4", "rows=-4", "-4", "-4 is outside 1.."),
      Codec("rows=4", "rows=+4", "+4", "'+4' is not an integer"),
      Codec("rows=4", "rows=4.0", "4.0", "'4.0' is not an integer"),
      Codec("rows=4", "rows=4k", "4k", "'4k' is not an integer"),
      Codec("rows=4", "rows=", " d=64", "'' is not an integer"),
      Codec("rows=4", "rows=2147483649", "2147483649", "outside 1..2147483648"),
      Codec("rows=4", "rows=99999999999999999999", "99999999999999999999", "out of range"),
      Codec("gauss:1", "gauss:-1", "-1", "'-1' is not a non-negative integer"),
      Codec("gauss:1", "gauss:18446744073709551616", "18446744073709551616", "out of range"),
      Attention("mask=none", "scale=nan", "nan", "finite"),
      Attention("mask=none", "scale=inf", "inf", "finite"),
      Attention("mask=none", "scale=-infinity", "-inf", "finite"),
      Attention("mask=none", "scale=1e999", "1e999", "out of range"),
      Attention("mask=none", "scale=1e-999", "1e-999", "out of range"),
      Attention("mask=none", "scale=0x1p-3", "0x1p-3", "is not a number"),
      Attention("mask=none", "scale=2^1024", "1024", "1024 is outside -1074..1023"),
      Attention("mask=none", "scale=2^-1075", "-1075", "outside -1074..1023"),
      Attention("mask=none", "scale=2^", " data", "'' is not an integer"),
      Attention("mask=none", "softcap=0", "0 data", "softcap is positive"),
      Attention("mask=none", "softcap=-30", "-30", "softcap is positive"),
      // Data.
      Codec("gauss:1", "gauss:1:2", "gauss", "REGIME:SEED"),
      Codec("gauss:1", ":1", ":1", "REGIME:SEED"),
      Codec("gauss:1", "Gauss:1", "Gauss", "lower-case"),
      Codec("gauss:1", "file:xyz", "xyz", "hexadecimal"),
      Codec("gauss:1", "file:", "", "hexadecimal"),
      Codec("gauss:1", "file:ab:cd", "file", "REGIME:SEED"),
      // Types and formats.
      Codec("op=encode", "op=enc", "enc ", "'enc' is not one of encode, decode, round_trip"),
      Codec("x=f32", "x=i32", "i32", "expected f64, f32, f16 or bf16"),
      Codec("x=f32", "x=F32", "F32", "expected f64"),
      Codec("format=f16", "format=i8", "i8", "'i8' is not a format"),
      Codec("format=f16", "format=f16:", "f16:", "'f16:' is not a format"),
      Codec("format=f16", "format=f8e8m0fnu", "f8e8", "is not a format"),
      Codec("format=f16", "format=affine", "affine", "affine:BITS:gGROUP:SCALE_TYPE"),
      Codec("format=f16", "format=affine:4:g64", "affine", "affine:BITS:gGROUP:SCALE_TYPE"),
      Codec("format=f16", "format=affine:7:g64:f32", "7:g64", "affine bits are 2, 3, 4, 5, 6 or 8"),
      Codec("format=f16", "format=affine:4:g48:f32", "g48", "affine groups are g32, g64 or g128"),
      Codec("format=f16", "format=affine:4:64:f32", "64:f32", "a group is written g32"),
      Codec("format=f16", "format=affine:4:g64:f64", "f64 x", "affine scales are f32, f16 or bf16"),
      Codec("format=f16", "format=affine:4:g64:f32:x", "affine", "affine:BITS:gGROUP:SCALE_TYPE"),
      // Masks.
      Attention("none", "causal", "causal",
                "'causal' can be two masks: causal_bottom_right (the last query sees every key, as "
                "the kernels of LLMs mean it"),
      Attention("none", "is_causal+window:4", "is_causal",
                "or causal_top_left (the first query sees"),
      Attention(
          "mask=none", "window=8", "window",
          "unknown key 'window': a term of the mask says it: "
          "mask=causal_bottom_right+window:8 (a query sees itself and the keys before it, 8 in "
          "all)"),
      Attention("mask=none", "sliding_window=all", "sliding_window",
                "mask=causal_bottom_right+window:8"),
      Attention("mask=none", "causal=1", "causal", "says it: mask=causal_bottom_right (the last"),
      Attention("none", "", " data", "is not a mask term"),
      Attention("none", "none+causal_top_left", "none", "is not a mask term"),
      Attention("none", "causal_top_left:1", "causal", "expected causal_top_left"),
      Attention("none", "causal_top_left+causal_bottom_right", "causal_bottom", "once each"),
      Attention("none", "window:4+causal_top_left", "causal", "in the order causal, window"),
      Attention("none", "window:4+window:5", "window:5", "once each"),
      Attention("none", "bool:LT+left_pad:0,1", "left_pad", "in the order"),
      Attention("none", "bool:LT+additive:LT:f32", "additive", "once each"),
      Attention("none", "window", "window", "expected window:TOKENS"),
      Attention("none", "window:0", "0 data", "0 is outside 1.."),
      Attention("none", "left_pad:1,", " data", "'' is not an integer"),
      Attention("none", "left_pad:1,-1", "-1", "-1 is outside 0.."),
      Attention("none", "bool:TL", "TL", "mask axes are T, LT, B1LT, BHLT or B11T"),
      Attention("none", "bool:1HLT", "1HLT",
                "mask axes are T, LT, B1LT, BHLT or B11T; for '1HLT' write BHLT: a mask of every "
                "batch row, head and query, each stored"),
      Attention("none", "bool:11LT", "11LT", "for '11LT' write LT: one mask for all batch rows"),
      Attention("none", "bool:BLT", "BLT", "for 'BLT' write B1LT: one mask a batch row"),
      Attention("none", "bool:bt", "bt", "for 'bt' write B11T: one row of keys a batch row"),
      Attention("none", "bool:1,1,1,T", "1,1,1,T", "for '1,1,1,T' write T: one row of keys"),
      Attention("none", "bool:BHQK", "BHQK", "for 'BHQK' write BHLT"),
      Attention("none", "additive:LT", "additive", "expected additive:AXES:TYPE"),
      Attention("none", "additive:LT:i8", "i8", "an additive mask is f64, f32, f16 or bf16"),
      Attention("none", "causal_top_left+", " data", "'' is not a mask term"),
      // Other fields of attention.
      Attention("mask=none", "layout=ragged", "ragged",
                "layout is dense: K and V as (B, Hkv, T, D); other orders, pages and packed "
                "sequences are judged by the Python package, kvcheck.judge_attention"),
      Attention("mask=none", "alibi=no", "no data", "alibi=yes, or leave it out"),
      Attention("mask=none", "lse=log2", "log2", "is not one of none, natural, base2"),
      Attention("mask=none", "against=stores", "stores", "is not one of stored, original"),
      Attention("mask=none", "sinks=f8e5m2", "f8e5m2", "expected f64, f32, f16 or bf16"),
      // Tensors.
      TensorRow("dtype=f32", "dtype=f33", "f33", "unknown type"),
      TensorRow("2x3", "2x", " rule", "'' is not an integer"),
      TensorRow("2x3", "2X3", "2X3", "'2X3' is not an integer"),
      TensorRow("2x3", "2x-1", "-1", "-1 is outside 0.."),
      TensorRow("2x3", "2x3 axes=T", "T rule", "one axis name per extent"),
      TensorRow("2x3", "2x3 axes=T,Q", "Q", "axes are B, Hq"),
      TensorRow("2x3", "scalar axes=T", "T rule", "one axis name per extent"),
      TensorRow("exact", "ulp:-1", "-1", "-1 is outside 0.."),
      TensorRow("exact", "ulp:1,abs:2", "ulp", "ulp:N stands alone"),
      TensorRow("exact", "abs:1,ulp:2", "ulp", "a rule is exact"),
      TensorRow("exact", "abs:1,abs:2", "abs:2", "a rule is exact"),
      TensorRow("exact", "abs:-1", "-1", "a tolerance is at least 0"),
      TensorRow("exact", "rel:nan", "nan", "finite"),
      TensorRow("exact", "within", "within", "a rule is exact"),
      // Plans.
      plan("base=fastest", "fastest", "'fastest' is not a known plan"),
      plan("base=", "", "'' is not a known plan"),
      plan("plain_f32 base=stranger", "stranger", "the plan is named before"),
      plan("p=f32 plain_f32", "plain_f32", "expected key=value"),
      plan("plain_f64", "plain_f64", "did you mean 'plain_f32'?"),
      plan("name=", "", "a plan's name"),
      plan("name=a=b", "a=b", "a plan's name"),
      plan("speed=1", "speed", "unknown key 'speed'; known: base, name"),
      plan("qk=f32", "f32", "a sum is written TYPE:ORDER"),
      plan("qk=i32:pairwise", "i32", "expected a float type"),
      plan("qk=f32.rn:pairwise", "f32.rn", "f32.rz (toward zero)"),
      plan("qk=f32.rz.rz:pairwise", "f32.rz.rz", "f32.rz (toward zero)"),
      plan("qk=f32:random", "random", "is not one of sequential, lanes"),
      plan("qk=f32:lanes", "f32:lanes", "the number of lanes is missing"),
      plan("qk=f32:lanes:0", "0", "0 is outside 1.."),
      plan("qk=f32:lanes:8:9", "9", "at most one 'fma'"),
      plan("qk=f32:pairwise:fma:fma", "fma", "at most one 'fma'"),
      plan("qk=f32:tensor_core:16", "f32:t", "the number of aligned bits is missing"),
      plan("qk=f32:tensor_core:16:53", "53", "53 is outside 2..52"),
      plan("exp_error=1", "1", "at least 0 and below 1"),
      plan("exp_error=-2^-20", "-2^-20", "is not a number"),
      plan("block=0", "0", "0 is outside 1.."),
      plan("splits=0", "0", "0 is outside 1.."),
      plan("scale_roundings=1073741825", "1073741825", "outside 0..1073741824"),
      plan("prescale=f16", "f16", "none or TYPE:ROUNDINGS"),
      plan("fixed_q=1", "1", "at least 0 and below 1"),
      plan("fixed_p=-1", "-1", "at least 0 and below 1"),
      plan("prescale=f16:0", "0", "0 is outside 1..8"),
      plan("p_scale=0", "0", "p_scale is positive"),
      plan("lazy_rescale=-1", "-1", "at least 0"),
      plan("flush=1", "1", "'1' is not one of yes, no"),
      plan("dequantize=inside", "inside", "inside:ROUNDINGS"),
      plan("dequantize=stored:1", "stored", "inside:ROUNDINGS"),
      plan("dequantize=rounded:i8", "i8", "expected a float type"),
      plan("dequantize=rotated", "rotated", "rotated:ROUNDINGS"),
      plan("dequantize=rotated:1025", "1025", "1024"),
      // Profiles.
      profile("masked_row=zeros", "zeros", "is not one of zero, nan, mean, any"),
      profile("mask_value=inf", "inf", "finite"),
      profile("mask_value=", "", "is not a number"),
      profile("decode=exact decode=exact", "decode=exact", "given twice"),
      profile("encode=mlx", "mlx", "is not one of mlx_cpu, mlx_gpu, kivi"),
      profile("rounding=up", "rounding", "unknown key 'rounding'"),
      // Rules.
      TensorRow("exact", "derived", "derived", "a rule between two tensors"),
      TensorRow("exact", "codec:f16", "codec", "a rule between two tensors"),
      rule("", "", "a rule is exact"),
      rule("Derived", "Derived", "a rule is exact"),
      rule("derived:1", "derived", "a rule is exact"),
      rule("codec", "codec", "a rule is exact"),
      rule("codec:", "", "'' is not a format"),
      rule("codec:f16:", "f16:", "'f16:' is not a format"),
      rule("codec:i8", "i8", "'i8' is not a format"),
      rule("codec:affine", "affine", "affine:BITS:gGROUP:SCALE_TYPE"),
      rule("codec:affine:4:g64:r3:f16", "affine:4:g64:r3:f16", "leave the residual out"),
      rule("codec:affine:4", "affine", "affine:BITS:gGROUP:SCALE_TYPE"),
      rule("codec:affine:7:g64", "7", "affine bits are"),
      rule("codec:affine:4:g48", "g48", "affine groups are"),
      rule("codec:affine:4:g64:", "", "affine scales are"),
      rule("codec:affine:4:g64:f64", "f64", "affine scales are"),
      rule("codec:affine:4:g64:f32:x", "affine", "affine:BITS:gGROUP:SCALE_TYPE"),
      rule("codec:affine:4:g64,", "", "the fields of a codec rule are"),
      rule("codec:affine:4:g64,abs:1", "abs", "the fields of a codec rule are"),
      rule("codec:affine:4:g64,decode", "", "'' is not one of exact"),
      rule("codec:affine:4:g64,decode=twice", "twice", "is not one of exact, two_roundings"),
      rule("codec:affine:4:g64,decode=exact,decode=exact", "decode", "'decode' is given twice"),
      rule("codec:affine:4:g64,encode=mlx", "mlx", "is not one of mlx_cpu, mlx_gpu, kivi"),
      rule("codec:affine:4:g64,fp8_overflow=nan", "fp8", "a choice of fp8 formats alone"),
      rule("codec:f16,fp8_overflow=nan", "fp8", "a choice of fp8 formats alone"),
      rule("codec:f8e5m2,decode=exact", "decode", "a choice of formats whose values are rounded"),
      rule("codec:q8_0:f32", "q8_0", "is not a format"),
      rule("codec:q8_0,encode=mlx_cpu", "encode", "a choice of affine formats alone"),
      rule("codec:q8_0,codes=exact", "codec", "codes=exact needs ggml_encode="),
      rule("codec:mxfp4,codes=exact", "codec", "codes=exact needs mx_encode="),
      rule("codec:nvfp4,codes=exact", "codec", "codes=exact needs nvfp4_encode="),
      rule("codec:nvfp4,mx_encode=ocp", "mx_encode", "a choice of mxfp4 and mxfp8 alone"),
      rule("codec:nvfp4,decode=exact", "decode",
           "a choice of formats whose values are rounded alone"),
      rule("codec:mxfp4:g32", "g32", "blocks of mxfp4 have 32 channels"),
      rule("codec:mxfp4:f64", "f64", "rows are f32, f16 or bf16"),
      rule("codec:mxfp8:f32", "f32", "elements of mxfp8 are e4m3 or e5m2"),
      rule("codec:nvfp4:x0", "x0", "a global scale is a number from 2^-100 to 2^100"),
      rule("codec:nvfp4:x1", "x1", "a global scale of 1 is left out"),
      rule("codec:affine:4:g64,ggml_encode=x86", "ggml_encode", "a choice of ggml formats alone"),
      rule("codec:f8e5m2,codes=exact", "codes", "a choice of formats with codes alone"),
      rule("codec:affine:4:g64,encode=mlx_cpu,codes=equal", "equal", "codes=exact, or leave"),
      rule("codec:affine:4:g64,codes=exact", "codec", "codes=exact needs encode="),
      rule("codec:int8:token,codes=exact", "codec", "codes=exact needs token_encode="),
      rule("codec:int8:s0.5,token_encode=vllm", "token_encode", "a choice of formats with a scale"),
      rule("codec:int8:token,fp8_overflow=nan", "fp8", "a choice of fp8 formats alone"),
      rule("codec:fp8:e4m3:token", "e4m3", "is not one of e4m3fn, e5m2"),
      rule("codec:fp8:e4m3fn:row", "row", "the scale's place is"),
      rule("codec:fp8:e4m3fn:s0", "s0", "a scale lies between"),
      rule("codec:fp8:e4m3fn:s-1", "s-1", "a scale lies between"),
      rule("codec:fp8:e4m3fn:snan", "nan", ""),
      rule("codec:fp8:e4m3fn:h1/0", "0", "a scale lies between"),
      rule("codec:fp8:e4m3fn:h1/", "", ""),
      rule("codec:fp8:e4m3fn:h1/1/1/1/1/1/1/1/1/1/1/1/1/1/1/1/1", "h1", "16 heads at most"),
      rule("codec:fp8:e4m3fn:token:f64", "f64", "rows are f32, f16 or bf16"),
      rule("codec:fp8:e4m3fn", "fp8", "are written fp8:CODE:PLACE:TYPE"),
      rule("codec:int8:token:f16:x", "int8", "are written fp8:CODE:PLACE:TYPE"),
      rule("codec:uniform:5:token:f16", "5", "uniform codes have 3 or 4 bits"),
      rule("codec:uniform:4:s2:f16", "s2", "the place of scale and minimum is"),
      rule("codec:uniform:4:token:u8", "u8", "rows are f32, f16 or bf16"),
      rule("codec:uniform:4:token:f16:x", "uniform", "are written uniform:BITS:PLACE:TYPE"),
      rule("codec:int4zp:s2:f16", "s2", "the scale's place is"),
      rule("codec:int4zp:token:u8", "u8", "rows are f32, f16 or bf16"),
      rule("codec:int4zp:token:f16:x", "int4zp", "are written int4zp:PLACE:TYPE"),
  };
}

void Parse(What what, const std::string& text) {
  switch (what) {
    case What::kCase:
      ParseCase(text);
      return;
    case What::kPlan:
      ParsePlan(text);
      return;
    case What::kProfile:
      ParseProfile(text);
      return;
    case What::kRule:
      ParseToleranceRule(WholeLine(text));
      return;
  }
}

TEST(MalformedText, IsRefusedWithItsColumnAndReason) {
  for (const std::string& valid : {kCodec, kTensor, kAttention}) EXPECT_NO_THROW(ParseCase(valid));
  for (const Malformed& row : Table()) {
    try {
      Parse(row.what, row.text);
      ADD_FAILURE() << "accepted: " << row.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse) << row.text << "\n  " << error.what();
      EXPECT_EQ(error.context(), "column " + std::to_string(ExpectedColumn(row)))
          << row.text << "\n  " << error.what();
      // The text itself follows the reason; it must not be what is found.
      const std::string reason = error.message().substr(0, error.message().rfind(" (in '"));
      EXPECT_NE(reason.find(row.reason), std::string::npos) << row.text << "\n  " << error.what();
    }
  }
}

TEST(MalformedText, MessageIsPrintableWhateverTheTextHolds) {
  std::string text = "codec op=";
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  for (const std::string& line : {text, text.substr(9) + " op=encode"}) {
    try {
      ParseCase(line);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      for (char c : std::string(error.what())) {
        EXPECT_TRUE(c >= 0x20 && c <= 0x7e) << static_cast<int>(c);
      }
    }
  }
}

struct Illegal {
  std::string text;
  ErrorCode code;
  std::string reason;
};

TEST(IllegalCase, IsRefusedWithItsReason) {
  const auto attention = [](std::string_view from, std::string_view to) {
    return Replaced(kAttention, from, to);
  };
  const auto tensor = [](std::string_view from, std::string_view to) {
    return Replaced(kTensor, from, to);
  };
  const ErrorCode illegal = ErrorCode::kIllegalCase;
  const std::vector<Illegal> table = {
      {attention("hq=4", "hq=3"), illegal, "hq=3 is not a multiple of hkv=2"},
      {attention("hq=4", "hq=1"), illegal, "hq=1 is not a multiple of hkv=2"},
      {attention("k=bf16", "k=affine:4:g128:f32"), illegal, "head_dim 64 is not a multiple"},
      {attention("v=bf16 out=f32", "v=affine:4:g64:f32 out=f32 dv=80"), illegal, "head_dim 80"},
      {attention("none", "left_pad:0"), illegal, "left_pad names 1 rows, the batch has 2"},
      {attention("none", "left_pad:0,0,0"), illegal, "left_pad names 3 rows"},
      {attention("none", "left_pad:0,10"), illegal, "left_pad 10 exceeds t=9"},
      {attention("mask=none", "against=original"), illegal, "against=original needs"},
      {attention("t=9", "t=2147483648"), ErrorCode::kUnsupported, ""},
      {attention("b=2 hq=4 hkv=2 l=2 t=9", "b=2048 hq=4 hkv=2 l=2 t=2147483648"), illegal,
       "exceed"},
      {attention("l=2", "l=2147483648"), ErrorCode::kUnsupported, ""},
      {attention("b=2 hq=4 hkv=2 l=2", "b=2 hq=2048 hkv=2 l=2147483648"), illegal, "exceed"},
      {attention("l=2 t=9", "l=65536 t=67108864"), ErrorCode::kUnsupported, ""},
      {Replaced(attention("l=2 t=9", "l=1048576 t=4194304"), "none", "bool:LT"), illegal, "exceed"},
      {attention("mask=none", "layout=paged"), ErrorCode::kUnsupported,
       "kvcheck.judge_attention(out, q, k, v, block_table=..., kv_lens=...)"},
      {attention("mask=none", "layout=packed"), ErrorCode::kUnsupported,
       "cu_seqlens_q=..., cu_seqlens_k=...)"},
      {Replaced(kCodec, "format=f16", "format=affine:4:g128:f32"), illegal, "head_dim 64"},
      {Replaced(kCodec, "rows=4 d=64", "rows=2147483648 d=2147483648"), illegal, "exceed"},
      {tensor("2x3", "2147483648x2147483648"), illegal, "exceed"},
      {tensor("2x3", "2147483648x0x2147483648x2147483648"), illegal, "exceed"},
      {tensor("dtype=f32 shape=2x3 rule=exact", "dtype=u8 shape=2x3 rule=ulp:1"), illegal, "float"},
  };
  for (const Illegal& row : table) {
    if (row.reason.empty()) {
      EXPECT_NO_THROW(ParseCase(row.text)) << row.text;
      continue;
    }
    try {
      ParseCase(row.text);
      ADD_FAILURE() << "accepted: " << row.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), row.code) << row.text << "\n  " << error.what();
      EXPECT_NE(std::string(error.what()).find(row.reason), std::string::npos)
          << row.text << "\n  " << error.what();
    }
  }
}

// A case built in code must not reach arithmetic when its text would not parse.
TEST(IllegalCase, ValuesThatHaveNoTextAreRefusedByValidate) {
  const auto refuses = [](const Case& c) {
    try {
      Validate(c);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kIllegalCase;
    }
  };
  AttentionCase good;
  good.data = {"gauss", 1, ""};
  EXPECT_FALSE(refuses(good));
  for (int64_t AttentionCase::* extent :
       {&AttentionCase::batch, &AttentionCase::query_heads, &AttentionCase::kv_heads,
        &AttentionCase::query_len, &AttentionCase::kv_len, &AttentionCase::k_dim,
        &AttentionCase::v_dim}) {
    for (int64_t value : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
      AttentionCase c = good;
      c.*extent = value;
      EXPECT_TRUE(refuses(c)) << value;
    }
  }
  for (double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    AttentionCase c = good;
    c.scale = value;
    EXPECT_TRUE(refuses(c));
    c = good;
    c.softcap = value;
    EXPECT_TRUE(refuses(c));
    TensorCase t;
    t.data = good.data;
    t.rule = AbsRelRule{value, 0};
    EXPECT_TRUE(refuses(t));
    t.rule = AbsRelRule{0, value};
    EXPECT_TRUE(refuses(t));
  }
  AttentionCase c = good;
  c.softcap = 0;
  EXPECT_TRUE(refuses(c));
  c = good;
  c.mask.window = 0;
  EXPECT_TRUE(refuses(c));
  c = good;
  c.mask.left_padding = {-1};
  EXPECT_TRUE(refuses(c));
  for (const DType type : {DType::kInt8, DType::kFloat8E4M3FN}) {
    c = good;
    c.q = type;
    EXPECT_TRUE(refuses(c));
    c = good;
    c.out = type;
    EXPECT_TRUE(refuses(c));
    c = good;
    c.sinks = type;
    EXPECT_TRUE(refuses(c));
  }
  c = good;
  c.k = PlainFormat{DType::kInt8};
  EXPECT_TRUE(refuses(c));
  c = good;
  c.v = AffineFormat{4, 48, DType::kFloat32};
  EXPECT_TRUE(refuses(c));
  for (const char* regime : {"", "Gauss", "two words", "a:b"}) {
    c = good;
    c.data.regime = regime;
    EXPECT_TRUE(refuses(c)) << regime;
  }
  c = good;
  c.data = {"file", 0, "XYZ"};
  EXPECT_TRUE(refuses(c));
  CodecCase codec;
  codec.data = good.data;
  EXPECT_FALSE(refuses(codec));
  codec.rows = -1;
  EXPECT_TRUE(refuses(codec));
  TensorCase tensor;
  tensor.data = good.data;
  EXPECT_FALSE(refuses(tensor));
  tensor.shape = Shape::Unnamed({2, -1});
  EXPECT_TRUE(refuses(tensor));
  tensor.shape = {{"Q", 2}};
  EXPECT_TRUE(refuses(tensor));
  tensor.shape = {};
  tensor.rule = DerivedRule{};
  EXPECT_TRUE(refuses(tensor));
  tensor.rule = CodecRule{};
  EXPECT_TRUE(refuses(tensor));
  tensor.rule = UlpRule{-1};
  EXPECT_TRUE(refuses(tensor));
}

TEST(CaseText, AnyWhiteSpaceSeparatesFields) {
  EXPECT_EQ(
      Print(ParseCase("  codec\top=encode   format=f16 x=f32\n\trows=4 d=64 data=gauss:1 \r\n")),
      Print(ParseCase(kCodec)));
  EXPECT_EQ(Print(ParsePlan(" base=plain_f32\n")), Print(ParsePlan("base=plain_f32")));
  const std::string trace = "cache k=f32 dk=8 data=tokens:1; new A; append A 3; trim A 1";
  EXPECT_EQ(
      Print(ParseCase(" cache  k=f32\tdk=8 data=tokens:1 ;  new A ; append  A  3;\ttrim A 1  ")),
      Print(ParseCase(trace)));
}

}  // namespace
}  // namespace kvcheck
