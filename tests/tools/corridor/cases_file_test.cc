#include "tools/corridor/cases_file.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr const char* kTwo =
    "# What rings forget.\n"
    "case ring\n"
    "reason a wrap\n"
    "cache layout=ring:w=2 k=f32 dk=8 data=tokens:1\n"
    "new A\n"
    "# in between\n"
    "append A 3\n"
    "\n"
    "\n"
    "case decode\n"
    "reason one query\n"
    "plan base=plain_f32\n"
    "profile masked_row=nan\n"
    "attention hq=1 hkv=1 l=1 t=3 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1\n";

TEST(CasesFile, ReadsCasesWithTheirReasons) {
  const std::vector<CaseEntry> cases = ParseCases(kTwo, "two.cases");
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].name, "ring");
  EXPECT_EQ(cases[0].reason, "a wrap");
  EXPECT_EQ(cases[0].line, 2);
  EXPECT_EQ(std::get<CacheCase>(cases[0].c).ops.size(), 2u);
  EXPECT_EQ(cases[1].plan, "base=plain_f32");
  EXPECT_EQ(cases[1].profile, "masked_row=nan");
  EXPECT_EQ(KindName(cases[1].c), "attention");
}

TEST(CasesFile, LinesEndAsAnyEditorEndsThem) {
  std::string text = "\xef\xbb\xbf";
  for (const char c : std::string(kTwo)) text += c == '\n' ? "\r\n" : std::string(1, c);
  const std::vector<CaseEntry> plain = ParseCases(kTwo, "two.cases");
  const std::vector<CaseEntry> cases = ParseCases(text, "two.cases");
  ASSERT_EQ(cases.size(), plain.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(Print(cases[i]), Print(plain[i]));
    EXPECT_EQ(cases[i].line, plain[i].line);
  }
}

TEST(CasesFile, PrintsWhatItReads) {
  for (CaseEntry entry : ParseCases(kTwo, "two.cases")) {
    entry.implementation = "fault:x";
    const std::string text = Print(entry, {"found somewhere", "two\nlines"});
    EXPECT_TRUE(text.starts_with("# found somewhere\n# two?lines\ncase ")) << text;
    const CaseEntry again = ParseCases(text, "again.case").front();
    EXPECT_EQ(again.name, entry.name);
    EXPECT_EQ(again.reason, entry.reason);
    EXPECT_EQ(again.plan, entry.plan);
    EXPECT_EQ(again.profile, entry.profile);
    EXPECT_EQ(again.implementation, "fault:x");
    EXPECT_EQ(again.c, entry.c);
  }
}

TEST(CasesFile, NamesAreMadeOfAnyText) {
  EXPECT_EQ(CaseName("append visible_missing operand"), "append-visible_missing-operand");
  EXPECT_EQ(CaseName("attention out bound: last key (1/2)"), "attention-out-bound-last-key-1-2");
  EXPECT_EQ(CaseName("///"), "case");
}

TEST(CasesFile, EveryMalformedLineIsRefusedWithItsPlaceAndReason) {
  const std::string trace = "cache k=f32 dk=8 data=tokens:1\nnew A\n";
  const std::vector<std::pair<std::string, std::string>> malformed = {
      {"cases f\n", "s.cases:1: 'cases' is neither"},
      {trace, "s.cases:1: a case begins with a line 'case NAME'"},
      {"reason r\n", "s.cases:1: a case begins with a line 'case NAME'"},
      {"case\n", "s.cases:1: the name of a case"},
      {"case a b\n", "s.cases:1: the name of a case"},
      {"case a/b\n", "s.cases:1: the name of a case"},
      {"case a\nreason r\n" + trace + "\ncase a\nreason r\n" + trace,
       "s.cases:6: a second case of the name 'a'"},
      {"case a\ncase b\n", "s.cases:2: an empty line stands between two cases"},
      {"case a\n" + trace, "s.cases:1: case 'a' has no reason"},
      {"case a\nreason r\n", "s.cases:1: case 'a' has no text"},
      {"case a\nreason\n" + trace, "s.cases:2: 'reason' without a text"},
      {"case a\nreason r\nreason s\n" + trace, "s.cases:3: 'reason' twice"},
      {"case a\nreason r\nplan qk=nothing\n" + trace, "s.cases:3: "},
      {"case a\nreason r\nprofile x=y\n" + trace, "s.cases:3: "},
      {"case a\nreason r\nplan base=plain_f32\n" + trace, "s.cases:1: a plan belongs"},
      {"case a\nreason r\nprofile masked_row=nan\n" + trace, "s.cases:1: a cache is judged"},
      {"case a\nreason r\ncache k=f32 dk=8 data=tokens:1\nnew A\nappend A x\n", "line 3"},
      {"case a\nreason r\ncache k=f32 dk=8 hkv=2 hq=3 data=tokens:1\nnew A\n", "s.cases:3: "},
      {"case a\nreason r\n" + trace + "reason late\n", "reason"},
      {"case a\nreason r\n" + trace + "case b\n", "case"},
      {"case a\nreason r\ntensor dtype=f32 shape=3 rule=exact data=gauss:1\n",
       "s.cases:3: a tensor case"},
      {" case a\n", "s.cases:1: a line neither begins nor ends with a blank"},
      {"case a \n", "s.cases:1: a line neither begins nor ends with a blank"},
      {"case a\rb\n", "s.cases:1: only printable ASCII"},
      {"case a\nreason caf\xc3\xa9\n", "s.cases:2: only printable ASCII"},
      {"# nothing\n\n", "s.cases: the file has no cases"},
      {"", "s.cases: the file has no cases"},
  };
  for (const auto& [text, expected] : malformed) {
    try {
      ParseCases(text, "s.cases");
      FAIL() << "accepted:\n" << text;
    } catch (const Error& error) {
      const std::string got = error.context() + ": " + error.message();
      EXPECT_NE(got.find(expected), std::string::npos) << text << "\n" << got;
    }
  }
}

TEST(CasesFile, AFileThatIsNotThereIsUnreadable) {
  try {
    ReadCases("/nowhere/x.cases");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
  }
}

TEST(CasesFile, AFileWithoutEndIsRefused) {
  try {
    ReadCases("/dev/zero");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    EXPECT_EQ(error.context(), "/dev/zero");
    EXPECT_EQ(error.message(),
              "is longer than 64 MiB, which no list of cases is; split it, or give the file that "
              "was meant");
  }
}

// A command line may hold what a file of cases has not.
TEST(CasesFile, TellsAnImplementationThatItCannotNameInAComment) {
  CaseEntry entry;
  entry.name = "a";
  entry.reason = "why";
  entry.c = ParseCase("codec op=decode format=bf16 x=f32 rows=1 d=64 data=gauss:1");
  for (const std::string name : {"./caf\xc3\xa9 x", "x ", " x", "x\ny", "x\ty"}) {
    entry.implementation = name;
    EXPECT_FALSE(FitsCasesFile(name));
    const std::vector<CaseEntry> read = ParseCases(Print(entry), "printed");
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].implementation, "");
    EXPECT_NE(Print(entry).find("give it with --impl"), std::string::npos);
  }
  entry.implementation = "python3 -m 'x y'";
  EXPECT_EQ(ParseCases(Print(entry), "printed")[0].implementation, entry.implementation);
}

}  // namespace
}  // namespace kvcheck
