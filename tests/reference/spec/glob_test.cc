#include "reference/spec/glob.h"

#include <gtest/gtest.h>

#include "tests/reference/spec/expect_error.h"

namespace kvcheck {
namespace {

struct GlobCase {
  std::string pattern;
  std::string path;
  bool matches;
};

TEST(Glob, MatchesAsItsPatternSays) {
  const GlobCase cases[] = {
      {"*", "/a", true},
      {"*", "/a/b.c", true},
      {"a", "/a", true},
      {"/a", "/a", true},
      {"a", "/b/a", false},
      {"*/a", "/b/a", true},
      {"*a", "/a", true},
      {"/*/a", "/a", false},
      {"layers/*/keys", "/layers/3/keys", true},
      {"layers/*/keys", "/layers/3/x/keys", true},  // a star crosses levels
      {"model.layers.*.k_proj", "/model.layers.31.self_attn.k_proj", true},
      {"layers/?/keys", "/layers/3/keys", true},
      {"layers/?/keys", "/layers/31/keys", false},
      {"layers/[0-3]/*", "/layers/3/keys", true},
      {"layers/[0-3]/*", "/layers/4/keys", false},
      {"layers/[!0-3]/*", "/layers/4/keys", true},
      {"layers/[^0-3]/*", "/layers/3/keys", false},
      {"[]x]", "/]", true},
      {"[]x]", "/x", true},
      {"[!]x]", "/]", false},
      {"[a-]", "/-", true},
      {"[a-]", "/b", false},
      {"[\\]]", "/]", true},
      {"\\*", "/*", true},
      {"\\*", "/a", false},
      {"\\\\[a]", "/\\a", true},
      {"a*b*c", "/abbc", true},
      {"a*b*c", "/abcb", false},
      {"**", "/a/b", true},
      {"a", "/A", false},
      {"a", "/", false},
      {"*", "/", true},
      {"\xc3\xa4*", "/\xc3\xa4x", true},
      {"[\x80-\xff]", "/\xc3", true},
  };
  for (const GlobCase& c : cases) {
    EXPECT_EQ(Glob(c.pattern).Matches(c.path), c.matches) << c.pattern << " " << c.path;
  }
}

TEST(Glob, RefusesWhatIsNoPattern) {
  EXPECT_EQ(ErrorOf([] { Glob(""); }), "usage | pattern '' | an empty pattern matches nothing");
  EXPECT_EQ(ErrorOf([] { Glob("a\\"); }), "usage | pattern 'a\\' | nothing follows the last \\");
  for (const char* pattern : {"[a", "a[!", "[]", "[a\\]"}) {
    EXPECT_EQ(ErrorOf([&] { Glob{pattern}; }),
              std::string("usage | pattern '") + pattern +
                  "' | '[' is not closed; write \\[ for the character");
  }
  EXPECT_EQ(ErrorOf([] { Glob(std::string(Glob::kMostBytes, 'a')); }), "");
  EXPECT_EQ(ErrorOf([] { Glob(std::string(Glob::kMostBytes + 1, 'a')); }),
            "usage | pattern '" + std::string(80, 'a') + "...' | a pattern has at most 4096 bytes");
}

TEST(Glob, OfAPathMatchesThatPathAlone) {
  const std::vector<std::string> paths = {"/a",    "/a*", "/a?",   "/[a]", "/\\a",
                                          "/a\\*", "/",   "/a b.", "/]"};
  for (const std::string& path : paths) {
    for (const std::string& other : paths) {
      EXPECT_EQ(Glob(Glob::Of(path)).Matches(other), path == other) << path << " " << other;
    }
  }
}

TEST(Glob, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "*a";
  const Glob glob(pattern + "*b");
  const std::string path = "/" + std::string(4000, 'a');
  EXPECT_FALSE(glob.Matches(path));
  EXPECT_TRUE(glob.Matches(path + "b"));
}

}  // namespace
}  // namespace kvcheck
