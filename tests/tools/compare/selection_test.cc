#include "tools/compare/selection.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/reference/spec/expect_error.h"

namespace kvcheck {
namespace {

FileIndex IndexOfPaths(const std::vector<std::string>& paths) {
  FileIndex index;
  for (const std::string& path : paths) {
    ObjectRecord record;
    record.is_dataset = true;
    record.shape = Shape::Unnamed({2});
    index.objects[path] = record;
  }
  index.objects["/"] = ObjectRecord();
  return index;
}

struct Words {
  std::vector<std::string> include = {};
  std::vector<std::string> exclude = {};
  std::vector<std::string> allow_missing = {};
  std::vector<std::string> allow_extra = {};
  std::vector<std::string> map = {};
  std::string shard = {};
};

SelectionOptions OptionsOf(const Words& words) {
  SelectionOptions options;
  options.include = ParseGlobs(words.include);
  options.exclude = ParseGlobs(words.exclude);
  options.allow_missing = ParseGlobs(words.allow_missing);
  options.allow_extra = ParseGlobs(words.allow_extra);
  for (const std::string& text : words.map) options.renames.AddSubstitution(text);
  if (!words.shard.empty()) options.shard = ParseShard(words.shard);
  return options;
}

// "NAME=GOT", "NAME missing", "NAME=GOT extra".
std::vector<std::string> Pairs(const std::vector<std::string>& gold,
                               const std::vector<std::string>& got, const Words& words) {
  std::vector<std::string> texts;
  for (const TensorPair& pair :
       SelectTensors(IndexOfPaths(gold), IndexOfPaths(got), OptionsOf(words)).pairs) {
    texts.push_back(pair.got.empty() ? pair.name + " missing"
                                     : pair.name + "=" + pair.got + (pair.in_gold ? "" : " extra"));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Selection, PairsEveryTensorOfEitherFileByName) {
  EXPECT_EQ(Pairs({"/b", "/a"}, {"/a", "/c"}, {}), (Texts{"/a=/a", "/b missing", "/c=/c extra"}));
}

TEST(Selection, ExcludeBeatsInclude) {
  const Texts names = {"/k/0", "/k/1", "/v/0", "/v/1"};
  EXPECT_EQ(Pairs(names, names, {.include = {"k/*", "/v/1"}, .exclude = {"*/1"}}),
            (Texts{"/k/0=/k/0"}));
  EXPECT_EQ(Pairs(names, names, {.exclude = {"k/*"}}), (Texts{"/v/0=/v/0", "/v/1=/v/1"}));
}

TEST(Selection, PatternsSeeTheNamesOfGold) {
  EXPECT_EQ(Pairs({"/new/k", "/new/v"}, {"/old/k", "/old/v"},
                  {.include = {"new/k"}, .map = {"s#^old#new#"}}),
            (Texts{"/new/k=/old/k"}));
  EXPECT_EQ(Pairs({"/new/k"}, {"/old/k"}, {.include = {"old/*"}}), (Texts{"/old/k=/old/k extra"}));
}

TEST(Selection, AllowedAbsencesAreLeftOutAndCounted) {
  const Selection selection =
      SelectTensors(IndexOfPaths({"/a", "/gone/1", "/gone/2"}), IndexOfPaths({"/a", "/added"}),
                    OptionsOf({.allow_missing = {"gone/*"}, .allow_extra = {"add*"}}));
  EXPECT_EQ(selection.pairs, (std::vector<TensorPair>{{"/a", true, "/a", {}, {}, {}}}));
  EXPECT_EQ(selection.allowed_missing, (Texts{"/gone/1", "/gone/2"}));
  EXPECT_EQ(selection.allowed_extra, (Texts{"/added"}));
  // One allows no absence of the other kind, and hides no tensor that both files have.
  EXPECT_EQ(Pairs({"/a", "/b"}, {"/a", "/c"}, {.allow_missing = {"c", "a", "b"}}),
            (Texts{"/a=/a", "/c=/c extra"}));
}

TEST(Selection, TwoTensorsThatWouldShareANameAreRefusedByAllTheirNames) {
  const Texts got = {"/0/k", "/1/k", "/2/k", "/0/v", "/1/v", "/x"};
  const auto select = [&](const Words& words) {
    return ErrorOf([&] { Pairs({"/k"}, got, words); });
  };
  EXPECT_EQ(select({.map = {"s#^\\d/##"}}),
            "usage | --map | tensors of GOT would share a name: /0/k and /1/k and /2/k become /k; "
            "/0/v and /1/v become /v");
  // A collision with a tensor that keeps its name.
  EXPECT_EQ(select({.map = {"s#^0/k#x#"}}),
            "usage | --map | tensors of GOT would share a name: /0/k and /x become /x");
  EXPECT_EQ(select({.exclude = {"v"}, .map = {"s#^\\d/v#v#"}}), "");
}

TEST(Selection, NothingToCompareIsAnError) {
  const auto select = [](const Words& words) {
    return ErrorOf([&] { Pairs({"/a", "/b"}, {"/a", "/c"}, words); });
  };
  EXPECT_EQ(select({.include = {"x"}}),
            "nothing selected | --include | 'x' matches no tensor; the first of 3: /a, /b, /c");
  EXPECT_EQ(select({.include = {"b", "c"}, .allow_missing = {"b"}, .allow_extra = {"c"}}),
            "nothing selected | compare | everything selected is in one file alone, and allowed to "
            "be: nothing to compare");
  EXPECT_EQ(select({.allow_missing = {"d"}}),
            "nothing selected | --allow-missing | 'd' matches no tensor; the first of 3: /a, /b, "
            "/c");
  EXPECT_EQ(select({.allow_extra = {"d"}}),
            "nothing selected | --allow-extra | 'd' matches no tensor; the first of 3: /a, /b, /c");
  EXPECT_EQ(ErrorOf([] { Pairs({}, {}, {}); }),
            "nothing selected | compare | no tensor is selected; there are none");
  // /layers/0/keys is in part 1 of 2.
  EXPECT_EQ(ErrorOf([] { Pairs({"/layers/0/keys"}, {"/layers/0/keys"}, {.shard = "2/2"}); }),
            "nothing selected | --shard | none of the 1 selected tensors is in part 2 of 2: take "
            "fewer parts");
}

TEST(Shard, IsTheDocumentedHashOfTheName) {
  // By the line of Python in selection.h.
  struct Row {
    const char* name;
    int64_t of_2, of_3, of_7, of_million;
  };
  const Row rows[] = {{"/q", 2, 1, 2, 897418},
                      {"/layers/0/keys", 1, 3, 1, 946915},
                      {"/layers/0/values", 2, 3, 1, 894538},
                      {"/model.layers.17.self_attn.k_proj.weight", 2, 3, 5, 245676},
                      {"/0.0", 2, 2, 5, 446756}};
  for (const Row& row : rows) {
    const std::pair<int64_t, int64_t> parts[] = {
        {2, row.of_2}, {3, row.of_3}, {7, row.of_7}, {1'000'000, row.of_million}};
    for (const auto& [count, index] : parts) {
      EXPECT_TRUE((Shard{index, count}.Has(row.name))) << row.name << " " << count;
      EXPECT_FALSE((Shard{index % count + 1, count}.Has(row.name))) << row.name << " " << count;
    }
  }
}

TEST(Shard, PartsAreAPartitionOfAllPairsByTheNamesOfGold) {
  Texts gold;
  Texts got;
  for (int i = 0; i < 40; ++i) {
    for (const char* kind : {"keys", "values"}) {
      gold.push_back("/layers/" + std::to_string(i) + "/" + kind);
      got.push_back("/l" + std::to_string(i) + "/" + kind);
    }
  }
  got[3] = "/other";  // one missing, one extra
  for (const int count : {1, 2, 3, 8}) {
    std::multiset<std::string> seen;
    for (int index = 1; index <= count; ++index) {
      const Texts part = Pairs(gold, got,
                               {.map = {"s#^l(\\d)#layers/$1#"},
                                .shard = std::to_string(index) + "/" + std::to_string(count)});
      EXPECT_LT(part.size(), count == 1 ? 82U : 60U);
      seen.insert(part.begin(), part.end());
    }
    const Texts all = Pairs(gold, got, {.map = {"s#^l(\\d)#layers/$1#"}});
    EXPECT_EQ(all.size(), 81U);
    EXPECT_EQ(seen, (std::multiset<std::string>(all.begin(), all.end())));
  }
}

TEST(Shard, RefusesWhatIsNoPart) {
  for (const char* text : {"", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1/1000001"}) {
    EXPECT_EQ(ErrorOf([&] { ParseShard(text); }),
              std::string("usage | --shard '") + text +
                  "' | write i/n, part i of n, with 1 <= i <= n <= 1000000");
  }
}

}  // namespace
}  // namespace kvcheck
