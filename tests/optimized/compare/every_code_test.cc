// Types small enough for all of their codes, or all of their pairs of codes.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "optimized/compare/first_pass.h"
#include "reference/numerics/convert.h"
#include "tests/optimized/compare/drawn_pairs.h"
#include "tests/optimized/compare/judged_pair.h"

namespace kvcheck {
namespace {

std::vector<PassRule> SomeRules() {
  return {{.kind = PassRule::Kind::kExact, .nan = PassNan::kEqualBits},
          {.kind = PassRule::Kind::kUlp, .ulps = 1, .nan = PassNan::kEqual},
          {.kind = PassRule::Kind::kAbsRel, .absolute = 0.125},
          {.kind = PassRule::Kind::kAbsRel, .absolute = 1e-4, .relative = 0.01}};
}

TEST(EveryCode, OfOneByteBesideEveryOther) {
  for (const DType dtype : AllDTypes()) {
    if (SizeInBytes(dtype) != 1) continue;
    const int codes = dtype == DType::kBool ? 2 : dtype == DType::kFloat4E2M1FN ? 16 : 256;
    CodePair pair;
    for (int want = 0; want < codes; ++want) {
      for (int got = 0; got < 256; ++got) {
        pair.expected.push_back(static_cast<std::byte>(want));
        pair.got.push_back(static_cast<std::byte>(got));
      }
    }
    for (const PassRule& rule : SomeRules()) {
      EXPECT_EQ(Disagreement(ComparePass(dtype, pair.expected, pair.got, rule),
                             JudgeCodes(dtype, pair.expected, pair.got, rule)),
                "")
          << Name(dtype) << " " << Print(rule);
    }
  }
}

// Every code of two bytes on the expected side, beside drawn ones.
TEST(EveryCode, OfTwoBytesBesideSome) {
  std::mt19937_64 random(5);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kInt16, DType::kUInt16}) {
    for (const PassRule& rule : SomeRules()) {
      for (const int far : {1, 64, 65536}) {
        CodePair pair;
        pair.expected.resize(2 << 16);
        pair.got.resize(2 << 16);
        for (uint32_t code = 0; code < 65536; ++code) {
          const uint16_t want = static_cast<uint16_t>(code);
          const uint16_t got = static_cast<uint16_t>(
              code + static_cast<uint32_t>(random() % static_cast<uint64_t>(2 * far + 1)) -
              static_cast<uint32_t>(far));
          std::memcpy(pair.expected.data() + 2 * code, &want, 2);
          std::memcpy(pair.got.data() + 2 * code, &got, 2);
        }
        EXPECT_EQ(Disagreement(ComparePass(dtype, pair.expected, pair.got, rule),
                               JudgeCodes(dtype, pair.expected, pair.got, rule)),
                  "")
            << Name(dtype) << " " << Print(rule) << " " << far;
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
