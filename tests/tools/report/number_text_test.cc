#include "tools/report/number_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(NumberText, ErrorsHaveTwoDigits) {
  EXPECT_EQ(ErrorText(0.0312), "3.1e-2");
  EXPECT_EQ(ErrorText(-31200), "-3.1e4");
  EXPECT_EQ(ErrorText(0), "0");
  EXPECT_EQ(ErrorText(1e-300), "1.0e-300");
  EXPECT_EQ(ErrorText(kInfinity), "inf");
  EXPECT_EQ(ErrorText(-kInfinity), "-inf");
  EXPECT_EQ(ErrorText(kNan), "nan");
}

TEST(NumberText, RatiosNearOneSayOnWhichSideTheyLie) {
  EXPECT_EQ(RatioText(412.3), "412");
  EXPECT_EQ(RatioText(1), "1");
  EXPECT_EQ(RatioText(1.0001), "1.0001");
  EXPECT_EQ(RatioText(0.9999), "0.9999");
  EXPECT_EQ(RatioText(1 + 0x1p-52), "1 + 2^-52");
}

TEST(NumberText, SharesArePercent) {
  EXPECT_EQ(PercentText(0.614), "61 %");
  EXPECT_EQ(PercentText(0.0614), "6.1 %");
  EXPECT_EQ(PercentText(1e-6), "< 0.1 %");
  EXPECT_EQ(PercentText(0), "0 %");
}

TEST(NumberText, ShellWordsAreQuotedOnlyWhereNeeded) {
  EXPECT_EQ(ShellWord("data/a.h5"), "data/a.h5");
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord("a\n'\\"), "$'a\\x0a\\'\\\\'");
  EXPECT_EQ(ShellWord("a\xc2\x9b\xe2\x80\xae\xff\xc3\xa9"),
            "$'a\\xc2\\x9b\\xe2\\x80\\xae\\xff\xc3\xa9'");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("$(x)"), "'$(x)'");
  EXPECT_EQ(ShellWord("*"), "'*'");
}

}  // namespace
}  // namespace kvcheck
