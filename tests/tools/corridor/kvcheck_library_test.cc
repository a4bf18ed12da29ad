#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "optimized/cache/cache_factory.h"
#include "tests/tools/corridor/waves.h"
#include "tools/corridor/kvcheck.h"
#include "tools/corridor/registry.h"

namespace kvcheck {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTokens = 5, kDim = 8;

Array Of(const std::vector<float>& x, const std::vector<int64_t>& extents) {
  return {DType::kFloat32, extents, x.data()};
}

// One head of one query that sees every key.
std::vector<float> Attended(const std::vector<float>& q, const std::vector<float>& k,
                            const std::vector<float>& v) {
  std::vector<double> p;
  double sum = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    double dot = 0;
    for (int64_t d = 0; d < kDim; ++d) {
      dot += static_cast<double>(q[static_cast<size_t>(d)]) *
             static_cast<double>(k[static_cast<size_t>(t * kDim + d)]);
    }
    p.push_back(std::exp(dot / std::sqrt(static_cast<double>(kDim))));
    sum += p.back();
  }
  std::vector<float> out;
  for (int64_t d = 0; d < kDim; ++d) {
    double o = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      o += p[static_cast<size_t>(t)] / sum *
           static_cast<double>(v[static_cast<size_t>(t * kDim + d)]);
    }
    out.push_back(static_cast<float>(o));
  }
  return out;
}

class KvcheckLibrary : public ::testing::Test {
 protected:
  AttentionCall Call() const {
    AttentionCall call;
    call.q = Of(q_, {1, 1, 1, kDim});
    call.k = Of(k_, {1, 1, kTokens, kDim});
    call.v = Of(v_, {1, 1, kTokens, kDim});
    call.out = Of(out_, {1, 1, 1, kDim});
    return call;
  }
  static ErrorCode CodeOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::kUsage;
  }

  std::vector<float> q_ = Waves(kDim, 0);
  std::vector<float> k_ = Waves(kTokens * kDim, 1);
  std::vector<float> v_ = Waves(kTokens * kDim, 2);
  std::vector<float> out_ = Attended(q_, k_, v_);
};

TEST_F(KvcheckLibrary, RightAttentionPassesAndAWrongElementFails) {
  EXPECT_EQ(JudgeAttention(Call()).outcome, Outcome::kPass);
  out_[3] += 0.01f;
  const Verdict verdict = JudgeAttention(Call());
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs.at(0).counts.failed, 1);
  EXPECT_EQ(ExitCodeOf(verdict), 1);
  EXPECT_THAT(TextOf(verdict), HasSubstr("FAIL  attention  out[b=0, hq=0, l=0, dv=3]"));
  EXPECT_THAT(JsonOf(verdict), HasSubstr("\"outcome\": \"FAIL\""));
}

TEST_F(KvcheckLibrary, StridesReachEveryElementOfATransposedArray) {
  std::vector<float> transposed(k_.size());
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t d = 0; d < kDim; ++d) {
      transposed[static_cast<size_t>(d * kTokens + t)] = k_[static_cast<size_t>(t * kDim + d)];
    }
  }
  AttentionCall call = Call();
  call.k = Of(transposed, {1, 1, kTokens, kDim});
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kFail);
  const int64_t f32 = sizeof(float);
  call.k.strides_bytes = {kTokens * kDim * f32, kTokens * kDim * f32, f32, kTokens * f32};
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kPass);
}

TEST_F(KvcheckLibrary, EachOptionalArrayAndSettingTakesPart) {
  // A sink and an lse: the right output of the call without them fails.
  const std::vector<float> sink = {1.0f};
  AttentionCall call = Call();
  call.sinks = Of(sink, {1});
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kFail);
  const std::vector<float> lse = {0.0f};
  call = Call();
  call.lse = Of(lse, {1, 1, 1});
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kFail);
  call = Call();
  call.scale = 1;
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kFail);
  call = Call();
  call.softcap = 0.5;
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kFail);
  call = Call();
  call.mask = "window:2";
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kFail);
  // Rounded once from double, it is within the bound of a plan that states f32 sums.
  Settings settings;
  settings.plan = "base=plain_f32";
  EXPECT_EQ(JudgeAttention(Call(), settings).outcome, Outcome::kPass);
}

// Rows of normal numbers: half a step of four bits is more than a tenth of most of them, and a code
// beside the right one is farther away all the same.
TEST(KvcheckLibraryRows, RightCodesOfFourBitsPassAndAWrongOneFails) {
  constexpr int64_t kRows = 6, kWide = 128;
  const TensorMap drawn =
      DrawInputs("codec op=round_trip format=f32 x=f32 rows=6 d=128 data=gauss:1");
  const Tensor& rows = drawn.at("x");
  const Array x{DType::kFloat32, {kRows, kWide}, rows.bytes.data()};
  for (const char* format : {"q4_0", "affine:4:g64:f32", "nvfp4:f32", "mxfp4:f32", "iq4_nl"}) {
    TensorMap planes = EncodeRows(x, format);
    Arrays stored;
    for (const auto& [name, plane] : planes) {
      stored[name] = {plane.dtype, {kRows, plane.shape.RowLength()}, plane.bytes.data()};
    }
    const Verdict verdict = JudgeStoredRows(x, stored, format);
    EXPECT_EQ(verdict.outcome, Outcome::kPass) << format << TextOf(verdict);
    // The code of row 0's first or second channel, another one.
    const bool is_block = planes.size() == 1;  // a scale of two bytes, then codes
    Tensor& codes = is_block ? planes.begin()->second : planes.at("codes");
    std::byte& code = codes.bytes[is_block ? 2 : 0];
    const std::byte right = code;
    code ^= std::byte{0x44};
    EXPECT_EQ(JudgeStoredRows(x, stored, format).outcome, Outcome::kFail) << format;
    code = right;
    // Rows of others.
    Array reversed = x;
    reversed.data = rows.bytes.data() + (kRows - 1) * kWide * 4;
    reversed.strides_bytes = {-kWide * 4, 4};
    EXPECT_EQ(JudgeStoredRows(reversed, stored, format).outcome, Outcome::kFail) << format;
    stored.begin()->second.extents[0] = kRows - 1;
    EXPECT_EQ(JudgeStoredRows(x, stored, format).outcome, Outcome::kFail) << format;
  }
}

TEST_F(KvcheckLibrary, ErrorsHaveTheirTypes) {
  AttentionCall call = Call();
  call.mask = "no such mask";
  EXPECT_EQ(CodeOf([&] { JudgeAttention(call); }), ErrorCode::kParse);
  call = Call();
  call.v = Of(v_, {1, 1, kTokens - 1, kDim});
  EXPECT_EQ(CodeOf([&] { JudgeAttention(call); }), ErrorCode::kMissingData);
  call = Call();
  call.q.extents = {1, kDim};
  EXPECT_EQ(CodeOf([&] { JudgeAttention(call); }), ErrorCode::kIllegalCase);
  call = Call();
  call.v.data = nullptr;
  EXPECT_EQ(CodeOf([&] { JudgeAttention(call); }), ErrorCode::kMissingData);
  call = Call();
  call.k.strides_bytes = {4};
  EXPECT_EQ(CodeOf([&] { JudgeAttention(call); }), ErrorCode::kMissingData);
  call = Call();
  call.out.extents = {1, 1, -1, kDim};
  EXPECT_EQ(CodeOf([&] { JudgeAttention(call); }), ErrorCode::kMissingData);
  Settings settings;
  settings.plan = "base=nobody";
  EXPECT_EQ(CodeOf([&] { JudgeAttention(Call(), settings); }), ErrorCode::kParse);
  EXPECT_EQ(CodeOf([&] { JudgeCase("codec round_trip", {}, {}); }), ErrorCode::kParse);
}

TEST_F(KvcheckLibrary, AnOutputThatIsMissingOrOfAnotherShapeIsAVerdict) {
  AttentionCall call = Call();
  const std::vector<float> half(out_.begin(), out_.begin() + kDim / 2);
  call.out = Of(half, {1, 1, 1, kDim / 2});
  EXPECT_EQ(JudgeAttention(call).outcome, Outcome::kFail);
}

TEST_F(KvcheckLibrary, WorkIsCutShortWhereTheCallerSaysSo) {
  Settings settings;
  settings.cancelled = [] { return true; };
  EXPECT_THROW(JudgeAttention(Call(), settings), Cancelled);
  EXPECT_THROW(JudgeArrays(Of(q_, {kDim}), Of(q_, {kDim}), "exact", settings), Cancelled);
  optimized::OptimizedCacheFactory caches;
  int asked = 0;
  settings.cancelled = [&] { return ++asked == 2; };
  EXPECT_THROW(JudgeCache("cache layout=linear k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 growth=8 "
                          "observe=each data=tokens:1; new A rows=1; append A 1; append A 1",
                          &caches, settings),
               Cancelled);
  EXPECT_EQ(asked, 2);
}

TEST_F(KvcheckLibrary, CodecRowsAreJudgedByTheirBytes) {
  const std::vector<float> x = {1.0f, 0.5f, -0.25f, 3.0f};
  std::vector<uint16_t> codes = {0x3f80, 0x3f00, 0xbe80, 0x4040};
  const auto judge = [&] {
    return JudgeCase("codec op=encode format=bf16 x=f32 rows=1 d=4 data=file",
                     {{"x", Of(x, {1, 4})}}, {{"codes", {DType::kBFloat16, {1, 4}, codes.data()}}})
        .outcome;
  };
  EXPECT_EQ(judge(), Outcome::kPass);
  codes[2] ^= 1;
  EXPECT_EQ(judge(), Outcome::kFail);
}

TEST_F(KvcheckLibrary, ArraysAreComparedByTheirRule) {
  const std::vector<float> want = {1.0f, 2.0f}, got = {1.0f, std::nextafter(2.0f, 3.0f)};
  EXPECT_EQ(JudgeArrays(Of(want, {2}), Of(got, {2}), "exact").outcome, Outcome::kFail);
  EXPECT_EQ(JudgeArrays(Of(want, {2}), Of(got, {2}), "ulp:1").outcome, Outcome::kPass);
}

TEST_F(KvcheckLibrary, CachesOfThisProcessRunATrace) {
  const std::string text =
      "cache layout=ring:w=2 k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 growth=8 observe=each "
      "data=tokens:1; new A rows=1; append A 10; merge A -> A";
  optimized::OptimizedCacheFactory caches;
  const Verdict right = JudgeCache(text, &caches);
  EXPECT_EQ(right.outcome, Outcome::kPass) << TextOf(right);
  const Verdict wrong = JudgeCache(text, MakeCacheFactory("fault:merge_of_wrapped_ring").get());
  EXPECT_EQ(wrong.outcome, Outcome::kFail) << TextOf(wrong);
  EXPECT_EQ(CodeOf([&] {
              JudgeCache("codec op=encode format=bf16 x=f32 rows=1 d=4 data=file", &caches);
            }),
            ErrorCode::kIllegalCase);
}

TEST_F(KvcheckLibrary, PrefixCachesOfThisProcessRunAHistory) {
  const std::string text =
      "prefix block=1 tokens=8 layers=1 dk=16 data=tokens:1; open A 0,1 salt=a; write A; close A "
      "keep; open A 0,1 salt=b; write A; close A; open B 0,1 salt=a; read B";
  const auto judge = [&](const std::string& name) {
    return JudgePrefix(text, MakePrefixImplementation(name).get());
  };
  const Verdict right = judge("optimized");
  EXPECT_EQ(right.outcome, Outcome::kPass) << TextOf(right);
  const Verdict wrong = judge("fault:salt_not_in_key");
  EXPECT_EQ(wrong.outcome, Outcome::kFail) << TextOf(wrong);
  EXPECT_THAT(TextOf(wrong), HasSubstr("other_tenant"));
  Settings cut_short;
  cut_short.cancelled = [] { return true; };
  EXPECT_THROW(JudgePrefix(text, MakePrefixImplementation("optimized").get(), cut_short),
               Cancelled);
  const auto model = MakePrefixImplementation("optimized");
  EXPECT_EQ(CodeOf([&] {
              JudgePrefix("codec op=encode format=bf16 x=f32 rows=1 d=4 data=file", model.get());
            }),
            ErrorCode::kIllegalCase);
}

}  // namespace
}  // namespace kvcheck
