// The order of rules: which admits nothing that another does not.

#include "reference/spec/tolerance.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvcheck {
namespace {

ToleranceRule Rule(const std::string& text) { return ParseToleranceRule(WholeLine(text)); }

bool Tight(const std::string& a, const std::string& b) { return AtLeastAsTight(Rule(a), Rule(b)); }

const std::vector<std::string> kRules = {"exact",
                                         "ulp:0",
                                         "ulp:4",
                                         "abs:0,rel:0",
                                         "abs:0.5",
                                         "rel:0.001",
                                         "codec:f16",
                                         "codec:f8e4m3fn",
                                         "codec:affine:4:g64",
                                         "codec:affine:4:g64:f32",
                                         "codec:affine:4:g64,encode=mlx_cpu",
                                         "codec:affine:4:g64,encode=mlx_cpu,codes=exact",
                                         "codec:affine:4:g64,encode=kivi",
                                         "codec:affine:4:g64,decode=one_rounding",
                                         "derived"};

TEST(RuleOrder, EveryRuleIsAtLeastAsTightAsItself) {
  for (const std::string& rule : kRules) EXPECT_TRUE(Tight(rule, rule)) << rule;
}

TEST(RuleOrder, IsTransitive) {
  for (const std::string& a : kRules) {
    for (const std::string& b : kRules) {
      for (const std::string& c : kRules) {
        EXPECT_TRUE(!Tight(a, b) || !Tight(b, c) || Tight(a, c)) << a << " " << b << " " << c;
      }
    }
  }
}

TEST(RuleOrder, ExactIsAtLeastAsTightAsEveryRuleAndNoneAsItIs) {
  for (const std::string& rule : kRules) {
    EXPECT_TRUE(Tight("exact", rule)) << rule;
    EXPECT_EQ(Tight(rule, "exact"), rule == "exact") << rule;
  }
}

TEST(RuleOrder, NumbersOrderRulesOfOneKind) {
  EXPECT_TRUE(Tight("ulp:3", "ulp:4"));
  EXPECT_FALSE(Tight("ulp:4", "ulp:3"));
  EXPECT_TRUE(Tight("abs:1,rel:2", "abs:1,rel:3"));
  EXPECT_FALSE(Tight("abs:2,rel:2", "abs:1,rel:3"));
  EXPECT_FALSE(Tight("abs:1,rel:3", "abs:1,rel:2"));
  EXPECT_FALSE(Tight("rel:1", "abs:1"));
}

TEST(RuleOrder, NoOrderIsClaimedBetweenKinds) {
  EXPECT_FALSE(Tight("ulp:1", "abs:1000"));
  EXPECT_FALSE(Tight("abs:2^-1074", "ulp:1000"));
  EXPECT_FALSE(Tight("ulp:1", "derived"));
  EXPECT_FALSE(Tight("derived", "abs:1000"));
  EXPECT_FALSE(Tight("codec:f16", "abs:1000"));
  EXPECT_FALSE(Tight("derived", "codec:f16"));
}

TEST(RuleOrder, TheToleranceZeroIsTightButForSignsOfZeroAndCodes) {
  EXPECT_TRUE(Tight("ulp:0", "abs:0,rel:0"));
  EXPECT_TRUE(Tight("abs:0,rel:0", "ulp:0"));
  EXPECT_TRUE(Tight("abs:0,rel:0", "codec:affine:4:g64"));
  EXPECT_FALSE(Tight("ulp:0", "codec:affine:4:g64,encode=mlx_cpu,codes=exact"));
}

TEST(RuleOrder, ACodecRuleTightensByWhatItDeclares) {
  const std::string loose = "codec:affine:4:g64";
  for (const std::string more : {",encode=mlx_gpu", ",decode=one_rounding", ",decode=exact",
                                 ",encode=mlx_cpu,codes=exact"}) {
    EXPECT_TRUE(Tight(loose + more, loose)) << more;
    EXPECT_FALSE(Tight(loose, loose + more)) << more;
  }
  EXPECT_TRUE(Tight(loose, loose + ",decode=two_roundings"));
  EXPECT_FALSE(Tight(loose + ",encode=mlx_gpu", loose + ",encode=mlx_cpu"));
  // Left out it means MLX's.
  EXPECT_FALSE(Tight(loose + ",encode=kivi", loose));
  EXPECT_TRUE(Tight(loose + ",encode=kivi,codes=exact", loose + ",encode=kivi"));
  EXPECT_FALSE(Tight("codec:affine:8:g64", loose));
  EXPECT_FALSE(Tight(loose, loose + ":f32"));
  EXPECT_FALSE(Tight("codec:f8e4m3fn,fp8_overflow=saturate", "codec:f8e4m3fn"));
  EXPECT_TRUE(Tight("codec:f8e4m3fn,fp8_overflow=nan", "codec:f8e4m3fn"));
}

}  // namespace
}  // namespace kvcheck
