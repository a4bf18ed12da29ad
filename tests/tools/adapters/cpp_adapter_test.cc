// kvcheck_adapter.h, seen from both ends: by kvcheck, which judges programs that are made with it,
// and by a stranger, who sends them frames of their own.

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"
#include "tests/tools/kvcheck/tool_process.h"
#include "tests/tools/process/child_time.h"
#include "tools/campaign/fuzz_subjects.h"
#include "tools/corridor/judge_trace.h"

namespace kvcheck {
namespace {

using nlohmann::json;

class CppAdapter : public ToolTest {
 protected:
  static std::string Odd(const std::string& oddity) {
    return fmt::format("{} {}", KVCHECK_ODD_ADAPTER, oddity);
  }
  // A trace on the odd adapter.
  ToolRun Trace(const std::string& oddity, const std::string& operations) {
    return Tool({"run",
                 "cache layout=linear k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 growth=8 observe=each "
                 "data=tokens:1; " +
                     operations,
                 "--impl", Odd(oddity)});
  }

  // What a program answers to a file as its standard input, and how it ends.
  struct Exchange {
    int exit_code = -1;
    std::vector<json> answers;
    std::string err;
  };
  Exchange Send(const std::string& program, const std::string& bytes) {
    const std::string in = Path("in"), out = Path("out"), err = Path("err");
    std::ofstream(in, std::ios::binary) << bytes;
    const int status =
        std::system(fmt::format("{} <'{}' >'{}' 2>'{}'", program, in, out, err).c_str());
    Exchange exchange;
    exchange.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::ifstream errors(err);
    exchange.err = {std::istreambuf_iterator<char>(errors), {}};
    std::ifstream answers(out, std::ios::binary);
    std::string rest((std::istreambuf_iterator<char>(answers)), {});
    while (rest.size() >= 8) {
      size_t size = 0;
      for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<unsigned char>(rest[i]);
      if (size > rest.size() - 8) break;
      exchange.answers.push_back(json::from_msgpack(rest.substr(8, size)));
      rest = rest.substr(8 + size);
    }
    EXPECT_EQ(rest, "") << "bytes that are no frame";
    return exchange;
  }
  static std::string Frame(const std::string& bytes) {
    std::string frame;
    for (size_t i = 0; i < 8; ++i) frame += static_cast<char>(bytes.size() >> (8 * i) & 0xff);
    return frame + bytes;
  }
  static std::string Frame(const json& request) {
    const std::vector<uint8_t> bytes = json::to_msgpack(request);
    return Frame(std::string(bytes.begin(), bytes.end()));
  }
  static json Columns(int64_t columns, size_t bytes) {
    return {"f32", {1, 1, columns, 8}, json::binary(std::vector<uint8_t>(bytes, 0x3f))};
  }
  // A cache, number 1, with nothing in it.
  static std::string Opening() {
    return Frame(json{{"do", "hello"}, {"protocol", 1}, {"kvcheck", "0"}}) +
           Frame(json{{"do", "start"},
                      {"seed", 1},
                      {"setup",
                       {{"kv_heads", 1},
                        {"query_heads", 1},
                        {"k_dim", 8},
                        {"v_dim", 8},
                        {"x", "f32"},
                        {"growth_tokens", 8}}}}) +
           Frame(json{{"do", "new"},
                      {"out", 1},
                      {"layout", "linear"},
                      {"k", "f32"},
                      {"v", "f32"},
                      {"rows", 1},
                      {"padding", json::array()}});
  }
};

// ---- The example, judged ----

TEST_F(CppAdapter, DrawnTracesOfTheExamplePass) {
  const ToolRun run = Tool(
      {"fuzz", "--impl", KVCHECK_CPP_EXAMPLE, "--cases", "500", "--limit", "10m", "--json", "-"});
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const json campaign = json::parse(run.out)["summary"]["campaigns"][0];
  // Some draw attention over padding only, which proves nothing of the model either: so many.
  const std::unique_ptr<Subject> drawn =
      MakeSubject(FindAnswerer(CaseKind::kCache, KVCHECK_CPP_EXAMPLE), {});
  ModelFactory model;
  TraceRunner runner(&model);
  int proved = 0;
  for (int64_t i = 0; i < 500; ++i) {
    const JudgedTrace judged = JudgeTrace(std::get<CacheCase>(drawn->Draw(i).c), &runner);
    if (judged.outcome == Outcome::kPass) ++proved;
    EXPECT_TRUE(judged.outcome == Outcome::kPass || judged.outcome == Outcome::kMistrusted) << i;
  }
  EXPECT_LT(proved, 500);
  EXPECT_EQ(campaign["passed"], proved) << campaign;
  EXPECT_EQ(campaign["mistrusted_by_data"], 500 - proved) << campaign;
  EXPECT_EQ(campaign["mistrusted"], 500 - proved) << campaign;
  EXPECT_TRUE(campaign["declined"].empty()) << campaign;
}

TEST_F(CppAdapter, MergeThatForgetsTheOrderOfARingIsFound) {
  const ToolRun run =
      Tool({"fuzz", "--impl", fmt::format("{} --broken", KVCHECK_CPP_EXAMPLE), "--cases", "5000",
            "--layout", "ring*", "--limit", "10m", "--shrink-time", "10h"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_NE(run.out.find("signature \"append visible_extra\""), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("; merge A -> B; append B 1'"), std::string::npos) << run.out;
}

TEST_F(CppAdapter, DrawnAttentionOfTheExamplePasses) {
  const ToolRun run = Tool({"fuzz", "--kind", "attention", "--impl", KVCHECK_CPP_EXAMPLE, "--cases",
                            "150", "--limit", "10m", "--json", "-"});
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  // Others prove nothing, whoever answers: their queries see no key.
  const json campaign = json::parse(run.out)["summary"]["campaigns"][0];
  EXPECT_GE(campaign["passed"], 100) << run.out;
  EXPECT_EQ(campaign["passed"].get<int>() + campaign["mistrusted_by_data"].get<int>(), 150)
      << campaign;
}

// ---- Oddities, judged ----

// Nothing fails, and nothing is proved: the odd adapter shows no token.
constexpr int kShowsNothing = 3;

TEST_F(CppAdapter, TheSmallExamplePassesAndItsFaultIsFound) {
  const ToolRun run = Tool({"fuzz", "--impl", KVCHECK_CPP_SMALL_EXAMPLE, "--cases", "400",
                            "--limit", "10m", "--json", "-"});
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(json::parse(run.out)["summary"]["campaigns"][0]["passed"], 400) << run.out;
  const ToolRun broken =
      Tool({"fuzz", "--impl", fmt::format("{} --broken", KVCHECK_CPP_SMALL_EXAMPLE), "--cases",
            "400", "--limit", "10m"});
  EXPECT_EQ(broken.exit_code, 1) << broken.out << broken.err;
  EXPECT_NE(broken.out.find("cache trim offset"), std::string::npos) << broken.out;
}

TEST_F(CppAdapter, TheSmallestExamplesAreReadOnOneScreen) {
  for (const char* name : {"small_example.cc", "prefix_example.cc"}) {
    const std::string path = std::string(KVCHECK_SOURCE_DIR) + "/tools/adapters/cpp/" + name;
    const ToolRun lines = Shell("wc -l <" + path + " && awk 'length > 100' " + path);
    EXPECT_LE(std::stoi(lines.out), 60) << name;
    EXPECT_EQ(lines.out.find('\n') + 1, lines.out.size())
        << "longer than 100 characters: " << lines.out;
  }
}

// What a copy shows before its first append is no step: asked of one that keeps its original's.
TEST_F(CppAdapter, ACopyStartsWithoutAStep) {
  const std::string setup =
      "cache layout=linear k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 growth=8 observe=each "
      "data=tokens:1; new A rows=1; append A 2; copy A -> B; append B 1";
  EXPECT_EQ(Tool({"run", setup, "--impl", KVCHECK_CPP_SMALL_EXAMPLE}).exit_code, 0);
}

TEST_F(CppAdapter, CachesAcrossRequestsPassAndTheFaultIsFound) {
  const ToolRun run = Tool({"fuzz", "--kind", "prefix", "--impl", KVCHECK_CPP_PREFIX_EXAMPLE,
                            "--cases", "400", "--limit", "10m", "--json", "-"});
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const json campaign = json::parse(run.out)["summary"]["campaigns"][0];
  EXPECT_GE(campaign["passed"], 370) << campaign;
  EXPECT_TRUE(campaign["declined"].empty()) << campaign;
  const ToolRun broken = Tool({"fuzz", "--kind", "prefix", "--impl",
                               fmt::format("{} --broken", KVCHECK_CPP_PREFIX_EXAMPLE), "--cases",
                               "400", "--limit", "10m"});
  EXPECT_EQ(broken.exit_code, 1) << broken.out << broken.err;
  EXPECT_NE(broken.out.find("prefix open other_tenant"), std::string::npos) << broken.out;
}

// Outside of what the space says nothing reaches the adapter: a setup, a field of an identity.
TEST_F(CppAdapter, WhatAPrefixSpaceLacksIsUnsupported) {
  const auto start = [](const json& changes) {
    json setup = {{"block_tokens", 1}, {"capacity_tokens", 8}, {"max_entries", 0},
                  {"layers", 1},       {"kv_heads", 1},        {"k_dim", 8},
                  {"v_dim", 8},        {"quantize_from", 0},   {"window", 0},
                  {"x", "f32"},        {"k", "f32"},           {"v", "f32"}};
    setup.update(changes);
    return Frame(json{{"do", "start"}, {"kind", "prefix"}, {"setup", setup}, {"again", false}});
  };
  const Exchange exchange =
      Send(KVCHECK_CPP_PREFIX_EXAMPLE,
           Frame(json{{"do", "hello"}, {"protocol", 1}, {"kvcheck", "0"}}) + start(json::object()) +
               start({{"window", 4}}) + start({{"max_entries", 2}}) + start({{"k", "q8_0"}}) +
               Frame(json{{"do", "fork"}, {"request", 0}, {"out", 1}}) +
               Frame(json{{"do", "load"}, {"key", "s0"}}));
  EXPECT_EQ(exchange.exit_code, 0) << exchange.err;
  ASSERT_EQ(exchange.answers.size(), 7U);
  EXPECT_EQ(exchange.answers[0]["prefix_profile"], "grain=token last=always partial=prefix");
  EXPECT_EQ(exchange.answers[1]["capacity_tokens"], 8);
  for (const size_t i : {2U, 3U, 4U}) EXPECT_TRUE(exchange.answers[i].contains("unsupported")) << i;
  EXPECT_TRUE(exchange.answers[5].contains("failed")) << exchange.answers[5];   // it is not open
  EXPECT_TRUE(exchange.answers[6].contains("refused")) << exchange.answers[6];  // nothing is saved
}

TEST_F(CppAdapter, PrintsOfTheLibraryDoNotReachTheAnswers) {
  const ToolRun run = Trace("prints", "new A rows=1; append A 2; append A 1");
  EXPECT_EQ(run.exit_code, kShowsNothing) << run.out << run.err;
}

TEST_F(CppAdapter, WritingToTheCallersArraysIsFoundOut) {
  const ToolRun run = Trace("writes_inputs", "new A rows=1; append A 2");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("append changed the caller's arrays"), std::string::npos) << run.out;
  EXPECT_EQ(Trace("none", "new A rows=1; append A 2").exit_code, kShowsNothing);

  const std::string codec = "codec op=round_trip format=f32 x=f32 rows=3 d=8 data=gauss:1";
  EXPECT_EQ(Tool({"run", codec, "--impl", Odd("none")}).exit_code, 0);
  const ToolRun changed = Tool({"run", codec, "--impl", Odd("writes_inputs")});
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_NE(changed.out.find("changed its input x"), std::string::npos) << changed.out;
}

TEST_F(CppAdapter, ExceptionsOfTheLibraryRefuseAndOthersFail) {
  const std::string legal = "new A rows=1; append A 2";
  const ToolRun refused = Trace("throws_std", legal);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.out.find("a legal call was refused: the library gave up"), std::string::npos)
      << refused.out;
  for (const char* const oddity :
       {"throws_other", "adapter_error", "blind", "misfit", "makes_nothing"}) {
    const ToolRun failed = Trace(oddity, legal);
    EXPECT_EQ(failed.exit_code, 1) << oddity;
    EXPECT_NE(failed.out.find("CRASHED"), std::string::npos) << oddity << failed.out;
    EXPECT_NE(failed.out.find("the adapter failed in"), std::string::npos) << oddity << failed.out;
  }
}

TEST_F(CppAdapter, WhatIsNotOverriddenIsUnsupported) {
  const ToolRun run =
      Trace("none", "new A rows=1; append A 2; trim A 1; copy A -> B; append A 1; save A s1");
  EXPECT_EQ(run.exit_code, kShowsNothing) << run.out << run.err;
}

TEST_F(CppAdapter, SignsOfLifeKeepALongCallAlive) {
  // Three steps of 40 minutes are longer than the limit, each of them is shorter.
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const SharedChildTime time(testing::TempDir());
  const ToolRun run = Tool({"run",
                            "cache layout=linear k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 growth=8 "
                            "observe=each data=tokens:1; new A rows=1; append A 2",
                            "--impl", Odd("slow"), "--limit", "1h"});
  EXPECT_EQ(run.exit_code, kShowsNothing) << run.out << run.err;
}

// ---- Frames of a stranger ----

TEST_F(CppAdapter, PipelinedRequestsAreAnsweredInOrder) {
  json append = {{"do", "append"},
                 {"cache", 1},
                 {"k", Columns(2, 64)},
                 {"v", Columns(2, 64)},
                 {"observe", {1, 7}}};
  const Exchange exchange =
      Send(KVCHECK_CPP_EXAMPLE, Opening() + Frame(append) +
                                    Frame(json{{"do", "trim"}, {"cache", 1}, {"count", -1}}) +
                                    Frame(json{{"do", "trim"}, {"cache", 1}, {"count", 1}}));
  EXPECT_EQ(exchange.exit_code, 0) << exchange.err;
  ASSERT_EQ(exchange.answers.size(), 6u);
  EXPECT_EQ(exchange.answers[0]["name"], "cpp-example");
  EXPECT_EQ(exchange.answers[0]["spaces"].size(), 2u);
  EXPECT_EQ(exchange.answers[1], json::object());
  EXPECT_EQ(exchange.answers[2], json::object());
  EXPECT_EQ(exchange.answers[3]["states"][0]["offsets"], json({2}));
  EXPECT_TRUE(exchange.answers[3]["states"][1].is_null());
  EXPECT_EQ(exchange.answers[4], json({{"refused", "a negative number of tokens"}}));
  EXPECT_EQ(exchange.answers[5]["trimmed"], 1);
}

TEST_F(CppAdapter, RequestsThatDoNotFitThemselvesFailAndTheNextIsAnswered) {
  const std::vector<json> broken = {
      {{"do", "append"}, {"cache", 1}, {"k", Columns(2, 63)}, {"v", Columns(2, 64)}},
      {{"do", "append"}, {"cache", 1}, {"k", Columns(-2, 64)}, {"v", Columns(2, 64)}},
      {{"do", "append"}, {"cache", 1}, {"k", "columns"}, {"v", Columns(2, 64)}},
      {{"do", "append"}, {"cache", 1}, {"v", Columns(2, 64)}},
      {{"do", "trim"}, {"cache", 2}, {"count", 1}},
      {{"do", "trim"}, {"cache", 1}, {"count", "one"}},
      {{"do", "case"}, {"case", "?"}, {"inputs", 3}},
      {{"do", "start"}, {"setup", {{"kv_heads", 1}}}},
      {{"do", "dance"}, {"cache", 1}},
      {{"do", "dance"}},
  };
  std::string bytes = Opening();
  for (const json& request : broken) bytes += Frame(request);
  bytes += Frame(json{{"do", "hello"}, {"protocol", 1}});
  const Exchange exchange = Send(KVCHECK_CPP_EXAMPLE, bytes);
  EXPECT_EQ(exchange.exit_code, 0) << exchange.err;
  ASSERT_EQ(exchange.answers.size(), 4 + broken.size());
  for (size_t i = 0; i < broken.size(); ++i) {
    EXPECT_TRUE(exchange.answers[3 + i].contains("failed")) << broken[i] << exchange.answers[3 + i];
  }
  EXPECT_EQ(exchange.answers.back()["protocol"], 1);
}

TEST_F(CppAdapter, WhatIsNoRequestEndsTheProgramWithALine) {
  const std::string no_map = Frame(json{1, 2});
  const std::string no_value = Frame(std::string("\xc1", 1));
  const std::string many = Frame(std::string("\xdf\xff\xff\xff\xff"));
  const std::string too_long = "\xff\xff\xff\xff\xff\xff\xff\xff";
  for (const std::string& bytes :
       {no_map, no_value, many, too_long, Frame(json{{"cache", 1}}), std::string("\3\0\0", 3),
        Frame(json{{"do", "hello"}}).substr(0, 10), Frame(std::string())}) {
    const Exchange exchange = Send(KVCHECK_CPP_EXAMPLE, bytes);
    EXPECT_EQ(exchange.exit_code, 2) << json(std::vector<uint8_t>(bytes.begin(), bytes.end()));
    EXPECT_NE(exchange.err.find("what arrives is no request: "), std::string::npos) << exchange.err;
    EXPECT_TRUE(exchange.answers.empty());
  }
  EXPECT_EQ(Send(KVCHECK_CPP_EXAMPLE, "").exit_code, 0);
}

}  // namespace
}  // namespace kvcheck
