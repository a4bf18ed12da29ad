#include "tools/campaign/known_failures.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "tools/campaign/canonical_form.h"

namespace kvcheck {
namespace {

constexpr const char* kLine =
    "signature=\"append visible_missing\" impl=mine version=1.* reason=\"issue 12: \\\"rings\\\"\" "
    "expires=2026-12-31 case=ring/one\n";

TEST(KnownFailures, ReadsWhatALineSays) {
  const KnownFailures known(std::string("# why\n\n") + kLine, "known.txt");
  ASSERT_EQ(known.entries().size(), 1u);
  const KnownFailure& entry = known.entries()[0];
  EXPECT_EQ(entry.signature, "append visible_missing");
  EXPECT_EQ(entry.implementation, "mine");
  EXPECT_EQ(entry.version, "1.*");
  EXPECT_EQ(entry.reason, "issue 12: \"rings\"");
  EXPECT_EQ(entry.expires, "2026-12-31");
  EXPECT_EQ(entry.case_name, "ring/one");
  EXPECT_EQ(entry.line, 3);
}

TEST(KnownFailures, LinesEndAsAnyEditorEndsThem) {
  std::string line = kLine;
  line.insert(line.size() - 1, "\r");
  const KnownFailures known("\xef\xbb\xbf# why\r\n\r\n" + line, "known.txt");
  ASSERT_EQ(known.entries().size(), 1u);
  EXPECT_EQ(known.entries()[0].case_name, "ring/one");
  EXPECT_EQ(known.entries()[0].line, 3);
}

TEST(KnownFailures, ExcuseOneSignatureOfOneImplementationUntilTheyExpire) {
  const KnownFailures known(kLine, "known.txt");
  const auto find = [&](const char* signature, const char* impl, const char* version,
                        const char* today) {
    return KnownCauses(known, impl, version, today).Find(signature, "any form") != nullptr;
  };
  EXPECT_TRUE(find("append visible_missing", "mine", "1.4", "2026-12-30"));
  EXPECT_TRUE(find("append visible_missing", "mine", "1.4", "2026-12-31"));
  EXPECT_FALSE(find("append visible_missing", "mine", "1.4", "2027-01-01"));
  EXPECT_FALSE(find("append visible_extra", "mine", "1.4", "2026-12-30"));
  EXPECT_FALSE(find("append visible_missing", "yours", "1.4", "2026-12-30"));
  EXPECT_FALSE(find("append visible_missing", "mine", "2.0", "2026-12-30"));
}

constexpr const char* kWithTraces =
    "signature=s impl=i version=* reason=keep expires=2999-12-31\n"
    "  trace cache layout=ring:w=4:keep=2 k=f32 dk=8 data=tokens:1; new A; append A 4; append A 2\n"
    "  trace attention hq=2 hkv=1 l=1 t=2 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1\n"
    "signature=s impl=i version=* reason=\"a \\\"batch\\\"\" expires=2999-12-31\n"
    " trace cache layout=ring:w=4 k=f32 dk=8 data=tokens:1; new A rows=2; append A 4\n"
    "signature=alone impl=i version=* reason=r expires=2999-12-31\n";

std::string FormOf(const std::string& text) { return CanonicalForm(ParseCase(text)); }

TEST(KnownFailures, ASignatureWithTracesExcusesThemAndNothingElse) {
  const KnownFailures known(kWithTraces, "known.txt");
  ASSERT_EQ(known.entries().size(), 3u);
  EXPECT_EQ(known.entries()[0].traces.size(), 2u);
  const KnownCauses causes(known, "i", "1", "2026-01-01");
  EXPECT_TRUE(causes.HasTraces("s"));
  EXPECT_FALSE(causes.HasTraces("alone"));
  const auto reason = [&](const std::string& signature, const std::string& text) {
    const KnownFailure* found = causes.Find(signature, FormOf(text));
    return found == nullptr ? "" : found->reason;
  };
  // Other numbers, types, seeds and slots of the same cause.
  EXPECT_EQ(
      reason("s",
             "cache layout=ring:w=7:keep=1 k=f16 x=f16 dk=8 data=tokens:9; new C; append C 5; "
             "append C 3"),
      "keep");
  EXPECT_EQ(reason("s", "cache k=f32 dk=8 data=tokens:1; new A layout=ring:w=3 rows=3; append A 2"),
            "a \"batch\"");
  // One column is not several, and a ring that keeps tokens not one that keeps none.
  EXPECT_EQ(reason("s",
                   "cache layout=ring:w=4:keep=2 k=f32 dk=8 data=tokens:1; new A; append A 4; "
                   "append A 1"),
            "");
  EXPECT_EQ(
      reason("s", "cache layout=ring:w=4 k=f32 dk=8 data=tokens:1; new A; append A 4; append A 2"),
      "");
  EXPECT_EQ(reason("alone", "cache k=f32 dk=8 data=tokens:1; new A"), "r");
}

TEST(KnownFailures, WhatIsPrintedReadsTheSame) {
  const KnownFailures known(kWithTraces, "known.txt");
  std::string printed;
  for (const KnownFailure& entry : known.entries()) printed += Print(entry);
  const KnownFailures again(printed, "known.txt");
  ASSERT_EQ(again.entries().size(), known.entries().size());
  for (size_t i = 0; i < known.entries().size(); ++i) {
    EXPECT_EQ(again.entries()[i].signature, known.entries()[i].signature);
    EXPECT_EQ(again.entries()[i].reason, known.entries()[i].reason);
    ASSERT_EQ(again.entries()[i].traces.size(), known.entries()[i].traces.size());
    for (size_t j = 0; j < known.entries()[i].traces.size(); ++j) {
      EXPECT_EQ(again.entries()[i].traces[j].form, known.entries()[i].traces[j].form);
    }
  }
}

TEST(KnownFailures, ATraceThatIsNoneIsRefusedWithItsPlace) {
  const std::string entry = "signature=s impl=i version=* reason=r expires=2999-12-31\n";
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"  trace cache; new A\n", "known.txt:1:1: a trace of no entry"},
           {entry + "  cache k=f32; new A\n", "known.txt:2:3: "},
           {entry + "  trace cache k=f99; new A\n", "known.txt:2:9: "},
           {entry + "  trace cache layout=ring:w=0 k=f32 dk=8; new A\n", "known.txt:2:9: "}}) {
    try {
      const KnownFailures known(text, "known.txt");
      FAIL() << "accepted: " << text;
    } catch (const Error& error) {
      const std::string got = error.context() + ": " + error.message();
      EXPECT_TRUE(got.starts_with(expected)) << got;
    }
  }
}

TEST(KnownFailures, EveryMalformedLineIsRefusedWithItsPlaceAndReason) {
  const std::string rest = " impl=i version=1 reason=r expires=2026-12-31";
  const std::vector<std::pair<std::string, std::string>> malformed = {
      {"impl=i version=1 reason=r expires=2026-12-31", "'signature=' is missing"},
      {"signature=s version=1 reason=r expires=2026-12-31", "'impl=' is missing"},
      {"signature=s impl=i reason=r expires=2026-12-31", "'version=' is missing"},
      {"signature=s impl=i version=1 expires=2026-12-31", "'reason=' is missing"},
      {"signature=s impl=i version=1 reason=r", "'expires=' is missing"},
      {"signature=s owner=me" + rest, ":13: there is no 'owner'"},
      {"signature=s signature=t" + rest, ":13: 'signature' twice"},
      {"signature=" + rest, ":1: 'signature' is empty"},
      {"signature=\"\"" + rest, ":1: 'signature' is empty"},
      {"signature=\"s" + rest, "a quote is not closed"},
      {"signature=\"s\"x" + rest, "a blank is missing"},
      {"signature=s\"" + rest, "a quote within a value"},
      {"signature" + rest, "fields are key=value"},
      {"append visible_missing" + rest, "fields are key=value"},
      {"signature=s impl=i version=[ reason=r expires=2026-12-31", ":20: "},
      {"signature=s impl=i version=1 reason=r expires=2026-13-01", "a date is YYYY-MM-DD"},
      {"signature=s impl=i version=1 reason=r expires=2026-02-30", "a date is YYYY-MM-DD"},
      {"signature=s impl=i version=1 reason=r expires=never", "a date is YYYY-MM-DD"},
      {"signature=s impl=i version=1 reason=r expires=26-12-31", "a date is YYYY-MM-DD"},
  };
  for (const auto& [line, expected] : malformed) {
    try {
      const KnownFailures known("# first\n" + line + "\n", "known.txt");
      FAIL() << "accepted: " << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse);
      const std::string got = error.context() + ": " + error.message();
      EXPECT_TRUE(got.starts_with("known.txt:2:")) << got;
      EXPECT_NE(got.find(expected), std::string::npos) << line << "\n" << got;
    }
  }
}

std::string ContentOf(const std::filesystem::path& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

// A file that is shipped loads, says by traces which causes it means, and is of the version that
// the adapter pins.
TEST(KnownFailures, TheShippedFilesLoadAndAreOfThePinnedVersion) {
  int files = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator(KVCHECK_SOURCE_DIR "/tools/adapters")) {
    const std::filesystem::path path = folder.path() / "known_failures.txt";
    if (!std::filesystem::exists(path)) continue;
    ++files;
    const std::string pinned = ContentOf(folder.path() / "requirements.txt") +
                               ContentOf(folder.path() / "requirements-alone.txt");
    const KnownFailures known(ContentOf(path), path.string());
    EXPECT_FALSE(known.entries().empty()) << path;
    for (const KnownFailure& entry : known.entries()) {
      EXPECT_FALSE(entry.traces.empty()) << path << ":" << entry.line;
      const std::string version = entry.version.substr(0, entry.version.find('*'));
      EXPECT_NE(pinned.find(entry.implementation + "==" + version + "\n"), std::string::npos)
          << path << ":" << entry.line;
    }
  }
  EXPECT_GE(files, 3);
}

TEST(KnownFailures, TodayIsADate) {
  const std::string today = Today();
  const KnownFailures known("signature=s impl=i version=* reason=r expires=" + today + "\n", "k");
  EXPECT_FALSE(KnownFailures::HasExpired(known.entries()[0], today));
}

}  // namespace
}  // namespace kvcheck
