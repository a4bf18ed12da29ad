// kvcheck compare --cases and --group: many cases in one run, what a list says, and what is refused
// before anything is judged.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/kvcheck/stored_files.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/registry.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kListedCase =
    "attention hq=4 hkv=2 l=3 t=17 d=32 q=bf16 k=bf16 v=bf16 out=bf16 mask=causal_bottom_right";

// Inputs of a seed and the answer of a kernel of plain_f32.
TensorMap Answered(const std::string& text, int seed, const std::string& kernel = "simulated") {
  Question question;
  question.c = ParseCase(fmt::format("{} data=gauss:{}", text, seed));
  question.plan = ParsePlan(kHonestPlan);
  question.inputs = GenerateCaseInputs(question.c, {});
  const std::unique_ptr<Implementation> implementation =
      MakeImplementation(CaseKind::kAttention, kernel, question.plan, {});
  const auto answer = Answer(*implementation, question);
  TensorMap tensors = question.inputs;
  for (const auto& [name, tensor] : answer->tensors()) tensors[name] = tensor;
  return tensors;
}

TensorMap InGroup(const std::string& group, const TensorMap& tensors) {
  TensorMap there;
  for (const auto& [name, tensor] : tensors) there[group + "/" + name] = tensor;
  return there;
}

void Spoil(TensorMap* tensors) {
  for (auto& [name, tensor] : *tensors) {
    if (name.ends_with("out")) tensor.bytes[3] = std::byte{0x42};
  }
}

class CaseList : public CompareStored {
 protected:
  // A file of the seed's case; wrong: one element of its output.
  void WriteCase(const std::string& file, int seed, bool is_wrong = false) const {
    TensorMap tensors = Answered(kListedCase, seed);
    if (is_wrong) Spoil(&tensors);
    Write(file, InGroup("", tensors));
  }
  static json LineOf(const std::string& name, const std::string& got) {
    return {{"name", name},
            {"case", std::string(kListedCase) + " data=file"},
            {"plan", kHonestPlan},
            {"got", got}};
  }
  void WriteList(const std::vector<json>& lines) const {
    std::string text;
    for (const json& line : lines) text += line.dump() + "\n";
    WriteText(text);
  }
  void WriteText(const std::string& text) const { std::ofstream(Path("list.jsonl")) << text; }
  ToolRun JudgeList(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"compare", "--cases", "list.jsonl"});
    return Tool(more);
  }
  // (name, outcome) in the order of the JSON report.
  std::vector<std::pair<std::string, std::string>> OutcomesOf(const std::vector<std::string>& more,
                                                              int exit_code) const {
    std::vector<std::string> words = more;
    words.insert(words.end(), {"--json", "report.json"});
    const ToolRun run = JudgeList(words);
    EXPECT_EQ(run.exit_code, exit_code) << run.out << run.err;
    return Outcomes();
  }
  std::vector<std::pair<std::string, std::string>> Outcomes() const {
    std::vector<std::pair<std::string, std::string>> outcomes;
    const json report = json::parse(ContentOfFile("report.json"));
    for (const json& one : report["cases"]) outcomes.emplace_back(one["name"], one["outcome"]);
    return outcomes;
  }
  void ExpectLineRefused(const std::string& line, const std::string& message) const {
    WriteText(LineOf("right", "right.h5").dump() + "\n" + line + "\n");
    const ToolRun run = JudgeList();
    EXPECT_EQ(run.exit_code, 2) << line << "\n" << run.out << run.err;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_THAT(run.err, HasSubstr("list.jsonl:2: " + message)) << line;
  }
};

using NamedOutcomes = std::vector<std::pair<std::string, std::string>>;

TEST_F(CaseList, HasOneReportWhateverTheThreads) {
  std::vector<json> lines;
  NamedOutcomes expected;
  for (int i = 0; i < 9; ++i) {
    const bool is_wrong = i == 5;
    const std::string file = fmt::format("case{}.h5", i);
    WriteCase(file, i, is_wrong);
    lines.push_back(LineOf(fmt::format("decode/{}", i), file));
    expected.emplace_back(lines.back()["name"], is_wrong ? "FAIL" : "PASS");
  }
  WriteList(lines);
  std::set<std::string> texts;
  std::set<std::string> reports;
  for (const char* threads : {"1", "2", "7"}) {
    EXPECT_EQ(OutcomesOf({"-j", threads, "--junit", "report.xml"}, 1), expected) << threads;
    texts.insert(JudgeList({"-j", threads}).out);
    reports.insert(ContentOfFile("report.json") + ContentOfFile("report.xml"));
  }
  EXPECT_EQ(texts.size(), 1);
  EXPECT_EQ(reports.size(), 1);
  // A line for each, what fails first, with what explains it and the command that repeats it.
  const std::string& text = *texts.begin();
  EXPECT_TRUE(text.starts_with("FAIL  decode/5  out[")) << text;
  EXPECT_THAT(text, HasSubstr("\nPASS  decode/8  out: 384 elements"));
  EXPECT_THAT(text, HasSubstr("9 cases: 8 passed, 1 failed; 3456 elements judged"));
  EXPECT_EQ(OutcomesOf({"--only", "decode/[57]", "--exclude", "*/7"}, 1),
            (NamedOutcomes{{"decode/5", "FAIL"}}));
  // The command of a failure repeats it without the list.
  const std::string label = "  reproduce    ";
  const size_t at = text.find(label);
  ASSERT_NE(at, std::string::npos) << text;
  const std::string command =
      text.substr(at + label.size(), text.find('\n', at) - at - label.size());
  EXPECT_TRUE(command.starts_with("kvcheck compare --case ")) << command;
  const ToolRun again = Shell("\"$KVCHECK\"" + command.substr(std::string("kvcheck").size()));
  EXPECT_EQ(again.exit_code, 1) << command << again.out << again.err;
}

TEST_F(CaseList, AMissingFileIsAnErrorOfItsCaseAlone) {
  WriteCase("right.h5", 1);
  std::ofstream(Path("damaged.h5")) << "\x89HDF\r\n\x1a\nnothing";
  WriteList({LineOf("absent", "absent.h5"), LineOf("damaged", "damaged.h5"),
             LineOf("right", "right.h5")});
  EXPECT_EQ(
      OutcomesOf({}, 2),
      (NamedOutcomes{{"absent", "ILLEGAL_CASE"}, {"damaged", "ILLEGAL_CASE"}, {"right", "PASS"}}));
  EXPECT_THAT(JudgeList().out, HasSubstr("ILLEGAL_CASE  absent  absent.h5: "));
}

TEST_F(CaseList, ALineThatCannotBeReadEndsTheRunBeforeAnythingIsJudged) {
  WriteCase("right.h5", 1);
  const auto with = [](const char* key, const json& value) {
    json line = LineOf("second", "right.h5");
    line[key] = value;
    return line.dump();
  };
  const auto without = [](const char* key) {
    json line = LineOf("second", "right.h5");
    line.erase(key);
    return line.dump();
  };
  ExpectLineRefused("{\"name\": ", "it is no JSON object in one line; a line is {\"name\"");
  ExpectLineRefused("[1]", "it is a JSON array: write one object a line");
  ExpectLineRefused(without("name"), "it has no 'name'");
  ExpectLineRefused(without("case"), "it has no 'case', and --case says none for all");
  ExpectLineRefused(without("got"), "it has no 'got', the file with the outputs");
  ExpectLineRefused(with("name", "right"), "a line before it has the name 'right' too");
  ExpectLineRefused(with("paln", "x"), "it has a key 'paln' (did you mean 'plan'?); the keys are");
  ExpectLineRefused(with("got", 3), "'got' is no text");
  ExpectLineRefused(with("plan", "base=nothing"), "column 6: 'nothing' is not a known plan");
  ExpectLineRefused(with("case", "attention hq=3"), "column 15: 'hkv=' is missing");
  ExpectLineRefused(
      with("case", "cache layout=ring:w=5 k=f16 x=f16 hkv=2 dk=8 data=tokens:32; new A"),
      "a trace of operations has no");
  ExpectLineRefused(with("gold", "right.h5"), "'gold' needs 'gold_plan'");
  ExpectLineRefused(with("gold_plan", "base=plain_f32"), "'gold_plan' needs 'gold'");
  ExpectLineRefused(with("map", "q=/q"), "'map' is no object of texts");
  ExpectLineRefused(with("map", json{{"scales", "/q"}}), "--map: the case has no tensor 'scales'");
  std::string twice = LineOf("second", "right.h5").dump();
  twice.insert(1, "\"name\": \"third\", ");
  ExpectLineRefused(twice, "it has the key 'name' twice");
}

TEST_F(CaseList, AllLinesThatCannotBeReadAreNamed) {
  WriteText("# of a script\n\n{\n" + LineOf("a", "a.h5").dump() + "\n{}\n}\n");
  const ToolRun run = JudgeList();
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("list.jsonl:3: it is no JSON object"));
  EXPECT_THAT(run.err, HasSubstr("2 more lines cannot be read: 5, 6"));
  WriteText("# of a script\n");
  EXPECT_THAT(JudgeList().err, HasSubstr("list.jsonl: the list has no cases"));
  EXPECT_EQ(JudgeList().exit_code, 2);
}

TEST_F(CaseList, OptionsSayWhatLinesLeaveOut) {
  WriteCase("right.h5", 1);
  WriteList({{{"name", "a"}, {"got", "right.h5"}}});
  const std::string text = std::string(kListedCase) + " data=file";
  EXPECT_EQ(OutcomesOf({"--case", text, "--plan", kHonestPlan}, 0), (NamedOutcomes{{"a", "PASS"}}));
  const json report = json::parse(ContentOfFile("report.json"));
  EXPECT_THAT(report["cases"][0].dump(), HasSubstr("plain_f32"));
  // Files are named from the folder of the list.
  const ToolRun from_above = Shell("cd / && \"$KVCHECK\" compare --cases '" + Path("list.jsonl") +
                                   "' --case '" + text + "' --plan " + kHonestPlan);
  EXPECT_EQ(from_above.exit_code, 0) << from_above.out << from_above.err;
  const ToolRun files = JudgeList({"right.h5", "--case", text});
  EXPECT_EQ(files.exit_code, 2);
  EXPECT_THAT(files.err, HasSubstr("--cases names the files of each case in its line"));
}

TEST_F(CaseList, InputsAndABelievedRunMayLieElsewhere) {
  const TensorMap all = Answered(kListedCase, 1);
  Write("inputs.h5", {{"/q", all.at("q")}, {"/k", all.at("k")}, {"/v", all.at("v")}});
  Write("out.h5", {{"/out", all.at("out")}});
  Write("both.h5", InGroup("", all));
  Write("other_names.h5", {{"/query_1", all.at("q")},
                           {"/k", all.at("k")},
                           {"/v", all.at("v")},
                           {"/out", all.at("out")}});
  json apart = LineOf("apart", "out.h5");
  apart["inputs"] = "inputs.h5";
  json believed = LineOf("believed", "out.h5");
  believed["gold"] = "both.h5";
  believed["gold_plan"] = kHonestPlan;
  json mapped = LineOf("mapped", "other_names.h5");
  mapped["map"] = {{"q", "/query_1"}};
  WriteList({apart, believed, mapped});
  EXPECT_EQ(OutcomesOf({}, 0),
            (NamedOutcomes{{"apart", "PASS"}, {"believed", "PASS"}, {"mapped", "PASS"}}));
}

TEST_F(CaseList, GroupsOfOneFileAreCasesOfTheirOwn) {
  TensorMap file;
  for (int i = 0; i < 5; ++i) {
    TensorMap tensors = Answered(kListedCase, i);
    if (i == 3) Spoil(&tensors);
    file.merge(InGroup(fmt::format("/run/{}", i), tensors));
  }
  Write("all.h5", file);
  const std::string text = std::string(kListedCase) + " data=file";
  const std::vector<std::string> words = {"compare", "all.h5",    "--case", text,
                                          "--plan",  kHonestPlan, "--json", "report.json"};
  const auto judge = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return Tool(more);
  };
  NamedOutcomes expected;
  for (int i = 0; i < 5; ++i) {
    expected.emplace_back(fmt::format("run/{}", i), i == 3 ? "FAIL" : "PASS");
  }
  ToolRun run = judge({"--group", "*"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_EQ(Outcomes(), expected);
  EXPECT_THAT(run.out, HasSubstr(" all.h5 --plan base=plain_f32 --group run/3"));
  EXPECT_THAT(run.out, Not(HasSubstr("note:")));
  run = judge({"--group", "run/[12]"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(Outcomes(), (NamedOutcomes{{"run/1", "PASS"}, {"run/2", "PASS"}}));
  run = judge({"--group", "rum/*"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err,
              HasSubstr("'rum/*' matches no group; the file has 5 groups, the first 'run/0'"));
  // The same by a list, in which a group that is not there is an error of its case.
  json one = LineOf("one", "all.h5");
  one["group"] = "run/1";
  json absent = LineOf("absent", "all.h5");
  absent["group"] = "run/7";
  WriteList({one, absent});
  EXPECT_EQ(OutcomesOf({}, 2), (NamedOutcomes{{"one", "PASS"}, {"absent", "ILLEGAL_CASE"}}));
  EXPECT_THAT(JudgeList().out, HasSubstr("there is no group 'run/7'"));
}

// safetensors has no groups: names with dots.
TEST_F(CaseList, NamesWithDotsAreGroupsToo) {
  json header = json::object();
  std::string bytes;
  for (int i = 0; i < 3; ++i) {
    for (const auto& [name, tensor] : Answered(kListedCase, i)) {
      json shape = json::array();
      for (const Axis& axis : tensor.shape.axes) shape.push_back(axis.extent);
      header[fmt::format("step.{}.{}", i, name)] = {
          {"dtype", "BF16"},
          {"shape", shape},
          {"data_offsets", {bytes.size(), bytes.size() + tensor.bytes.size()}}};
      bytes.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream file(Path("all.safetensors"), std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << text << bytes;
  file.close();
  const ToolRun run =
      Tool({"compare", "all.safetensors", "--case", std::string(kListedCase) + " data=file",
            "--plan", kHonestPlan, "--group", "step.*", "--json", "report.json"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(Outcomes(),
            (NamedOutcomes{{"step.0", "PASS"}, {"step.1", "PASS"}, {"step.2", "PASS"}}));
}

// What is said alike of many cases is one line.
TEST_F(CaseList, NotesOfManyCasesAreCounted) {
  TensorMap file;
  for (int i = 0; i < 12; ++i) {
    TensorMap tensors = Answered(kListedCase, i);
    tensors["query"] = tensors.at("q");
    tensors.erase("q");
    file.merge(InGroup(fmt::format("/{}", i), tensors));
  }
  Write("all.h5", file);
  const ToolRun run = Tool({"compare", "all.h5", "--case", std::string(kListedCase) + " data=file",
                            "--plan", kHonestPlan, "--group", "*"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("note: 12 cases, 0 the first: q is /GROUP/query: found under"));
}

TEST_F(CaseList, ReportsWhatItHasWhenInterrupted) {
  const std::string text = "attention hq=8 hkv=8 l=16 t=512 d=64 q=bf16 k=bf16 v=bf16 out=bf16";
  Write("out.h5", {{"/out", Answered(text, 1, "optimized").at("out")}});
  std::vector<json> lines;
  for (int i = 0; i < 2000; ++i) {
    lines.push_back({{"name", std::to_string(i)}, {"got", "out.h5"}});
  }
  WriteList(lines);
  const ToolRun run = Signalled(
      {"compare", "--cases", "list.jsonl", "--case", text + " data=gauss:1", "--plan", kHonestPlan,
       "-j", "2"},
      SIGINT, [](pid_t tool) { return Catches(tool, SIGINT) && ProcessorSeconds(tool) > 0; });
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_THAT(run.out, HasSubstr("PASS  0  out:"));
  EXPECT_THAT(run.out, HasSubstr("interrupted, this report is partial"));
}

TEST(LargeCases, AreThoseThatTakeOneThreadLong) {
  const std::string types = "q=bf16 k=bf16 v=bf16 out=bf16 data=file";
  EXPECT_FALSE(IsLarge(ParseCase("attention hq=8 hkv=8 l=1 t=512 d=64 " + types)));
  EXPECT_TRUE(IsLarge(ParseCase("attention hq=8 hkv=8 l=256 t=2048 d=128 " + types)));
  EXPECT_TRUE(IsLarge(ParseCase("codec op=encode format=q8_0 x=f32 rows=1000000 d=128 data=file")));
}

}  // namespace
}  // namespace kvcheck
