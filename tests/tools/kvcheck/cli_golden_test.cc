// kvcheck golden: make, verify, show.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>

#include "golden/reader.h"
#include "golden/writer.h"
#include "reference/formats/codec.h"
#include "reference/spec/case.h"
#include "tests/golden/golden_samples.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

class GoldenCommand : public ToolTest {};

TEST_F(GoldenCommand, MadeFileVerifies) {
  for (const char* text : {kAttentionCase, kCodecCase}) {
    const ToolRun made = Tool({"golden", "make", "--case", text, "--name", "a", "-o", "g.h5"});
    ASSERT_EQ(made.exit_code, 0) << made.out << made.err;
    const ToolRun verified = Tool({"golden", "verify", "g.h5"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out;
    EXPECT_TRUE(verified.out.starts_with("PASS  a/expected  ")) << verified.out;
  }
}

// Of a stored answer and of stored inputs, the plane that is missing and those that are there.
TEST_F(GoldenCommand, MissingPlaneIsNamed) {
  const KvFormat format = ParseKvFormat(WholeLine("affine:4:g64:f32"));
  const Tensor x = golden_samples::Counting(DType::kFloat32, {{"T", 3}, {"Dk", 64}});
  const TensorMap planes = EncodeRows(format, Profile(), x);
  for (const auto& [gone, tensor] : planes) {
    TensorMap rest = planes;
    rest.erase(gone);
    GoldenCase encode;
    encode.name = "encode";
    encode.case_text = "codec op=encode format=affine:4:g64:f32 x=f32 rows=3 d=64 data=file";
    encode.inputs = {{"x", x}};
    ObservedRecord answer;
    answer.impl = "lib";
    answer.expect = "PASS";
    answer.outputs = rest;
    encode.observed = {answer};
    GoldenCase decode = encode;
    decode.name = "decode";
    decode.case_text = "codec op=decode format=affine:4:g64:f32 x=f32 rows=3 d=64 data=file";
    decode.inputs = rest;
    decode.observed[0].outputs = {{"y", x}};
    WriteGoldenFile(Path("g.h5"), FileOf({decode, encode}));
    const ToolRun run = Tool({"golden", "verify", "g.h5"});
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
    std::string present;
    for (const auto& [name, stored] : rest) present += (present.empty() ? "" : ", ") + name;
    EXPECT_NE(run.out.find("missing; present: " + present + "; add it under this name"),
              std::string::npos)
        << run.out;
    EXPECT_NE(run.out.find("tensor '" + gone + "' is needed and absent; present: " + present +
                           "; add it under this name"),
              std::string::npos)
        << run.out;
  }
}

TEST_F(GoldenCommand, VerifySaysHowManyRowsFiftyDigitsReChecked) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  // A tile is the 2 query heads of a key/value head times 2 queries.
  EXPECT_NE(Tool({"golden", "verify", "g.h5", "--sample", "1"}).out.find("4 rows in 50 digits"),
            std::string::npos);
  EXPECT_EQ(Tool({"golden", "verify", "g.h5", "--sample", "0"}).out.find("50 digits"),
            std::string::npos);
}

TEST_F(GoldenCommand, OneUlpOfAStoredValueFails) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  GoldenFile file = GoldenReader::Open(Path("g.h5")).ReadAll();
  double* values = file.cases[0].expected.at("out").hi.As<double>();
  values[17] = std::bit_cast<double>(std::bit_cast<uint64_t>(values[17]) + 1);
  WriteGoldenFile(Path("wrong.h5"), file);
  const ToolRun run = Tool({"golden", "verify", "wrong.h5"});
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_NE(run.out.find("dv=17]"), std::string::npos) << run.out;
}

TEST_F(GoldenCommand, LowPartMatters) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  GoldenFile file = GoldenReader::Open(Path("g.h5")).ReadAll();
  Tensor& lo = *file.cases[0].expected.at("out").lo;
  for (int64_t i = 0; i < lo.ElementCount(); ++i) lo.As<double>()[i] *= -1;
  WriteGoldenFile(Path("wrong.h5"), file);
  EXPECT_EQ(Tool({"golden", "verify", "wrong.h5"}).exit_code, 1);
  // Without a low part, the high part is the value to half a unit in its last place.
  file.cases[0].expected.at("out").lo.reset();
  WriteGoldenFile(Path("high.h5"), file);
  const ToolRun run = Tool({"golden", "verify", "high.h5"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
}

TEST_F(GoldenCommand, WrongCodeFails) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kCodecCase, "-o", "g.h5"}).exit_code, 0);
  GoldenFile file = GoldenReader::Open(Path("g.h5")).ReadAll();
  file.cases[0].expected.at("codes").hi.As<double>()[3] += 1;
  WriteGoldenFile(Path("wrong.h5"), file);
  EXPECT_EQ(Tool({"golden", "verify", "wrong.h5"}).exit_code, 1);
}

TEST_F(GoldenCommand, ObservedOutputsAreHeldToTheirExpectation) {
  const auto verify = [&](const char* plan, const char* expect) {
    WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a", plan, expect)}));
    return Tool({"golden", "verify", "g.h5"});
  };
  EXPECT_EQ(verify(kHonestPlan, "PASS").exit_code, 0);
  EXPECT_EQ(verify(kBoastfulPlan, "PASS").exit_code, 1);
  const ToolRun known = verify(kBoastfulPlan, "FAIL");
  EXPECT_EQ(known.exit_code, 0) << known.out;
  EXPECT_TRUE(known.out.starts_with("FAIL, as expected  a/simulated  ")) << known.out;
  const ToolRun gone = verify(kHonestPlan, "FAIL");
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_NE(gone.out.find("expected FAIL (as the test says), got PASS"), std::string::npos);
  EXPECT_EQ(verify(kHonestPlan, "MISTRUSTED").exit_code, 1);
}

TEST_F(GoldenCommand, MakesACaseOfEachLayerOfAPromptCache) {
  const std::string dumps = std::string(KVCHECK_SOURCE_DIR) + "/golden/dumps/";
  for (const auto& [file, k, v] :
       {std::array{"cache.safetensors", "bf16", "bf16"},
        std::array{"cache_8bit.safetensors", "affine:8:g64:bf16", "affine:8:g64:bf16"},
        std::array{"cache_0_31_split.safetensors", "affine:8:g64:bf16", "affine:4:g64:bf16"}}) {
    const ToolRun made = Tool({"golden", "make", dumps + file, "-o", "g.h5"});
    ASSERT_EQ(made.exit_code, 0) << file << made.out << made.err;
    const ToolRun verified = Tool({"golden", "verify", "g.h5"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out;
    const GoldenFile golden = GoldenReader::Open(Path("g.h5")).ReadAll();
    ASSERT_EQ(golden.cases.size(), 5u) << file;
    const Case c = ParseCase(golden.cases[4].case_text);
    EXPECT_EQ(c, ParseCase(std::string("attention hq=2 hkv=2 l=1 t=13 d=64 q=bf16 k=") + k +
                           " v=" + v + " out=bf16 data=file"));
    EXPECT_EQ(golden.cases[4].inputs.count(std::string(k) == "bf16" ? "k" : "k_codes"), 1u);
  }
}

TEST_F(GoldenCommand, APromptCacheOfRingsIsRefusedByName) {
  const std::string header = R"({"0.0":{"dtype":"F32","shape":[1,1,1,2],"data_offsets":[0,8]},)"
                             R"("__metadata__":{"2.0":"RotatingKVCache"}})";
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  golden_samples::WriteBytes(Path("ring.safetensors"), bytes + header + std::string(8, '\0'));
  const ToolRun run = Tool({"golden", "make", "ring.safetensors", "-o", "g.h5"});
  EXPECT_EQ(run.exit_code, 2) << run.out;
  EXPECT_NE(run.err.find("layer 0: a RotatingKVCache holds no whole prompt"), std::string::npos)
      << run.err;
}

TEST_F(GoldenCommand, MakeKeepsWhatWasObserved) {
  WriteGoldenFile(Path("in.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS")}));
  const ToolRun made = Tool({"golden", "make", "in.h5", "-o", "out.h5"});
  ASSERT_EQ(made.exit_code, 0) << made.out << made.err;
  const GoldenFile before = GoldenReader::Open(Path("in.h5")).ReadAll();
  const GoldenFile after = GoldenReader::Open(Path("out.h5")).ReadAll();
  EXPECT_EQ(after.cases[0].observed, before.cases[0].observed);
  EXPECT_EQ(after.cases[0].inputs, before.cases[0].inputs);
  EXPECT_TRUE(after.cases[0].expected.contains("out"));
}

TEST_F(GoldenCommand, MakeDoesNotReplaceAFileOfAnotherProgram) {
  std::filesystem::copy_file(std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_stranger.h5",
                             Path("dump.h5"));
  const ToolRun made =
      Tool({"golden", "make", "dump.h5", "-o", "./dump.h5", "--case", kAttentionCase});
  EXPECT_EQ(made.exit_code, 2);
  EXPECT_NE(made.err.find("-o would replace FILE"), std::string::npos) << made.err;
}

TEST_F(GoldenCommand, ShowListsCasesAndTensors) {
  WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a.case", kHonestPlan, "PASS")}));
  EXPECT_NE(Tool({"golden", "show", "g.h5"}).out.find("a.case"), std::string::npos);
  const ToolRun one = Tool({"golden", "show", "g.h5", "a.case"});
  EXPECT_NE(one.out.find("base=plain_f32"), std::string::npos) << one.out;
  EXPECT_EQ(Tool({"golden", "show", "g.h5", "b"}).exit_code, 2);
}

TEST_F(GoldenCommand, SelectingNothingExitsWithTwo) {
  WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS")}));
  EXPECT_EQ(Tool({"golden", "verify", "g.h5", "--only", "b*"}).exit_code, 2);
}

TEST_F(GoldenCommand, CaseWithoutAnythingToVerifyIsMistrusted) {
  GoldenCase empty = ObservedCase("a", kHonestPlan, "PASS");
  empty.observed.clear();
  WriteGoldenFile(Path("g.h5"), FileOf({empty}));
  EXPECT_EQ(Tool({"golden", "verify", "g.h5"}).exit_code, 3);
}

TEST_F(GoldenCommand, CaseThatDoesNotParseDoesNotHideTheOthers) {
  GoldenCase bad = ObservedCase("b", kHonestPlan, "PASS");
  bad.case_text = "nonsense";
  WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS"), bad}));
  const ToolRun run = Tool({"golden", "verify", "g.h5", "--json", "-"});
  EXPECT_EQ(run.exit_code, 2);
  const nlohmann::json report = nlohmann::json::parse(run.out);
  EXPECT_EQ(report.at("summary").at("passed"), 1);
  EXPECT_EQ(report.at("summary").at("illegal"), 1);
}

}  // namespace
}  // namespace kvcheck
