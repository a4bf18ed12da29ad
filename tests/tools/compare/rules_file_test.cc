#include "tools/compare/rules_file.h"

#include <gtest/gtest.h>

#include "tests/reference/spec/expect_error.h"

namespace kvcheck {
namespace {

TensorRule DefaultOf(const std::string& text, std::optional<NanPolicy> nan = {}) {
  TensorRule rule;
  rule.tolerance = ParseToleranceRule(WholeLine(text));
  rule.nan = nan;
  rule.where = "--tol";
  return rule;
}

RuleSet RulesOf(const std::string& content, TensorRule default_rule = {}) {
  RuleSet rules(std::move(default_rule));
  rules.AddFile(content, "r.txt");
  return rules;
}

// "RULE @ WHERE" of the rule that decides, or the error.
std::string Deciding(const RuleSet& rules, const std::string& name) {
  std::string text;
  const std::string error = ErrorOf([&] {
    const TensorRule& rule = rules.Of(name);
    text = Print(rule.tolerance) + " @ " + rule.where;
  });
  return error.empty() ? text : error;
}

TEST(RuleSet, LastMatchDecides) {
  const RuleSet rules = RulesOf("# comment\n\n*  ulp:8\n  layers/*/keys\tulp:4 \r\n", {});
  EXPECT_EQ(rules.size(), 2U);
  EXPECT_EQ(Deciding(rules, "/layers/0/keys"), "ulp:4 @ r.txt:4");
  EXPECT_EQ(Deciding(rules, "/layers/0/values"), "ulp:8 @ r.txt:3");
  EXPECT_EQ(Deciding(RulesOf("k exact", DefaultOf("ulp:2")), "/v"), "ulp:2 @ --tol");
  EXPECT_EQ(Deciding(RulesOf("k exact"), "/v"), "exact @ ");
}

TEST(RuleSet, LinesEndAsAnyEditorEndsThem) {
  const RuleSet rules =
      RulesOf("\xef\xbb\xbf# comment\r\n\r\n* ulp:8\r\na ulp:4 reason=\"as b\"\r\n", {});
  EXPECT_EQ(rules.size(), 2U);
  EXPECT_EQ(Deciding(rules, "/a"), "ulp:4 @ r.txt:4");
  EXPECT_EQ(Deciding(rules, "/b"), "ulp:8 @ r.txt:3");
}

TEST(RuleSet, FieldsAreRead) {
  const RuleSet rules = RulesOf(
      "a\\ b abs:0.5,rel:2^-7 reason=\"a \\\"b\\\" \\\\ c\" cast=bf16 nan=equal\n"
      "c codec:affine:4:g64 cast=float32\n",
      DefaultOf("exact", NanPolicy::kEqualBits));
  const TensorRule& first = rules.Of("/a b");
  EXPECT_EQ(Print(first.tolerance), "abs:0.5,rel:0.0078125");
  EXPECT_EQ(first.reason, "a \"b\" \\ c");
  EXPECT_EQ(first.cast, DType::kBFloat16);
  EXPECT_EQ(first.nan, NanPolicy::kEqual);
  EXPECT_EQ(first.Special(), (SpecialPolicy{NanPolicy::kEqual, NanPolicy::kEqual}));
  EXPECT_EQ(TensorRule().Special(), (SpecialPolicy{NanPolicy::kFail, NanPolicy::kEqualBits}));
}

TEST(RuleSet, LinesInheritNanAndCastFromTheOptions) {
  TensorRule defaults = DefaultOf("ulp:4", NanPolicy::kEqual);
  defaults.cast = DType::kFloat32;
  const RuleSet rules = RulesOf("a ulp:2\nb ulp:2 nan=fail cast=f64", defaults);
  EXPECT_EQ(rules.Of("/a").nan, NanPolicy::kEqual);
  EXPECT_EQ(rules.Of("/a").cast, DType::kFloat32);
  EXPECT_EQ(rules.Of("/b").nan, NanPolicy::kFail);
  EXPECT_EQ(rules.Of("/b").cast, DType::kFloat64);
}

TEST(RuleSet, LooserRuleNeedsAReason) {
  struct Row {
    std::string option;  // --tol; "" for none
    std::string lines;
    std::string result;
  };
  const auto error = [](const std::string& where, const std::string& later,
                        const std::string& earlier, const std::string& at) {
    return "usage | " + where + " | '" + later + "' may let pass what '" + earlier + "' (" + at +
           ") would not, for /k: say why with reason=\"...\"";
  };
  const Row rows[] = {
      // What no option asked for may be loosened.
      {"", "k ulp:4", "ulp:4 @ r.txt:1"},
      {"exact", "k ulp:4", error("r.txt:1", "ulp:4", "exact", "--tol")},
      {"exact", "k ulp:4 reason=\"new kernel\"", "ulp:4 @ r.txt:1"},
      {"ulp:8", "k ulp:4", "ulp:4 @ r.txt:1"},
      {"ulp:4", "k ulp:4", "ulp:4 @ r.txt:1"},
      {"", "* ulp:4\nk ulp:5", error("r.txt:2", "ulp:5", "ulp:4", "r.txt:1")},
      {"", "* ulp:4\nk abs:1", error("r.txt:2", "abs:1,rel:0", "ulp:4", "r.txt:1")},
      {"", "* abs:1\nk abs:2^-1", "abs:0.5,rel:0 @ r.txt:2"},
      {"", "* abs:1\nk abs:2^-1,rel:2^-9",
       error("r.txt:2", "abs:0.5,rel:0.001953125", "abs:1,rel:0", "r.txt:1")},
      // Nothing is loosened where the lines do not meet.
      {"", "v exact\nk ulp:5", "ulp:5 @ r.txt:2"},
      // A tighter line cannot hide that the one before it loosened.
      {"", "* exact\nk ulp:9\nk ulp:5", error("r.txt:2", "ulp:9", "exact", "r.txt:1")},
      {"", "* exact\nk ulp:9 reason=\"r\"\nk ulp:5", "ulp:5 @ r.txt:3"},
      // NaN counts where somebody spoke of it.
      {"ulp:4", "k exact", "exact @ r.txt:1"},
      {"ulp:4", "k exact nan=equal-bits",
       error("r.txt:1", "exact nan=equal-bits", "ulp:4", "--tol")},
      {"", "* ulp:4 nan=fail\nk exact", error("r.txt:2", "exact", "ulp:4 nan=fail", "r.txt:1")},
      {"", "* ulp:4 nan=equal\nk ulp:4 nan=equal-bits", "ulp:4 @ r.txt:2"},
  };
  for (const Row& row : rows) {
    const RuleSet rules =
        RulesOf(row.lines, row.option.empty() ? TensorRule() : DefaultOf(row.option));
    EXPECT_EQ(Deciding(rules, "/k"), row.result) << row.option << " | " << row.lines;
  }
}

TEST(RuleSet, RuleThatMatchesNothingIsAnError) {
  const RuleSet rules = RulesOf("* exact\nkeys ulp:4\nlayers/[ab] ulp:2\nv exact");
  EXPECT_EQ(ErrorOf([&] { rules.CheckUsed({"/v", "/layers/c"}); }),
            "nothing selected | --rules | no tensor matches the rule of r.txt:2 ('keys'), r.txt:3 "
            "('layers/[ab]')");
  EXPECT_EQ(ErrorOf([&] { rules.CheckUsed({"/v", "/layers/a", "/keys"}); }), "");
}

TEST(RuleSet, MalformedLineIsRefusedWithItsColumn) {
  const std::string fields = "the fields after a rule are nan=, cast= and reason=\"...\"";
  const std::pair<std::string, std::string> cases[] = {
      {"k", "r.txt:1:2 | a rule is missing after the pattern"},
      {"\n  k  ulp:x", "r.txt:2:10 | "},
      {"k wrong", "r.txt:1:3 | a rule is exact, ulp:N, abs:X, rel:Y, abs:X,rel:Y, codec:FORMAT or"},
      {"k abs:-1", "r.txt:1:7 | a tolerance is at least 0"},
      {"k exact colour=red", "r.txt:1:9 | unknown key 'colour'; " + fields},
      {"k exact reasons=\"x\"",
       "r.txt:1:9 | unknown key 'reasons' (did you mean 'reason'?); " + fields},
      {"k exact red", "r.txt:1:9 | " + fields},
      {"k exact nan=maybe", "r.txt:1:13 | 'maybe' is not one of fail, equal, equal-bits"},
      {"k exact nan=fail nan=fail", "r.txt:1:18 | 'nan' is given twice"},
      {"k exact cast=f31", "r.txt:1:14 | 'f31' is not a type"},
      {"k exact cast=f32 cast=f32", "r.txt:1:18 | 'cast' is given twice"},
      {"k exact reason=because", "r.txt:1:16 | write reason=\"TEXT\""},
      {"k exact reason=\"\"", "r.txt:1:16 | the reason is empty"},
      {"k exact reason=\" \"", "r.txt:1:16 | the reason is empty"},
      {"k exact reason=\"x", "r.txt:1:9 | a '\"' is missing at the end"},
      {"k exact reason=\"x\" reason=\"y\"", "r.txt:1:20 | 'reason' is given twice"},
      {"[k exact", "r.txt:1 | pattern '[k': '[' is not closed"},
  };
  for (const auto& [content, message] : cases) {
    const std::string error = ErrorOf([&] { RulesOf(content); });
    EXPECT_TRUE(error.starts_with("malformed text | " + message)) << content << ": " << error;
  }
}

}  // namespace
}  // namespace kvcheck
