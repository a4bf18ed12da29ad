#ifndef TESTS_REFERENCE_ATTENTION_DRAWN_RUN_H_
#define TESTS_REFERENCE_ATTENTION_DRAWN_RUN_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "fuzz/draw_attention.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {

// A drawn kernel, held to what it declares; a violation is reported with its seed and texts.
inline JudgedRun RunDrawn(const DrawnAttention& drawn, uint64_t seed) {
  const JudgedRun run = RunAndJudge(drawn.c, drawn.profile, drawn.plan, drawn.plan);
  EXPECT_EQ(run.violations, 0) << "seed " << seed << ": " << Print(Case(drawn.c)) << "\n"
                               << Print(drawn.profile) << "\n"
                               << Print(drawn.plan) << "\n"
                               << run.first;
  return run;
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_ATTENTION_DRAWN_RUN_H_
