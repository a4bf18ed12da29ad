#include "tools/report/shown_text.h"

#include <gtest/gtest.h>

namespace kvcheck {
namespace {

TEST(ShownText, NamesCannotSteerATerminal) {
  EXPECT_EQ(NameText("layers.0 \xc3\xa9 \xe2\x88\x88 \xf0\x9f\x90\x84"),
            "layers.0 \xc3\xa9 \xe2\x88\x88 \xf0\x9f\x90\x84");
  EXPECT_EQ(NameText("x\n1 case: 1 passed\x1b[2J\x7f"), "x\\x0a1 case: 1 passed\\x1b[2J\\x7f");
  EXPECT_EQ(NameText(std::string("a\0b", 3)), "a\\x00b");
}

TEST(ShownText, ControlsBeyondAsciiAndDirectionsAreNamed) {
  EXPECT_EQ(NameText("\xc2\x80 \xc2\x9b"
                     "31m \xc2\x9f \xc2\xa0"),
            "\\u{0080} \\u{009b}31m \\u{009f} \xc2\xa0");
  EXPECT_EQ(NameText("\xe2\x80\xaa \xe2\x80\xae \xe2\x81\xa6 \xe2\x81\xa9"),
            "\\u{202a} \\u{202e} \\u{2066} \\u{2069}");
  EXPECT_EQ(NameText("\xe2\x80\x8b \xe2\x80\x8e \xe2\x80\x8f \xd8\x9c \xef\xbb\xbf"),
            "\\u{200b} \\u{200e} \\u{200f} \\u{061c} \\u{feff}");
  EXPECT_EQ(NameText("\xe2\x80\xa8 \xe2\x80\xa9 \xf3\xa0\x80\xa1"),
            "\\u{2028} \\u{2029} \\u{e0021}");
}

// A terminal that does not read UTF-8 takes single bytes from 0x80 to 0x9f for controls.
TEST(ShownText, BytesThatAreNotUtf8AreNamed) {
  EXPECT_EQ(NameText("\x9b"
                     "31m \xff \xc0\x8a \xed\xa0\x80 \xe2\x80"),
            "\\x9b31m \\xff \\xc0\\x8a \\xed\\xa0\\x80 \\xe2\\x80");
  EXPECT_EQ(NameText("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(ShownText, NothingIsEscapedTwice) {
  const std::string once = NameText("a\x1b\xe2\x80\xae\xff");
  EXPECT_EQ(NameText(once), once);
}

TEST(ShownText, LinesOfAMessageDoNotPassForLinesOfTheTool) {
  EXPECT_EQ(MessageText("one"), "one");
  EXPECT_EQ(MessageText("one\n"), "one");
  EXPECT_EQ(MessageText("one\nPASS  two\x1b\n\nthree"), "one\n  | PASS  two\\x1b\n  | \n  | three");
}

}  // namespace
}  // namespace kvcheck
