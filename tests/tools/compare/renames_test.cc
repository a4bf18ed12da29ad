#include "tools/compare/renames.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/reference/spec/expect_error.h"

namespace kvcheck {
namespace {

struct RenameCase {
  std::string text;
  std::string path;
  std::string renamed;
};

TEST(Substitution, RenamesAsItSays) {
  const RenameCase cases[] = {
      {"s#old#new#", "/old/x", "/new/x"},
      {"s/old/new/", "/old/x", "/new/x"},
      {"s#a#b#", "/a/a", "/b/a"},
      {"s#a#b#g", "/a/a", "/b/b"},
      {"s#A#b#i", "/a/a", "/b/a"},
      {"s#A#b#ig", "/a/a", "/b/b"},
      {"s#^model\\.##", "/model.layers", "/layers"},  // as safetensors spells it
      {"s#^/old/#/new/#", "/old/x", "/new/x"},        // as HDF5 does
      {"s#^/old/##", "/old/x", "/x"},
      {"s#layers\\.(\\d+)\\.(\\w)_proj#$1/$2#", "/layers.12.k_proj", "/12/k"},
      {"s#layers\\.(\\d+)\\.(\\w)_proj#\\2/\\1#", "/layers.12.k_proj", "/k/12"},
      {"s#(a)#\\10#", "/a", "/a0"},  // \1 and a 0, not a tenth group
      {"s#x#[$&]#", "/x", "/[x]"},
      {"s#x#\\$1#", "/x", "/$1"},
      {"s#x#a\\\\b#", "/x", "/a\\b"},
      {"s#a\\#b#c\\#d#", "/a#b", "/c#d"},
      {"s,x,y,", "/x", "/y"},
      {"s#nothing#y#", "/x", "/x"},
      {"s#$#.weight#", "/x", "/x.weight"},
  };
  for (const RenameCase& c : cases) {
    EXPECT_EQ(Substitution(c.text, "--map").Apply(c.path), c.renamed) << c.text << " " << c.path;
  }
}

TEST(Substitution, RefusesWhatIsNone) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "a rename is written s#REGEX#REPLACEMENT#"},
      {"x#a#b#", "a rename is written s#REGEX#REPLACEMENT#"},
      {"s", "a rename is written s#REGEX#REPLACEMENT#"},
      {"sxaxbx", "a rename is written s#REGEX#REPLACEMENT#"},
      {"s|a|b|", "a rename is written s#REGEX#REPLACEMENT#"},
      {"s=a=b=", "a rename is written s#REGEX#REPLACEMENT#"},
      {"s#a", "write s#REGEX#REPLACEMENT#: a '#' is missing"},
      {"s#a#b", "write s#REGEX#REPLACEMENT#: a '#' is missing"},
      {"s#a\\#b#", "write s#REGEX#REPLACEMENT#: a '#' is missing"},
      {"s#a#b#x", "there is no flag 'x'; the flags are g and i"},
      {"s##b#", "the regular expression is empty"},
      {"s#(#b#", "not a regular expression"},
      {"s#a#\\x#", "\\x has no meaning in a replacement; it knows \\1 to \\9, \\\\ and \\$"},
      {"s#" + std::string(257, 'a') + "#b#", "a regular expression has at most 256 bytes"},
  };
  for (const auto& [text, message] : cases) {
    const std::string error = ErrorOf([&] { Substitution(text, "--map 'X'"); });
    EXPECT_TRUE(error.starts_with("usage | --map 'X' | " + message)) << text << ": " << error;
  }
}

TEST(Substitution, NestedQuantifiersTakeNoExponentialTime) {
  const std::string path = "/" + std::string(1000, 'a');
  for (const char* regex : {"(a+)+$", "(a|a)*$", "(a*)*b", "(.*a){12}b"}) {
    const Substitution slow("s#^" + std::string(regex) + "#x#", "--map");
    EXPECT_NE(slow.Apply(path + "!"), "/x") << regex;
  }
}

TEST(Substitution, RefusesNamesThatAreOrBecomeTooLong) {
  const Substitution twice("s#a#aa#g", "--map 'X'");
  EXPECT_EQ(
      ErrorOf([&] { twice.Apply("/" + std::string(1024, 'a')); }),
      "usage | --map 'X' | a name of 1025 bytes is too long to be renamed; the limit is 1024");
  EXPECT_EQ(
      ErrorOf([&] { twice.Apply("/" + std::string(600, 'a')); }),
      "usage | --map 'X' | a name of 1200 bytes is too long to be renamed; the limit is 1024");
}

using Names = std::map<std::string, std::string>;

TEST(Renames, AreAppliedInTheirOrder) {
  Renames renames;
  renames.AddSubstitution("s#a#b#");
  renames.AddSubstitution("s#b#c#");
  EXPECT_EQ(renames.Apply({"/a", "/b", "/d"}), (Names{{"/a", "/c"}, {"/b", "/c"}, {"/d", "/d"}}));
}

TEST(Renames, MapFileNamesTensorsOneByOneAndSwapsThem) {
  Renames renames;
  renames.AddFile("# a comment\n\n a  /b \r\n/b a\ns#d#c#", "m.txt");
  renames.AddSubstitution("s#c#e#");
  EXPECT_EQ(renames.Apply({"/a", "/b", "/d"}), (Names{{"/a", "/b"}, {"/b", "/a"}, {"/d", "/e"}}));
}

TEST(Renames, EntryThatChangesNothingIsAnError) {
  Renames renames;
  renames.AddSubstitution("s#x#x#");
  renames.AddSubstitution("s#^/x#y#");
  renames.AddSubstitution("s#^x#y#");
  EXPECT_EQ(ErrorOf([&] { renames.Apply({"/a", "/b", "/c", "/d", "/x"}); }),
            "usage | --map 's#x#x#', --map 's#^x#y#' | changes no name; GOT has /a, /b, /c and 2 "
            "more (a regex sees the leading / where it starts with ^/)");
  Renames late;
  late.AddFile("a b\n\ns#a#c#\n", "m.txt");
  EXPECT_EQ(ErrorOf([&] { late.Apply({"/a"}); }),
            "usage | m.txt:3 | changes no name; GOT has /a (a regex sees the leading / where it "
            "starts with ^/)");
  Renames file;
  file.AddFile("a b\nzz c\n", "m.txt");
  EXPECT_EQ(ErrorOf([&] { file.Apply({"/a"}); }),
            "usage | --map-file | GOT has no tensor /zz (m.txt:2); it has /a");
}

TEST(Renames, NameTwiceKeepsItFromSubstitutionsAndIsRefusedWhereNothingWouldChangeIt) {
  Renames keeps;
  keeps.AddFile("a a\ns#[ab]#c#\n", "m.txt");
  EXPECT_EQ(keeps.Apply({"/a", "/b"}), (Names{{"/a", "/a"}, {"/b", "/c"}}));
  for (const char* content : {"b c\na /a\n", "s#b#c#\na a\n"}) {
    Renames idle;
    idle.AddFile(content, "m.txt");
    EXPECT_EQ(
        ErrorOf([&] { idle.Apply({"/a", "/b"}); }),
        "usage | m.txt:2 | /a is named itself, and no substitution would rename it: leave the "
        "line out, or write GOT_NAME GOLD_NAME");
  }
}

TEST(Renames, MalformedMapFileIsRefusedWithItsLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"a b\nc", "usage | m.txt:2 | a line is GOT_NAME GOLD_NAME, or s#REGEX#REPLACEMENT#"},
      {"a b c", "usage | m.txt:1 | a line is GOT_NAME GOLD_NAME, or s#REGEX#REPLACEMENT#"},
      {"a b\n/a c", "usage | m.txt:2 | /a has a line already, m.txt:1"},
      {"s#a#b", "usage | m.txt:1 | write s#REGEX#REPLACEMENT#: a '#' is missing"},
  };
  for (const auto& [content, message] : cases) {
    Renames renames;
    EXPECT_EQ(ErrorOf([&] { renames.AddFile(content, "m.txt"); }), message);
  }
}

}  // namespace
}  // namespace kvcheck
