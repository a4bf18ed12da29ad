// A product and a sum are two roundings in this project, on a target with FMA too. g++ fuses them
// by default for any target that has FMA, clang within an expression; -ffp-contract=off
// (tools/cmake/KvcheckBuild.cmake) forbids it. The probe is compiled for such a target.

#include <gtest/gtest.h>

#include "contraction_probe.h"

namespace kvcheck {
namespace {

bool ProbeRunsHere() {
#ifdef KVCHECK_PROBE_NEEDS_X86_64_V3
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

TEST(Contraction, ProductAndDifferenceRoundSeparately) {
  if (!ProbeRunsHere()) GTEST_SKIP() << "the probe needs a CPU with AVX2 and FMA";
  // In doubles 0.1 * 0.9 and 0.3 * 0.3 round to neighbours 2^-56 apart; one of the products left
  // unrounded gives 0x1.85p-57.
  EXPECT_EQ(Determinant(0.1, 0.3, 0.3, 0.9), 0x1p-56);
}

TEST(Contraction, RoundedProductTakenFromItselfLeavesNothing) {
  if (!ProbeRunsHere()) GTEST_SKIP() << "the probe needs a CPU with AVX2 and FMA";
  EXPECT_EQ(ProductResidue(0.1, 0.9), 0.0);
}

}  // namespace
}  // namespace kvcheck
