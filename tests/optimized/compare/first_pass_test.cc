#include "optimized/compare/first_pass.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "tests/optimized/compare/drawn_pairs.h"
#include "tests/optimized/compare/judged_pair.h"

namespace kvcheck {
namespace {

// Blocks of every length: none, one lane, ragged ends, several blocks.
constexpr size_t kLengths[] = {1, 15, 129, 4096, 4097, 9001};

class FirstPassOf : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(, FirstPassOf, testing::ValuesIn(AllDTypes().begin(), AllDTypes().end()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(FirstPassOf, AgreesWithTheJudgeOnDrawnPairs) {
  const DType dtype = GetParam();
  std::mt19937_64 random(1);
  size_t turn = 0;
  int64_t certified = 0;
  int64_t doubted = 0;
  for (const PassRule& rule : DrawnRules(dtype)) {
    for (const PairRegime regime : kPairRegimes) {
      const size_t elements = kLengths[turn++ % std::size(kLengths)];
      const CodePair pair = DrawPairs(dtype, rule, regime, elements, random);
      const PassSummary pass = ComparePass(dtype, pair.expected, pair.got, rule);
      const OutputVerdict verdict = JudgeCodes(dtype, pair.expected, pair.got, rule);
      ASSERT_EQ(Disagreement(pass, verdict), "")
          << Name(dtype) << " " << Print(rule) << " " << Name(regime) << " " << elements;
      certified += pass.elements - pass.not_certified;
      doubted += pass.not_certified;
    }
  }
  // The drawing met both answers.
  EXPECT_GT(certified, 100000);
  EXPECT_GT(doubted, 10000);
}

// One element is off among many that are not: nothing hides it, wherever it stands.
TEST_P(FirstPassOf, FindsOneElementBeyondTheToleranceAnywhere) {
  const DType dtype = GetParam();
  std::mt19937_64 random(2);
  const size_t bytes = SizeInBytes(dtype);
  // Two values of bool are one spacing apart.
  const bool is_bool = dtype == DType::kBool;
  const PassRule rule = {.kind = PassRule::Kind::kUlp, .ulps = is_bool ? 0 : 1};
  const CodePair pair = DrawPairs(dtype, rule, PairRegime::kInside, 4200, random);
  ASSERT_EQ(ComparePass(dtype, pair.expected, pair.got, rule).not_certified, 0);
  for (size_t element = 0; element < 4200; element += element < 40 ? 1 : 97) {
    CodePair broken = pair;
    // Zero beside a larger value: more than one spacing in every type.
    const uint64_t far = is_bool                         ? 1
                         : dtype == DType::kFloat64      ? 0x4000000000000000
                         : dtype == DType::kFloat32      ? 0x40000000
                         : bytes == 2                    ? 0x4000
                         : dtype == DType::kFloat4E2M1FN ? 7
                                                         : 0x40;
    const uint64_t zero = 0;
    std::memcpy(broken.expected.data() + element * bytes, &zero, bytes);
    std::memcpy(broken.got.data() + element * bytes, &far, bytes);
    EXPECT_EQ(ComparePass(dtype, broken.expected, broken.got, rule).not_certified, 1) << element;
  }
}

TEST_P(FirstPassOf, IsTheSameForEveryCutAndOrderOfMerging) {
  const DType dtype = GetParam();
  std::mt19937_64 random(3);
  const size_t bytes = SizeInBytes(dtype);
  const size_t elements = 5 * static_cast<size_t>(kPassBlockElements) + 77;
  for (const PairRegime regime : {PairRegime::kInside, PairRegime::kSpecial, PairRegime::kAnything,
                                  PairRegime::kHuge, PairRegime::kTiny}) {
    const PassRule rule = {.kind = PassRule::Kind::kAbsRel, .absolute = 1e-3, .relative = 1e-2};
    const CodePair pair = DrawPairs(dtype, rule, regime, elements, random);
    const PassSummary whole = ComparePass(dtype, pair.expected, pair.got, rule);
    for (size_t cuts = 0; cuts < 32; ++cuts) {
      std::vector<PassSummary> parts;
      size_t first = 0;
      for (size_t block = 1; block <= 6; ++block) {
        if (block < 6 && (cuts >> (block - 1) & 1) == 0) continue;
        const size_t last = std::min(elements, block * static_cast<size_t>(kPassBlockElements));
        const size_t offset = first * bytes;
        const size_t size = (last - first) * bytes;
        parts.push_back(ComparePass(dtype, std::span(pair.expected).subspan(offset, size),
                                    std::span(pair.got).subspan(offset, size), rule));
        first = last;
      }
      PassSummary forward;
      for (const PassSummary& part : parts) forward.Merge(part);
      EXPECT_EQ(forward, whole) << Name(regime) << " " << cuts;
      PassSummary backward;
      for (size_t i = parts.size(); i-- > 0;) backward.Merge(parts[i]);
      EXPECT_EQ(backward, whole) << Name(regime) << " " << cuts;
    }
  }
}

TEST_P(FirstPassOf, ReadsAtEveryAlignment) {
  const DType dtype = GetParam();
  std::mt19937_64 random(4);
  const PassRule rule = {.kind = PassRule::Kind::kUlp, .ulps = 3};
  const CodePair pair = DrawPairs(dtype, rule, PairRegime::kSpecial, 1000, random);
  const PassSummary aligned = ComparePass(dtype, pair.expected, pair.got, rule);
  for (size_t shift = 1; shift < 9; ++shift) {
    std::vector<std::byte> expected(shift);
    std::vector<std::byte> got(9 - shift);
    expected.insert(expected.end(), pair.expected.begin(), pair.expected.end());
    got.insert(got.end(), pair.got.begin(), pair.got.end());
    EXPECT_EQ(ComparePass(dtype, std::span(expected).subspan(shift),
                          std::span(got).subspan(9 - shift), rule),
              aligned);
  }
}

PassSummary PassOfFloats(std::vector<float> expected, std::vector<float> got, PassRule rule) {
  return ComparePass(DType::kFloat32, std::as_bytes(std::span(expected)),
                     std::as_bytes(std::span(got)), rule);
}

TEST(FirstPass, IsItsDefinitionOnThreeElements) {
  const PassSummary pass = PassOfFloats({2, -4, 4}, {3, -4, 0}, {.kind = PassRule::Kind::kExact});
  EXPECT_EQ(pass.elements, 3);
  EXPECT_EQ(pass.unlike_bits, 2);
  EXPECT_EQ(pass.not_certified, 2);
  EXPECT_EQ(pass.max_abs, 4);
  EXPECT_EQ(pass.max_rel, 1);
  EXPECT_EQ(pass.max_ulp, 0x1p23);
  EXPECT_EQ(pass.RmsAbs(), std::sqrt(17.0 / 3));
  EXPECT_TRUE(pass.any_nonzero);
}

// Sides that are the same double, decided by what it leaves out.
TEST(FirstPass, TolerancesHoldToTheLastBit) {
  struct Pair {
    double want;
    double got;
    double absolute;
    double relative;
    bool passes;
  };
  const double w = 3 * 0x1p-20;
  const Pair pairs[] = {{-0x1p-53, 1, 1, 1, true},
                        {-0x1p-53, 1 + 0x1p-52, 1, 1, false},
                        {w, w + 1 + 0x1p-52, 1, 0x1p-34, false},
                        {w, w + 1, 1, 0x1p-34, true}};
  for (const Pair& pair : pairs) {
    const PassRule rule = {PassRule::Kind::kAbsRel, 0, pair.absolute, pair.relative};
    const auto want = std::as_bytes(std::span(&pair.want, 1));
    const auto got = std::as_bytes(std::span(&pair.got, 1));
    const PassSummary summary = ComparePass(DType::kFloat64, want, got, rule);
    EXPECT_EQ(summary.not_certified, pair.passes ? 0 : 1) << pair.want << " " << pair.got;
    EXPECT_EQ(Disagreement(summary, JudgeCodes(DType::kFloat64, want, got, rule)), "");
  }
  const uint64_t odd = (uint64_t{1} << 54) - 1;
  for (const uint64_t more : {uint64_t{0}, uint64_t{1}}) {
    const uint64_t twice = 2 * odd + more;
    const PassRule rule = {PassRule::Kind::kAbsRel, 0, 0, 1};
    const auto want = std::as_bytes(std::span(&odd, 1));
    const auto got = std::as_bytes(std::span(&twice, 1));
    const PassSummary summary = ComparePass(DType::kUInt64, want, got, rule);
    EXPECT_EQ(summary.not_certified, static_cast<int64_t>(more));
    EXPECT_EQ(Disagreement(summary, JudgeCodes(DType::kUInt64, want, got, rule)), "");
  }
}

TEST(FirstPass, OfNothingProvesNothing) {
  const PassSummary pass = ComparePass(DType::kFloat16, {}, {}, {});
  EXPECT_EQ(pass, PassSummary());
  EXPECT_FALSE(pass.ProvesPass());
}

TEST(FirstPass, AllZerosAreSeen) {
  const PassSummary zeros =
      PassOfFloats({0.0F, -0.0F, 0.0F}, {0.0F, -0.0F, -0.0F}, {.kind = PassRule::Kind::kUlp});
  EXPECT_FALSE(zeros.any_nonzero);
  EXPECT_EQ(zeros.zeros_of_two_signs, 1);
  EXPECT_EQ(zeros.not_certified, 0);
  EXPECT_TRUE(PassOfFloats({0, 0}, {0, 1e-45F}, {}).any_nonzero);
}

// Bytes that are no code on the expected side are an error of the judge's; here they are left to
// it, equal or not.
TEST(FirstPass, LeavesBytesWithoutMeaningToTheJudge) {
  for (const DType dtype : {DType::kBool, DType::kFloat4E2M1FN}) {
    std::vector<std::byte> bytes(5000, std::byte{1});
    bytes[4500] = std::byte{0x10};
    const PassSummary same = ComparePass(dtype, bytes, bytes, {});
    EXPECT_EQ(same.no_code, 1);
    EXPECT_EQ(same.not_certified, 1);
    std::vector<std::byte> other = bytes;
    other[4500] = std::byte{1};
    EXPECT_EQ(ComparePass(dtype, bytes, other, {}).not_certified, 1);
    EXPECT_EQ(ComparePass(dtype, other, bytes, {}).not_certified, 1);
  }
}

// A tolerance as large as the data proves nothing; the judge says so, and the pass leaves it to it.
TEST(FirstPass, DoesNotProveAVacuousComparison) {
  const std::vector<float> small(100, 1e-3F);
  std::vector<float> large(100, 1.0F);
  const PassRule rule = {.kind = PassRule::Kind::kAbsRel, .absolute = 1e-2};
  EXPECT_EQ(PassOfFloats(small, small, rule).loose, 100);
  EXPECT_FALSE(PassOfFloats(small, small, rule).ProvesPass());
  EXPECT_TRUE(PassOfFloats(large, large, rule).ProvesPass());
  large[3] = 2e-3F;
  EXPECT_EQ(PassOfFloats(large, large, rule).loose, 1);
}

// One equal element, judged alone: the tolerance is vacuous where the judge says so.
TEST(FirstPass, CountsEveryLooseToleranceThatTheJudgeSees) {
  const PassRule rules[] = {
      {.kind = PassRule::Kind::kAbsRel, .absolute = 1e-3},
      {.kind = PassRule::Kind::kAbsRel, .absolute = 0.7, .relative = 0.0625},
      {.kind = PassRule::Kind::kAbsRel, .absolute = 1e-5, .relative = 0.0999},
      {.kind = PassRule::Kind::kUlp, .ulps = 1},
      {.kind = PassRule::Kind::kUlp, .ulps = 12},
  };
  int boundaries = 0;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kInt16, DType::kUInt16}) {
    for (const PassRule& rule : rules) {
      const auto is_loose = [&](uint16_t code) {
        const auto bytes = std::as_bytes(std::span(&code, 1));
        return !ComparePass(dtype, bytes, bytes, rule).ProvesPass();
      };
      for (uint16_t code = 20; code < 0x7b00; ++code) {
        if (is_loose(code) == is_loose(static_cast<uint16_t>(code + 1))) continue;
        ++boundaries;
        for (int step = -20; step <= 20; ++step) {
          const uint16_t near = static_cast<uint16_t>(code + step);
          const auto bytes = std::as_bytes(std::span(&near, 1));
          const bool is_vacuous =
              JudgeCodes(dtype, bytes, bytes, rule).outcome == Outcome::kMistrusted;
          // Where the tolerance is a tenth of the value, it may be counted.
          if (step < 0 || step > 1 || is_vacuous) {
            EXPECT_EQ(is_loose(near), is_vacuous) << Name(dtype) << Print(rule) << " " << near;
          }
        }
      }
    }
  }
  EXPECT_GE(boundaries, 9);
}

// Errors of one size beside values that fall code by code, each several times: records grow by as
// little as the type resolves.
TEST(FirstPass, SeesRecordsThatGrowByTheLeast) {
  constexpr uint32_t kElements = 4099;
  for (const DType dtype : {DType::kFloat32, DType::kInt32, DType::kUInt32, DType::kFloat64,
                            DType::kFloat16, DType::kBFloat16, DType::kInt16, DType::kUInt16}) {
    const size_t bytes = SizeInBytes(dtype);
    // Of floats, the codes above a power of two; of integers, large ones.
    const uint64_t lowest = dtype == DType::kFloat32    ? 0x3f800000
                            : dtype == DType::kFloat64  ? 0x3ff0000000000000
                            : dtype == DType::kFloat16  ? 0x3c00
                            : dtype == DType::kBFloat16 ? 0x3f80
                            : bytes == 2                ? 0x4000
                                                        : 0x70000000;
    for (const uint64_t step : {1u, 3u, 60u}) {
      CodePair pair;
      for (uint32_t i = 0; i < kElements; ++i) {
        const uint64_t want = lowest + (kElements - 1 - i) / (bytes == 2 ? 64 : 16);
        const uint64_t got = want + step;
        const auto* want_bytes = reinterpret_cast<const std::byte*>(&want);
        const auto* got_bytes = reinterpret_cast<const std::byte*>(&got);
        pair.expected.insert(pair.expected.end(), want_bytes, want_bytes + bytes);
        pair.got.insert(pair.got.end(), got_bytes, got_bytes + bytes);
      }
      for (const size_t elements : {16u, 64u, 4096u, 4099u}) {
        const auto expected = std::span(pair.expected).first(elements * bytes);
        const auto got = std::span(pair.got).first(elements * bytes);
        const PassRule rule = {.kind = PassRule::Kind::kUlp, .ulps = 40};
        EXPECT_EQ(Disagreement(ComparePass(dtype, expected, got, rule),
                               JudgeCodes(dtype, expected, got, rule)),
                  "")
            << Name(dtype) << " " << step << " " << elements;
      }
    }
  }
}

// One and a half spacings are no float beside the smallest normal values: a limit of so many would
// be rounded up to two.
TEST(FirstPass, SeesRecordsInSpacingsBesideTheSmallestNormal) {
  std::vector<float> expected(64, 1.0F);
  std::vector<float> got = expected;
  got[0] = 1.0F - 3 * 0x1p-24F;  // 1.5 spacings at 1
  expected[1] = 10 * 0x1p-149F;
  got[1] = 11 * 0x1p-149F;  // a large relative error of one spacing
  expected[48] = 0x1p-126F;
  got[48] = 0x1p-126F + 2 * 0x1p-149F;
  const PassSummary pass = PassOfFloats(expected, got, {.kind = PassRule::Kind::kUlp, .ulps = 100});
  EXPECT_EQ(pass.max_ulp, 2);
  EXPECT_EQ(pass.max_abs, 3 * 0x1p-24);
}

// Terms whose squares are beyond double are summed all the same.
TEST(FirstPass, SquaresNeitherOverflowNorUnderflow) {
  for (const double scale : {0x1p-1060, 0x1p-540, 1.0, 0x1p540, 0x1p1000}) {
    const std::vector<double> expected(33, 2 * scale);
    const std::vector<double> got(33, 3 * scale);
    const PassSummary pass =
        ComparePass(DType::kFloat64, std::as_bytes(std::span(expected)),
                    std::as_bytes(std::span(got)), {.kind = PassRule::Kind::kUlp});
    EXPECT_EQ(pass.RmsAbs(), scale);
  }
}

}  // namespace
}  // namespace kvcheck
