// How the caches' answers say that they were computed: as PlanOf has it for these formats and so
// many positions, whatever was asked before.

#include <gtest/gtest.h>

#include "optimized/attention/attention_plan.h"
#include "optimized/cache/attend.h"

namespace kvcheck {
namespace {

TEST(StatedPlan, FollowsFormatsAndPositions) {
  optimized::StatedPlan stated;
  optimized::AttentionShape shape;
  const KvFormat formats[] = {PlainFormat{}, AffineFormat{8, 64, DType::kFloat32},
                              AffineFormat{3, 32, DType::kFloat16}};
  for (const KvFormat& k : formats) {
    for (const KvFormat& v : formats) {
      for (const int64_t positions : {1, 3968, 3969, 100, 20000}) {
        shape.k = k, shape.v = v;
        EXPECT_EQ(stated.Of(shape, positions), optimized::PlanOf(shape, {.kv_len = positions}));
        EXPECT_EQ(stated.Of(shape, positions).splits > 1, positions > 3968) << positions;
      }
    }
  }
  shape.scale = 0.3;
  EXPECT_EQ(stated.Of(shape, 1).scale_roundings, 2);
  shape.portable = true;
  EXPECT_EQ(stated.Of(shape, 1).name, "optimized_portable");
}

}  // namespace
}  // namespace kvcheck
