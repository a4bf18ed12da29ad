// exp over its whole range, densely (slow): every edge of every table cell with its neighbours, and
// a fine grid. 50 digits are the judge here; exp_test.cc holds them against 100.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "error_ratio.h"
#include "reference/numerics/exp.h"
#include "reference/numerics/oracle.h"
#include "reference/numerics/real.h"

namespace kvcheck {
namespace {

// The judge's own error is part of what it may find.
constexpr double kJudge = kExpError<Oracle50>;

struct Sweep {
  Worst single;
  Worst pair;
  Worst normal;  // of the pair, where the floor adds less than 2^-110

  void Check(DoubleDouble x) {
    const Oracle50 exact = Exp(Oracle50(x));
    const double ratio = ErrorRatio(ExpDD(x), exact, kExpDDError + kJudge, kExpDDFloor);
    pair.Add(ratio, x);
    if (x.hi > -650.0) normal.Add(ratio, x);
    if (x.lo == 0.0) {
      single.Add(ErrorRatio(ExpDouble(x.hi), exact, kExpDoubleError, kExpDoubleFloor), x);
    }
  }

  void ExpectWithinBounds() const {
    EXPECT_LE(single.ratio, 1.0) << std::hexfloat << "ExpDouble(" << single.x.hi << ")";
    EXPECT_LE(pair.ratio, 1.0) << std::hexfloat << "ExpDD(" << pair.x.hi << "," << pair.x.lo << ")";
    std::printf("  double: 2^%.3f relative at %a\n", std::log2(single.ratio * kExpDoubleError),
                single.x.hi);
    std::printf("  double-double: %.3f of its bound at %a,%a; 2^%.3f relative above -650\n",
                pair.ratio, pair.x.hi, pair.x.lo, std::log2(normal.ratio * kExpDDError));
  }
};

TEST(ExpSweep, KeepsItsErrorAtEveryEdgeOfEveryTableCell) {
  const Oracle50 half_step = Log(Oracle50(2.0)) / Oracle50(256.0);
  Sweep sweep;
  for (int k = -275190; k <= 262143; ++k) {
    const DoubleDouble edge = (half_step * Oracle50(k)).ToPair();
    sweep.Check(edge);
    // The nearest double and the two beside it, in turn.
    const double neighbour = k % 3 == 0   ? edge.hi
                             : k % 3 == 1 ? std::nextafter(edge.hi, -INFINITY)
                                          : std::nextafter(edge.hi, INFINITY);
    sweep.Check({neighbour, 0.0});
  }
  sweep.ExpectWithinBounds();
}

TEST(ExpSweep, KeepsItsErrorOnAFineGridOfTheWholeRange) {
  Operands operands(1);
  Sweep sweep;
  // NOLINTNEXTLINE(clang-analyzer-security.FloatLoopCounter): the steps are exact
  for (double x = -746.5; x < 709.78; x += 0x1.0p-8) {
    const double at = x + operands.Between(0.0, 0x1.0p-8);
    sweep.Check({at, 0.0});
    sweep.Check(TwoSum(at, operands.Between(-0x1p-44, 0x1p-44)));
  }
  sweep.ExpectWithinBounds();
}

}  // namespace
}  // namespace kvcheck
