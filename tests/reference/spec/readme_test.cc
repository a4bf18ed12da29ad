// reference/README.md describes the texts: its examples parse, and it names every key that the
// parsers know.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "reference/spec/cache_profile.h"
#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/plan.h"
#include "reference/spec/prefix_profile.h"
#include "reference/spec/profile.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {
namespace {

std::string Readme() {
  std::ifstream file(KVCHECK_SOURCE_DIR "/reference/README.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The lines between a pair of fences.
std::vector<std::string> FencedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  bool fenced = false;
  for (std::string line; std::getline(stream, line);) {
    if (line == "```") {
      fenced = !fenced;
    } else if (fenced) {
      lines.push_back(line);
    }
  }
  return lines;
}

TEST(Readme, ExamplesParse) {
  int cases = 0;
  int plans = 0;
  for (const std::string& line : FencedLines(Readme())) {
    const std::string word = line.substr(0, line.find_first_of(" ="));
    if (word == "codec" || word == "attention" || word == "tensor" || word == "cache" ||
        word == "prefix") {
      EXPECT_NO_THROW(ParseCase(line)) << line;
      ++cases;
    } else if (word == "base" || word == "qk") {
      EXPECT_NO_THROW(ParsePlan(line)) << line;
      ++plans;
    }
  }
  EXPECT_EQ(cases, 7);
  EXPECT_EQ(plans, 2);
  EXPECT_NO_THROW(
      ParseProfile("masked_row=mean mask_value=lowest maximum=all decode=two_roundings"));
  for (const std::string rule :
       {"abs:2^-20,rel:0.001", "codec:f8e4m3fn,fp8_overflow=saturate",
        "codec:affine:4:g64,decode=two_roundings,encode=mlx_cpu,codes=exact"}) {
    EXPECT_NE(Readme().find("`" + rule + "`"), std::string::npos) << rule;
    EXPECT_NO_THROW(ParseToleranceRule(WholeLine(rule))) << rule;
  }
}

// The block that starts with a setup on a line of its own.
std::string BlockOf(const std::string& kind) {
  const std::string readme = Readme();
  const size_t begin = readme.find("```\n" + kind + " ") + 4;
  EXPECT_NE(begin, std::string::npos + 4);
  return readme.substr(begin, readme.find("```", begin) - begin);
}

TEST(Readme, HistoryOfSeveralLinesParses) {
  const std::string block = BlockOf("prefix");
  EXPECT_EQ(ParsePrefixCase(block).ops.size(), 10u);
  EXPECT_EQ(PrintLines(ParsePrefixCase(block)), block);
}

TEST(Readme, TraceOfSeveralLinesParses) {
  const std::string block = BlockOf("cache");
  EXPECT_EQ(ParseCacheCase(block).ops.size(), 7u);
  EXPECT_EQ(PrintLines(ParseCacheCase(block)), block);
}

// The keys that a parser lists when it meets an unknown one.
template <typename Parse>
std::vector<std::string> KnownKeys(const std::string& text, Parse parse) {
  try {
    parse(text);
  } catch (const Error& error) {
    const std::string& message = error.message();
    const size_t begin = message.find("known: ") + 7;
    std::istringstream list(message.substr(begin, message.find(" (in '") - begin));
    std::vector<std::string> keys;
    for (std::string key; list >> key;) {
      if (key.back() == ',') key.pop_back();
      keys.push_back(key);
    }
    return keys;
  }
  return {};
}

TEST(Readme, NamesEveryKey) {
  const std::string readme = Readme();
  std::vector<std::string> keys;
  const auto add = [&](const std::vector<std::string>& more) {
    EXPECT_GE(more.size(), 5u);
    keys.insert(keys.end(), more.begin(), more.end());
  };
  const std::string codec = "codec op=encode format=f16 x=f32 rows=4 d=64 data=gauss:1";
  const std::string attention =
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 data=gauss:1";
  const std::string tensor = "tensor dtype=f32 shape=2 rule=exact data=file";
  const std::string cache = "cache k=f32 dk=8 data=tokens:1";
  const std::string prefix = "prefix data=tokens:1";
  for (const std::string& text : {codec, attention, tensor, cache, prefix}) {
    add(KnownKeys(text + " unknown=1", [](const std::string& t) { ParseCase(t); }));
  }
  add(KnownKeys("unknown=1", [](const std::string& t) { ParsePlan(t); }));
  add(KnownKeys("unknown=1", [](const std::string& t) { ParseProfile(t); }));
  add(KnownKeys("unknown=1", [](const std::string& t) { ParseCacheProfile(t); }));
  add(KnownKeys("unknown=1", [](const std::string& t) { ParsePrefixProfile(t); }));
  for (const std::string& key : keys) {
    EXPECT_NE(readme.find("`" + key + "`"), std::string::npos) << key;
  }
}

TEST(Readme, NamesEveryOperation) {
  const std::string readme = Readme();
  for (int kind = 0; kind < kCacheOpKinds; ++kind) {
    const auto name = Name(static_cast<CacheOpKind>(kind));
    EXPECT_NE(readme.find("`" + std::string(name) + " "), std::string::npos) << name;
  }
  for (int kind = 0; kind < kPrefixOpKinds; ++kind) {
    const std::string name = "`" + std::string(Name(static_cast<PrefixOpKind>(kind)));
    EXPECT_TRUE(readme.find(name + " ") != std::string::npos ||
                readme.find(name + "`") != std::string::npos)
        << name;
  }
}

TEST(Readme, NamesEveryFormatType) {
  const std::string readme = Readme();
  for (const KvFormat& format : AllKvFormats()) {
    if (!IsPlain(format)) continue;
    EXPECT_NE(readme.find(Print(format)), std::string::npos) << Print(format);
  }
}

}  // namespace
}  // namespace kvcheck
