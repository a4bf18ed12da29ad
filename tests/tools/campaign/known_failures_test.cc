#include "tools/campaign/known_failures.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "reference/spec/error.h"

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

TEST(KnownFailures, ExcuseOneSignatureOfOneImplementationUntilTheyExpire) {
  const KnownFailures known(kLine, "known.txt");
  const auto find = [&](const char* signature, const char* impl, const char* version,
                        const char* today) {
    return known.Find(signature, impl, version, today) != nullptr;
  };
  EXPECT_TRUE(find("append visible_missing", "mine", "1.4", "2026-12-30"));
  EXPECT_TRUE(find("append visible_missing", "mine", "1.4", "2026-12-31"));
  EXPECT_FALSE(find("append visible_missing", "mine", "1.4", "2027-01-01"));
  EXPECT_FALSE(find("append visible_extra", "mine", "1.4", "2026-12-30"));
  EXPECT_FALSE(find("append visible_missing", "yours", "1.4", "2026-12-30"));
  EXPECT_FALSE(find("append visible_missing", "mine", "2.0", "2026-12-30"));
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

TEST(KnownFailures, TodayIsADate) {
  const std::string today = Today();
  const KnownFailures known("signature=s impl=i version=* reason=r expires=" + today + "\n", "k");
  EXPECT_FALSE(KnownFailures::HasExpired(known.entries()[0], today));
}

}  // namespace
}  // namespace kvcheck
