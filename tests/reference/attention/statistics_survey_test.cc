// False alarms of the statistical tier over more heads, rows and lengths.

#include <gtest/gtest.h>

#include "tests/reference/attention/statistics_run.h"

namespace kvcheck {
namespace {

TEST(StatisticsSurvey, RaisesNoFalseAlarm) {
  double largest = 0;
  int heads = 0;
  for (DType type : {DType::kBFloat16, DType::kFloat16}) {
    for (std::string_view regime :
         {"gauss", "outlier", "sink", "same_sign", "constant", "equal", "duplicated", "dominant"}) {
      for (const auto& [kv_len, rows] :
           std::vector<std::pair<int64_t, int64_t>>{{64, 1}, {64, 16}, {257, 16}, {1024, 4}}) {
        for (uint64_t seed = 100; seed < 110; ++seed) {
          const AttentionCase c = StatisticsCase(type, regime, kv_len, rows, seed);
          const double z = LargestHeadScore(c, StatisticsPlan(type));
          EXPECT_LT(z, StatisticsLimit()) << Print(Case(c));
          largest = std::max(largest, z);
          heads += 4;
        }
      }
    }
  }
  EXPECT_GE(heads, 2560);
}

}  // namespace
}  // namespace kvcheck
