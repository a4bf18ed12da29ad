// compare: which rules and options hold for golden cases, which for files without the schema, and
// what is said where one does not.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "golden/writer.h"
#include "reference/formats/codec.h"
#include "tests/tools/kvcheck/stored_files.h"

namespace kvcheck {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// gold.h5: cases a and b, made by the tool, with expected values; got.h5: their answers.
class CompareCases : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    for (const char* name : {"a", "b"}) {
      ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "--name", name, "-o",
                      std::string(name) + ".h5"})
                    .exit_code,
                0);
    }
    Write("gold.h5", {"a", "b"});
    Write("got.h5", {"a", "b"});
    Write("only_a.h5", {"a"});
  }
  void Write(const std::string& file, const std::vector<std::string>& names) const {
    std::vector<GoldenCase> cases;
    for (const std::string& name : names) {
      cases.push_back(ObservedCase(name, kHonestPlan, "PASS"));
    }
    WriteGoldenFile(Path(file), FileOf(std::move(cases)));
  }
  ToolRun Compare(const std::string& gold, const std::string& got,
                  const std::vector<std::string>& arguments = {}) const {
    std::vector<std::string> words = {"compare", gold, got};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return Tool(words);
  }
};

TEST_F(CompareCases, ShardsAreAPartitionOfTheCases) {
  int cases = 0;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const ToolRun run = Compare("gold.h5", "got.h5", {"--shard", shard});
    for (const char* name : {"PASS  a/", "PASS  b/"}) cases += Has(run.out, name) ? 1 : 0;
    EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 2) << run.out;
  }
  EXPECT_EQ(cases, 2);
}

TEST_F(CompareCases, MissingAndExtraCasesMayBeAllowed) {
  EXPECT_EQ(Compare("gold.h5", "only_a.h5").exit_code, 1);
  EXPECT_EQ(Compare("gold.h5", "only_a.h5", {"--allow-missing", "b"}).exit_code, 0);
  EXPECT_EQ(Compare("gold.h5", "only_a.h5", {"--allow-extra", "b"}).exit_code, 1);
  EXPECT_EQ(Compare("only_a.h5", "got.h5").exit_code, 1);
  EXPECT_EQ(Compare("only_a.h5", "got.h5", {"--allow-extra", "b"}).exit_code, 0);
  const ToolRun idle = Compare("gold.h5", "got.h5", {"--allow-missing", "c"});
  EXPECT_EQ(idle.exit_code, 2);
  EXPECT_TRUE(Has(idle.err, "'c' matches no case")) << idle.err;
}

TEST_F(CompareCases, NanIsAQuestionOfStoredValuesAlone) {
  GoldenFile file = FileOf({ObservedCase("a", kHonestPlan, "PASS")});
  file.cases[0].observed[0].outputs.at("out").As<float>()[5] = static_cast<float>(kNan);
  WriteGoldenFile(Path("nan.h5"), file);
  GoldenFile stored = file;
  ExpectedTensor& expected = stored.cases[0].expected["out"];
  const Tensor& out = stored.cases[0].observed[0].outputs.at("out");
  expected.hi = Tensor(DType::kFloat64, out.shape);
  for (int64_t i = 0; i < out.ElementCount(); ++i) {
    expected.hi.As<double>()[i] = static_cast<double>(out.As<float>()[i]);
  }
  stored.cases[0].observed.clear();
  WriteGoldenFile(Path("stored.h5"), stored);
  EXPECT_EQ(Compare("stored.h5", "nan.h5", {"--tol", "abs:2^-20"}).exit_code, 1);
  EXPECT_EQ(Compare("stored.h5", "nan.h5", {"--tol", "abs:2^-20", "--nan", "equal"}).exit_code, 0);
  std::ofstream(Path("r.txt")) << "a abs:2^-20 nan=equal reason=\"masked\"\n";
  EXPECT_EQ(Compare("stored.h5", "nan.h5", {"--rules", "r.txt"}).exit_code, 0);
  // By the definition nothing here is NaN.
  const ToolRun derived = Compare("stored.h5", "nan.h5", {"--nan", "equal"});
  EXPECT_EQ(derived.exit_code, 2);
  EXPECT_TRUE(Has(derived.out, "leave nan out, or judge stored values by --tol")) << derived.out;
}

TEST_F(CompareCases, WhatOnlyTensorsHaveIsRefusedWithWhatToDo) {
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"--slice", "b=0"}, "choose cases with --include"},
      {{"--cast", "f32"}, "the types of outputs are the case's"},
      {{"--map", "s#a#b#"}, "--map OUTPUT=/path"},
      {{"--map-file", "m.txt"}, "/cases/NAME/observed/*/OUTPUT"},
      {{"--bless", "new.h5", "--reason", "r"}, "kvcheck golden make"},
      {{"--tol", "codec:f16"}, "write derived, or leave the rule out"},
      {{"--rules", "r.txt"}, "the types of outputs are the case's"}};
  std::ofstream(Path("r.txt")) << "* abs:0 cast=f64\n";
  for (const auto& [arguments, hint] : refused) {
    const ToolRun run = Compare("gold.h5", "got.h5", arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments[0];
    EXPECT_TRUE(Has(run.err + run.out, hint)) << arguments[0] << ": " << run.err << run.out;
  }
  // Cases are always judged in full.
  EXPECT_EQ(Compare("gold.h5", "got.h5", {"--stats", "full"}).exit_code, 0);
}

TEST_F(CompareStored, DerivedSaysWhatIsMissingForIt) {
  const ToolRun bare = Compare(CacheTensors(1), CacheTensors(1), {"--tol", "derived"});
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_TRUE(Has(bare.err, "neither file says which case it answers")) << bare.err;
  EXPECT_TRUE(Has(bare.err, "no dataset q, k, v or x is in either file")) << bare.err;
  TensorMap with_inputs = CacheTensors(1);
  for (const char* name : {"/in/q", "/in/k"}) with_inputs[name] = F64({1, 2});
  const ToolRun some = Compare(with_inputs, with_inputs, {"--tol", "derived"});
  EXPECT_TRUE(Has(some.err, "its inputs (q, k of gold.h5 or q, k of got.h5)")) << some.err;
}

// Rows of 128 values, and what 4 bits keep of them.
class CompareQuantized : public CompareStored {
 protected:
  CompareQuantized() {
    std::vector<double> values(4 * 128);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(static_cast<float>(std::sin(0.7 * static_cast<double>(i))));
    }
    x_ = Values(DType::kFloat32, {{"T", 4}, {"Dk", 128}}, values);
    encoded_ = EncodeRows(kFormat, Profile(), x_);
  }
  const KvFormat kFormat = ParseKvFormat(WholeLine("affine:4:g64:f32"));
  Tensor x_;
  TensorMap encoded_;
};

TEST_F(CompareQuantized, RuleThatIsLooserThanTheFormatsBoundIsReportedWithBoth) {
  const TensorMap gold = {{"/w", x_}, {"/b", x_}};
  const auto run = [&](const std::string& line) {
    std::ofstream(Path("r.txt")) << "* codec:affine:4:g64\n" << line << "\n";
    return Compare(gold, gold, {"--rules", "r.txt"});
  };
  EXPECT_EQ(run("").exit_code, 0);
  // Half of the 15 steps that span 2 is less.
  const ToolRun loose = run("/w abs:0.07 reason=\"as before\"");
  EXPECT_EQ(loose.exit_code, 0) << loose.out << loose.err;
  EXPECT_TRUE(Has(loose.out, "abs:0.07,rel:0 allows 0.07 at tensor[")) << loose.out;
  EXPECT_TRUE(Has(loose.out, "where the bound of codec:affine:4:g64 is 0.0")) << loose.out;
  EXPECT_TRUE(Has(loose.out, "of 512 elements (r.txt:2: as before)")) << loose.out;
  EXPECT_EQ(run("/w abs:0.07").exit_code, 2);  // a reason is asked for
  const ToolRun tight = run("/w abs:2^-20 reason=\"exact here\"");
  EXPECT_EQ(tight.exit_code, 0) << tight.out;
  EXPECT_FALSE(Has(tight.out, "looser")) << tight.out;
  EXPECT_FALSE(Has(run("/w exact").out, "looser"));
}

TEST_F(CompareQuantized, MissingTensorNamesTheTripletThatMayStandForIt) {
  const TensorMap got = {{"/w_codes", encoded_.at("codes")},
                         {"/w_scales", encoded_.at("scales")},
                         {"/w_biases", encoded_.at("biases")}};
  const ToolRun run = Compare({{"/w", x_}}, got);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(Has(run.out,
                  "it has /w_codes, /w_scales and /w_biases: where they stand for it, name "
                  "their format with --tol codec:FORMAT"))
      << run.out;
  EXPECT_EQ(Again({"--tol", "codec:affine:4:g64"}).exit_code, 0);
}

TEST_F(CompareQuantized, MissingPlaneIsNamedWithWhatIsThereAndWhatToDo) {
  const KvFormat prod = ParseKvFormat(WholeLine("turboquant:prod:3:g64:f32"));
  const TensorMap of_prod = EncodeRows(prod, Profile(), x_);
  const TensorMap got = {{"/w_codes", of_prod.at("codes")},
                         {"/w_res_norms", of_prod.at("residual_norms")},
                         {"/w_norms", of_prod.at("norms")}};
  const std::vector<std::string> rule = {"--tol", "codec:turboquant:prod:3:g64"};
  ToolRun run = Compare({{"/w", x_}}, got, rule);
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(Has(run.out,
                  "missing: gold.h5 has it, got.h5 has not; turboquant:prod:3:g64:f32 keeps it as "
                  "codes, norms, residual_norms: there are /w_codes, /w_norms; missing is "
                  "/w_residual_norms (residual_norms); beside them is /w_res_norms: store every "
                  "plane under one spelling of its name, or name what is it with --map"))
      << run.out;
  std::vector<std::string> named = rule;
  named.insert(named.end(), {"--map", "s#res_norms#residual_norms#"});
  EXPECT_EQ(Again(named).exit_code, 0);
  // Codes under GOLD's own name.
  run = Compare({{"/w.weight", x_}},
                {{"/w.weight", encoded_.at("codes")}, {"/w.biases", encoded_.at("biases")}},
                {"--tol", "codec:affine:4:g64"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(Has(run.out, "has type uint32, which no dequantised tensor has; ")) << run.out;
  EXPECT_TRUE(Has(run.out, "there are /w.weight, /w.biases; missing is /w.scales (scales)"))
      << run.out;
}

// Integers of 16 and 64 bits, the latter beyond what a double tells apart.
TEST_F(CompareStored, EveryWidthOfIntegerIsCompared) {
  for (const DType dtype : {DType::kInt16, DType::kUInt16, DType::kUInt64}) {
    const Tensor gold = Counting(Shape::Unnamed({3, 7}), 1000, dtype);
    Tensor got = gold;
    EXPECT_EQ(Exit(gold, got), 0) << Name(dtype);
    got.bytes[8] ^= std::byte{4};
    EXPECT_EQ(Exit(gold, got), 1) << Name(dtype);
    EXPECT_EQ(Exit(gold, got, {"--tol", "ulp:4"}), 0) << Name(dtype);
    EXPECT_EQ(Exit(gold, got, {"--tol", "ulp:3"}), 1) << Name(dtype);
  }
  Tensor gold(DType::kUInt64, Shape::Unnamed({2}));
  gold.As<uint64_t>()[0] = ~uint64_t{0};
  Tensor got = gold;
  got.As<uint64_t>()[0] -= 1;
  const ToolRun run = Compare({{"/x", gold}}, {{"/x", got}});
  EXPECT_TRUE(Has(run.out, "got 18446744073709551614, expected 18446744073709551615")) << run.out;
}

}  // namespace
}  // namespace kvcheck
