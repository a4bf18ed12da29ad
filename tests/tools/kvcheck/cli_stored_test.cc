// kvcheck compare, and run on stored tensors.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "golden/reader.h"
#include "golden/writer.h"
#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"
#include "tests/tools/kvcheck/tool_process.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/registry.h"
#include "tools/corridor/stored_tensors.h"

namespace kvcheck {
namespace {

class CompareCommand : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    WriteGoldenFile(Path("g.h5"), Good());
  }
  static GoldenFile Good() { return FileOf({ObservedCase("a", kHonestPlan, "PASS")}); }
  // compare g.h5 with a file in which the observed outputs were changed.
  template <typename Change>
  ToolRun CompareChanged(Change change) const {
    GoldenFile file = Good();
    change(&file.cases[0].observed[0].outputs);
    WriteGoldenFile(Path("changed.h5"), file);
    return Tool({"compare", "g.h5", "changed.h5"});
  }
};

TEST_F(CompareCommand, FileWithItselfPassesUnderItsOwnPlan) {
  const ToolRun run = Tool({"compare", "g.h5", "g.h5"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("PASS  a/simulated  ")) << run.out;
}

TEST_F(CompareCommand, WrongElementFailsByName) {
  const ToolRun run =
      CompareChanged([](TensorMap* outputs) { outputs->at("out").As<float>()[33] += 1; });
  EXPECT_EQ(run.exit_code, 1);
  // Element 33 of (B, Hq, L, Dv) = (1, 4, 2, 32).
  EXPECT_TRUE(run.out.starts_with("FAIL  a/simulated  out[b=0, hq=0, l=1, dv=1]: ")) << run.out;
  EXPECT_NE(run.out.find("kvcheck compare g.h5 changed.h5 --only a --impl simulated"),
            std::string::npos)
      << run.out;
}

TEST_F(CompareCommand, NanFails) {
  EXPECT_EQ(CompareChanged([](TensorMap* outputs) {
              outputs->at("out").As<uint32_t>()[33] = 0x7fc00000;
            }).exit_code,
            1);
}

TEST_F(CompareCommand, MissingExtraAndMisshapenTensorsFail) {
  EXPECT_EQ(CompareChanged([](TensorMap*) {}).exit_code, 0);
  EXPECT_EQ(CompareChanged([](TensorMap* outputs) {
              (*outputs)["other"] = (*outputs)["out"];
              outputs->erase("out");
            }).exit_code,
            1);
  EXPECT_EQ(
      CompareChanged([](TensorMap* outputs) { (*outputs)["lse"] = (*outputs)["out"]; }).exit_code,
      1);
  EXPECT_EQ(CompareChanged([](TensorMap* outputs) {
              (*outputs)["out"] = Tensor(DType::kFloat32, Shape::Unnamed({1, 4, 2, 31}));
            }).exit_code,
            1);
  EXPECT_EQ(CompareChanged([](TensorMap* outputs) {
              (*outputs)["out"] = Tensor(DType::kFloat16, Shape::Unnamed({1, 4, 2, 32}));
            }).exit_code,
            1);
}

TEST_F(CompareCommand, MissingAndExtraCasesFail) {
  WriteGoldenFile(Path("two.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS"),
                                          ObservedCase("b", kHonestPlan, "PASS")}));
  EXPECT_EQ(Tool({"compare", "two.h5", "g.h5"}).exit_code, 1);
  EXPECT_EQ(Tool({"compare", "g.h5", "two.h5"}).exit_code, 1);
  EXPECT_EQ(Tool({"compare", "two.h5", "g.h5", "--only", "a"}).exit_code, 0);
  EXPECT_EQ(Tool({"compare", "two.h5", "g.h5", "--only", "c"}).exit_code, 2);
}

TEST_F(CompareCommand, PlanOnTheCommandLineOverridesTheStoredOne) {
  EXPECT_EQ(Tool({"compare", "g.h5", "g.h5", "--plan", kBoastfulPlan}).exit_code, 1);
}

TEST_F(CompareCommand, ExpectationsOfTheFileUnderTestAreNotBelieved) {
  GoldenFile wrong = FileOf({ObservedCase("a", kHonestPlan, "FAIL")});
  wrong.cases[0].observed[0].outputs.at("out").As<float>()[33] += 1;
  WriteGoldenFile(Path("wrong.h5"), wrong);
  EXPECT_EQ(Tool({"compare", "g.h5", "wrong.h5"}).exit_code, 1);
}

TEST_F(CompareCommand, ToleranceJudgesAgainstStoredValues) {
  ASSERT_EQ(
      Tool({"golden", "make", "--case", kAttentionCase, "--name", "a", "-o", "gold.h5"}).exit_code,
      0);
  EXPECT_EQ(Tool({"compare", "gold.h5", "g.h5", "--tol", "exact"}).exit_code, 1);
  // Fewer than 2^7 roundings of 2^-24 meet one element (32 channels, 33 keys and a handful), scores
  // and values lie below 2^3, and a score's error counts twice: less than 2^-24+7+3+3 = 2^-11.
  const ToolRun run = Tool({"compare", "gold.h5", "g.h5", "--tol", "abs:2^-11"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_NE(run.out.find("abs:2^-11,rel:0 allows 0.000488 at out["), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("where the derived bound is "), std::string::npos) << run.out;
  // A tolerance beyond the data proves nothing.
  EXPECT_EQ(Tool({"compare", "gold.h5", "g.h5", "--tol", "abs:100"}).exit_code, 3);
}

TEST_F(CompareCommand, LineOfRulesThatIsLooserThanTheDerivedBoundNeedsAReason) {
  ASSERT_EQ(
      Tool({"golden", "make", "--case", kAttentionCase, "--name", "a", "-o", "gold.h5"}).exit_code,
      0);
  const auto compare = [&](const std::string& line) {
    std::ofstream(Path("r.txt")) << line << "\n";
    return Tool({"compare", "gold.h5", "g.h5", "--rules", "r.txt"});
  };
  const ToolRun bare = compare("a abs:2^-11");
  EXPECT_EQ(bare.exit_code, 2) << bare.out;
  EXPECT_NE(bare.out.find("say why with reason="), std::string::npos) << bare.out;
  const ToolRun reasoned = compare("a abs:2^-11 reason=\"as before\"");
  EXPECT_EQ(reasoned.exit_code, 0) << reasoned.out;
  EXPECT_NE(reasoned.out.find("(as before)"), std::string::npos) << reasoned.out;
  EXPECT_EQ(compare("a derived").exit_code, 0);
  EXPECT_EQ(compare("b derived").exit_code, 2);
  // A tighter one needs none, and decides.
  EXPECT_EQ(compare("a abs:2^-60").exit_code, 1);
}

TEST_F(CompareCommand, OutputWithoutExpectedValuesIsNotPassedOver) {
  GoldenFile file = Good();
  file.cases[0].case_text += " lse=natural";
  ExpectedTensor out;
  out.hi = Tensor(DType::kFloat64, file.cases[0].observed[0].outputs.at("out").shape);
  file.cases[0].expected["out"] = out;
  WriteGoldenFile(Path("half.h5"), file);
  const ToolRun run = Tool({"compare", "half.h5", "half.h5", "--tol", "abs:1"});
  EXPECT_EQ(run.exit_code, 2) << run.out;
  EXPECT_NE(run.out.find("'lse'"), std::string::npos) << run.out;
}

TEST_F(CompareCommand, CaseOnTheCommandLineNeedsNoGoldenFile) {
  // The inputs are generated, the output is found by its name.
  std::vector<std::string> arguments = {"compare", "--case",    kAttentionCase,
                                        "--plan",  kHonestPlan, "g.h5"};
  const ToolRun run = Tool(arguments);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  arguments.insert(arguments.end(), {"--map", "out=/cases/a/observed/simulated/out"});
  EXPECT_EQ(Tool(arguments).exit_code, 0);
  arguments.back() = "nothing=/cases/a/q";
  EXPECT_EQ(Tool(arguments).exit_code, 2);
}

TEST_F(CompareCommand, InputsOfACaseAreFoundInItsFile) {
  std::string text = kAttentionCase;
  text.replace(text.find("data=gauss:1"), std::string::npos, "data=file");
  EXPECT_EQ(Tool({"compare", "--case", text, "--plan", kHonestPlan, "g.h5"}).exit_code, 0);
  // The file holds f32: the question cannot be put.
  text.replace(text.find("k=f32"), 5, "k=f16");
  EXPECT_EQ(Tool({"compare", "--case", text, "--plan", kHonestPlan, "g.h5"}).exit_code, 2);
}

// GOLD's and GOT's outputs under different plans: p=bf16 in GOT's.
class CompareTwoPlans : public CompareCommand {
 protected:
  void SetUp() override {
    CompareCommand::SetUp();
    GoldenFile file = Good();
    Question question;
    question.c = ParseCase(kAttentionCase);
    question.plan = ParsePlan(kLowPlan);
    question.inputs = file.cases[0].inputs;
    file.cases[0].observed[0].outputs =
        Answer(*MakeImplementation(CaseKind::kAttention, "simulated", question.plan, {}), question)
            ->tensors();
    WriteGoldenFile(Path("low.h5"), file);
  }
  ToolRun Two(const std::string& gold, const std::string& gold_plan, const std::string& got,
              const std::string& plan, const std::vector<std::string>& more = {}) const {
    std::string text = kAttentionCase;
    text.replace(text.find("data=gauss:1"), std::string::npos, "data=file");
    std::vector<std::string> arguments = {"compare",     gold,      got,      "--case", text,
                                          "--gold-plan", gold_plan, "--plan", plan};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Tool(arguments);
  }
  static constexpr const char* kLowPlan = "base=plain_f32 p=bf16";
};

TEST_F(CompareTwoPlans, MayDifferByBothBoundsAndNoMore) {
  const ToolRun run = Two("g.h5", kHonestPlan, "low.h5", kLowPlan);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(Two("low.h5", kLowPlan, "g.h5", kHonestPlan).exit_code, 0);
  const ToolRun wrong = Two("g.h5", kHonestPlan, "low.h5", kHonestPlan);
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out;
  EXPECT_NE(wrong.out.find("--gold-plan base=plain_f32 --plan base=plain_f32"), std::string::npos)
      << wrong.out;
}

TEST_F(CompareTwoPlans, GoldOutsideItsOwnBoundProvesNothing) {
  const ToolRun run = Two("low.h5", kHonestPlan, "g.h5", kLowPlan);
  EXPECT_EQ(run.exit_code, 3) << run.out;
  EXPECT_NE(run.out.find("GOLD is not within the bound"), std::string::npos) << run.out;
}

TEST_F(CompareTwoPlans, OfOneDeterministicPlanAreEqualBitByBit) {
  WriteGoldenFile(Path("again.h5"), Good());
  EXPECT_EQ(Two("g.h5", kHonestPlan, "again.h5", kHonestPlan, {"--bitwise"}).exit_code, 0);
  GoldenFile file = Good();
  file.cases[0].observed[0].outputs.at("out").As<uint32_t>()[33] ^= 1;
  WriteGoldenFile(Path("ulp.h5"), file);
  EXPECT_EQ(Two("g.h5", kHonestPlan, "ulp.h5", kHonestPlan).exit_code, 0);
  EXPECT_EQ(Two("g.h5", kHonestPlan, "ulp.h5", kHonestPlan, {"--bitwise"}).exit_code, 1);
  EXPECT_EQ(Two("g.h5", kHonestPlan, "low.h5", kLowPlan, {"--bitwise"}).exit_code, 2);
}

TEST_F(CompareTwoPlans, AFileBesideItselfProvesNothing) {
  const ToolRun run = Two("g.h5", kHonestPlan, "./g.h5", kHonestPlan);
  EXPECT_EQ(run.exit_code, 3) << run.out;
  EXPECT_NE(run.out.find("compared with itself"), std::string::npos) << run.out;
}

TEST_F(CompareTwoPlans, EqualBitsOfAWrongGoldProveNothing) {
  GoldenFile file = Good();
  Tensor& out = file.cases[0].observed[0].outputs.at("out");
  std::fill(out.bytes.begin(), out.bytes.end(), std::byte{0});
  WriteGoldenFile(Path("zeros.h5"), file);
  WriteGoldenFile(Path("zeros_too.h5"), file);
  const ToolRun run = Two("zeros.h5", kHonestPlan, "zeros_too.h5", kHonestPlan, {"--bitwise"});
  EXPECT_EQ(run.exit_code, 3) << run.out;
  EXPECT_NE(run.out.find("GOLD is not within the bound of its own plan"), std::string::npos);
  EXPECT_EQ(Two("g.h5", "base=stranger", "zeros.h5", "base=stranger", {"--bitwise"}).exit_code, 2);
}

TEST_F(CompareTwoPlans, OptionsThatDoNotGoTogetherAreRefused) {
  EXPECT_EQ(Tool({"compare", "g.h5", "g.h5", "--gold-plan", kHonestPlan}).exit_code, 2);
  EXPECT_EQ(Tool({"compare", "g.h5", "g.h5", "--bitwise"}).exit_code, 2);
  EXPECT_EQ(
      Tool({"compare", "g.h5", "--case", kAttentionCase, "--gold-plan", kHonestPlan}).exit_code, 2);
  EXPECT_EQ(
      Tool({"compare", "g.h5", "g.h5", "--case", kCodecCase, "--gold-plan", kHonestPlan}).exit_code,
      2);
}

TEST_F(CompareCommand, HashInTheCaseIsHeldAgainstTheFile) {
  // Hash and the inputs of the golden file; a hash of other digits, and a file that has none.
  const std::string hash = GoldenReader::Open(Path("g.h5")).outline().content_hash;
  const std::string digits = hash.substr(hash.find(':') + 1, 8);
  std::string wrong = digits;
  wrong[7] = wrong[7] == '0' ? '1' : '0';
  const auto with = [](const std::string& data) {
    std::string text = kAttentionCase;
    return text.replace(text.find("data=gauss:1"), std::string::npos, data);
  };
  const auto compare = [&](const std::string& data) {
    return Tool({"compare", "--case", with(data), "--plan", kHonestPlan, "g.h5"});
  };
  EXPECT_EQ(compare("data=file:" + digits).exit_code, 0);
  const ToolRun other = compare("data=file:" + wrong);
  EXPECT_EQ(other.exit_code, 2) << other.out;
  EXPECT_NE(other.out.find(hash), std::string::npos) << other.out;
  const ToolRun plain =
      Tool({"compare", "--case", "tensor dtype=f32 shape=2x3 rule=exact data=file:" + digits,
            "--map", "expected=/little", "--map", "got=/big",
            std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_stranger.h5"});
  EXPECT_EQ(plain.exit_code, 2) << plain.out;
  EXPECT_NE(plain.out.find("only golden files"), std::string::npos) << plain.out;
}

const std::string kStranger = std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_stranger.h5";

TEST_F(CompareCommand, DatasetThatCannotBeReadIsMistrustedAndNotLeftOut) {
  std::filesystem::copy_file(kStranger, Path("other.h5"));
  // Both files have the text, neither can be read: nothing is known of it.
  const ToolRun text = Tool({"compare", kStranger, "other.h5", "--only", "/text"});
  EXPECT_EQ(text.exit_code, 3) << text.out;
  EXPECT_NE(text.out.find("its type is not one of kvcheck's"), std::string::npos) << text.out;
  EXPECT_EQ(Tool({"compare", kStranger, "other.h5", "--only", "/little"}).exit_code, 0);
  // A readable one beside it does not hide it.
  const ToolRun both = Tool({"compare", kStranger, "other.h5", "--only", "/l*"});
  EXPECT_EQ(both.exit_code, 3) << both.out;
  EXPECT_NE(both.out.find("MISTRUSTED  /lzf"), std::string::npos) << both.out;
  // What passes is counted, and listed with -v.
  EXPECT_EQ(both.out.find("PASS"), std::string::npos) << both.out;
  const ToolRun verbose = Tool({"compare", kStranger, "other.h5", "--only", "/l*", "-v"});
  EXPECT_NE(verbose.out.find("PASS  /little"), std::string::npos) << verbose.out;
}

TEST(DatasetByName, UnreadableIsRefusedWithItsReasonAndNotReplacedByANamesake) {
  ObjectRecord readable;
  readable.is_dataset = true;
  ObjectRecord unreadable;
  unreadable.problem = "filter 32000";
  const std::map<std::string, TensorSpec> specs = {{"x", TensorSpec()}};
  FileIndex index;
  index.objects = {{"/old/x", readable}};
  EXPECT_EQ(FindByName(index, specs, {}).at("x"), "/old/x");
  for (const char* path : {"/x", "/layer/x"}) {
    if (std::string(path) != "/x") index.objects.clear();
    index.objects[path] = unreadable;
    try {
      FindByName(index, specs, {});
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(path + std::string(", which cannot be read: filter 32000")),
                std::string::npos)
          << error.message();
    }
    EXPECT_EQ(FindByName(index, specs, {{"x", "/old/x"}}).at("x"), "/old/x");
  }
}

// The same tensors under the same names, in the format without groups.
void WriteAsSafetensors(const std::string& path, const TensorMap& tensors) {
  const std::map<DType, std::string> names = {{DType::kFloat32, "F32"}};
  std::string header, data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const Axis& axis : tensor.shape.axes) {
      shape += (shape.empty() ? "" : ",") + std::to_string(axis.extent);
    }
    header +=
        (header.empty() ? "{" : ",") +
        fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                    names.at(tensor.dtype), shape, data.size(), data.size() + tensor.bytes.size());
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  golden_samples::WriteBytes(path, golden_samples::SafetensorsBytes(header + "}", data));
}

TEST_F(CompareCommand, CaseOnTheCommandLineTakesSafetensors) {
  std::string text = kAttentionCase;
  text.replace(text.find("data=gauss:1"), std::string::npos, "data=file");
  const GoldenCase good = Good().cases[0];
  TensorMap tensors = good.inputs;
  tensors["out"] = good.observed[0].outputs.at("out");
  WriteAsSafetensors(Path("s.safetensors"), tensors);
  const std::vector<std::string> arguments = {"compare", "--case",    text,
                                              "--plan",  kHonestPlan, "s.safetensors"};
  const ToolRun run = Tool(arguments);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  tensors["out"].As<float>()[33] += 1;
  WriteAsSafetensors(Path("s.safetensors"), tensors);
  EXPECT_EQ(Tool(arguments).exit_code, 1);
}

// One answer may not hide another.
TEST_F(CompareCommand, EveryAnswerOfAFileIsJudged) {
  const Tensor out = Good().cases[0].observed[0].outputs.at("out");
  Tensor wrong = out;
  wrong.As<float>()[33] += 1;
  const auto compare = [&](const Tensor& first, const Tensor& second) {
    WriteAsSafetensors(
        Path("s.safetensors"),
        {{"cases/a/observed/mine/out", first}, {"a/out", second}, {"b/out", second}});
    return Tool({"compare", "g.h5", "s.safetensors", "--plan", kHonestPlan});
  };
  EXPECT_EQ(compare(out, out).exit_code, 0);
  EXPECT_EQ(compare(wrong, out).exit_code, 1);
  const ToolRun run = compare(out, wrong);
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_NE(run.out.find("PASS  a/mine"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("FAIL  a  out["), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("not looked at in s.safetensors: /b/out"), std::string::npos) << run.out;
}

TEST_F(CompareCommand, AnswersToAGoldenFileMayBeSafetensors) {
  WriteAsSafetensors(Path("s.safetensors"),
                     {{"a/out", Good().cases[0].observed[0].outputs.at("out")}});
  const ToolRun run = Tool({"compare", "g.h5", "s.safetensors", "--plan", kHonestPlan});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

TEST_F(CompareCommand, AFileOfNeitherFormatIsRefusedWithBothNames) {
  std::ofstream(Path("x.pt")) << "PK\x03\x04";
  const ToolRun run = Tool({"compare", "x.pt", "x.pt"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("x.pt: it has no directory of a ZIP archive at its end"),
            std::string::npos)
      << run.err;
}

TEST_F(CompareCommand, RunOnStoredTensorsJudgesThemAgain) {
  const ToolRun stored = Tool({"run", "--data", "g.h5#a"});
  EXPECT_EQ(stored.exit_code, 0) << stored.out << stored.err;
  EXPECT_EQ(Tool({"run", "--data", "g.h5#a/simulated"}).exit_code, 0);
  EXPECT_EQ(Tool({"run", "--data", "g.h5#a/nobody"}).exit_code, 2);
  EXPECT_EQ(
      Tool({"run", "--data", "g.h5#a", "--impl", "simulated", "--plan", kHonestPlan}).exit_code, 0);
}

TEST_F(CompareCommand, DamagedFileExitsWithTwo) {
  // A file cut short, and one that is none.
  std::filesystem::resize_file(Path("g.h5"), std::filesystem::file_size(Path("g.h5")) / 2);
  std::ofstream(Path("text.h5")) << "not a file of tensors";
  for (const char* name : {"g.h5", "text.h5"}) {
    const ToolRun run = Tool({"compare", name, name});
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
  }
}

}  // namespace
}  // namespace kvcheck
