// Generated rows: pinned bits, independence of the number of rows, and the trait that gives every
// regime its name.

#include "reference/data/row_regime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr DType kTypes[] = {DType::kFloat64,  DType::kFloat32,      DType::kFloat16,
                            DType::kBFloat16, DType::kFloat8E4M3FN, DType::kFloat8E5M2};

uint64_t Hash(const Tensor& tensor) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : tensor.bytes) {
    hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

std::vector<double> Values(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

TEST(RowRegime, GivesTheSameBitsOnEveryMachine) {
  const std::map<std::string, uint64_t> pinned = {
      {"gauss", 0xcdc3e72f7bb24672u},        {"cauchy", 0x67606d561c513b9u},
      {"group_scales", 0x31c9dc95a0248996u}, {"constant", 0x21b7664bd49c3f8du},
      {"offset", 0x6e21ead1787884aau},       {"all_positive", 0xc6d96005de43d7bu},
      {"all_negative", 0xa9a8eb7f8b0e7c99u}, {"tiny", 0xa36491230502990u},
      {"huge", 0xc31145d8e9507dfu},          {"ties", 0x6a35d83bc24124cdu},
      {"sparse", 0x657e40388a89fdf4u},       {"subnormal", 0xb8c84c200817892u},
      {"log_uniform", 0x84eb5a0c198abe7au},  {"mixed", 0xcf0c5096521aeefbu},
  };
  for (const std::string_view regime : RowRegimes()) {
    const uint64_t hash = Hash(GenerateRows(regime, 1, DType::kFloat32, 3, 129));
    const auto want = pinned.find(std::string(regime));
    EXPECT_TRUE(want != pinned.end() && want->second == hash)
        << "{\"" << regime << "\", 0x" << std::hex << hash << "u},";
  }
}

TEST(RowRegime, MoreRowsOnlyAppend) {
  for (const std::string_view regime : RowRegimes()) {
    const Tensor few = GenerateRows(regime, 9, DType::kBFloat16, 2, 129);
    const Tensor many = GenerateRows(regime, 9, DType::kBFloat16, 5, 129);
    EXPECT_TRUE(std::equal(few.bytes.begin(), few.bytes.end(), many.bytes.begin())) << regime;
    EXPECT_NE(few, GenerateRows(regime, 10, DType::kBFloat16, 2, 129)) << regime;
  }
}

TEST(RowRegime, IsFiniteInEveryType) {
  for (const std::string_view regime : RowRegimes()) {
    for (const DType dtype : kTypes) {
      for (const int64_t dim : {1, 2, 31, 32, 33, 129}) {
        for (const double x : Values(GenerateRows(regime, 4, dtype, 9, dim))) {
          ASSERT_TRUE(std::isfinite(x)) << regime << " " << Name(dtype);
        }
      }
    }
  }
}

TEST(RowRegime, HasTheTraitOfItsName) {
  for (const DType dtype : kTypes) {
    const auto rows = [&](std::string_view regime) {
      return Values(GenerateRows(regime, 6, dtype, 16, 128));
    };
    const auto all = [&](std::string_view regime, auto trait) {
      const std::vector<double> values = rows(regime);
      return std::all_of(values.begin(), values.end(), trait);
    };
    EXPECT_TRUE(all("all_positive", [](double x) { return x >= 0; }));
    EXPECT_TRUE(all("all_negative", [](double x) { return x <= 0; }));
    const FloatType& type = FloatTypeOf(dtype);
    if (dtype != DType::kFloat64) {
      EXPECT_TRUE(all("subnormal", [&](double x) { return std::fabs(x) < type.smallest_normal; }));
    }
    EXPECT_TRUE(all("ties", [](double x) { return x * 64 == std::trunc(x * 64); }) ||
                type.mantissa_bits < 8);
    const std::vector<double> constant = rows("constant");
    for (size_t i = 0; i < constant.size(); ++i) {
      EXPECT_EQ(constant[i], constant[i / 32 * 32]);
    }
    const std::vector<double> sparse = rows("sparse");
    const auto zeros = std::count(sparse.begin(), sparse.end(), 0.0);
    // Binomial(2048, 0.95), six standard deviations; an fp8 type rounds a few more to zero.
    EXPECT_GE(static_cast<double>(zeros), 2048 * 0.95 - 6 * std::sqrt(2048 * 0.95 * 0.05));
    EXPECT_LT(zeros, 2048);
  }
}

TEST(RowRegime, ListsTheRegimesWhenOneIsUnknown) {
  try {
    GenerateRows("normal", 1, DType::kFloat32, 1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIllegalCase);
    for (const std::string_view regime : RowRegimes()) {
      EXPECT_NE(error.message().find(regime), std::string::npos) << regime;
    }
  }
}

TEST(RowRegime, RefusesTypesThatAreNoSignedFloat) {
  EXPECT_THROW(GenerateRows("gauss", 1, DType::kUInt8, 1, 1), Error);
  EXPECT_THROW(GenerateRows("gauss", 1, DType::kFloat8E8M0FNU, 1, 1), Error);
}

}  // namespace
}  // namespace kvcheck
