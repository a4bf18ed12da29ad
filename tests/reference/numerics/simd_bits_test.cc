// Scalar code, code vectorised for the baseline and code vectorised for AVX2 and AVX-512 give the
// same bits.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "error_ratio.h"
#include "reference/numerics/exp.h"
#include "simd_loops.h"

namespace kvcheck {
namespace {

std::vector<const SimdLoops*> SupportedLoops() {
  std::vector<const SimdLoops*> loops = {&BaselineLoops()};
#ifdef __x86_64__
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  if (v3) loops.push_back(&X86V3Loops());
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  if (v3 && v4) loops.push_back(&X86V4Loops());
#endif
  return loops;
}

// Any NaN equals any other: which one an operation returns is not defined.
uint64_t Bits(double x) { return std::isnan(x) ? ~uint64_t{0} : std::bit_cast<uint64_t>(x); }

void ExpectSameBits(double got, double expected, const SimdLoops& loops, DoubleDouble x) {
  ASSERT_EQ(Bits(got), Bits(expected))
      << loops.name << " at " << std::hexfloat << x.hi << "," << x.lo;
}

// Every magnitude, specials first; an odd count, so that loops have remainders.
std::vector<DoubleDouble> Arguments() {
  std::vector<DoubleDouble> x = {{0.0, 0.0},       {-0.0, 0.0},       {INFINITY, 0.0},
                                 {-INFINITY, 0.0}, {-INFINITY, NAN},  {NAN, 0.0},
                                 {0x1p-1074, 0.0}, {-0x1p-1022, 0.0}, {0x1.fffffffffffffp1023, 0.0},
                                 {-745.13, 0.0},   {709.78, 0.0},     {1.0, 0x1p-60}};
  Operands operands(1);
  for (int i = 0; i < 4000; ++i) x.push_back(operands.Pair(-1074, 1023));
  for (int i = 0; i < 4000; ++i) x.push_back(operands.Pair(-20, 7));
  for (int i = 0; i < 4000; ++i) x.push_back({operands.Between(-750.0, 715.0), 0.0});
  if (x.size() % 2 == 0) x.push_back({-1.0, 0.0});
  return x;
}

struct Arrays {
  std::vector<double> hi, lo;
  explicit Arrays(const std::vector<DoubleDouble>& x) {
    for (DoubleDouble value : x) {
      hi.push_back(value.hi);
      lo.push_back(value.lo);
    }
  }
};

TEST(SimdBits, LoopsAreCompiledForTheirInstructionSet) {
  const std::vector<const SimdLoops*> loops = SupportedLoops();
  for (const SimdLoops* set : loops) {
    std::printf("  %s\n", set->name);
    EXPECT_EQ(set->fused, set != loops[0] || BaselineLoops().fused) << set->name;
  }
}

TEST(SimdBits, FunctionsGiveTheBitsOfTheScalarOnes) {
  const std::vector<DoubleDouble> x = Arguments();
  const Arrays in(x);
  const size_t n = x.size();
  for (const SimdLoops* set : SupportedLoops()) {
    Arrays out(x);
    set->exp(in.hi.data(), out.hi.data(), n);
    for (size_t i = 0; i < n; ++i) ExpectSameBits(out.hi[i], ExpDouble(x[i].hi), *set, x[i]);
    set->tanh(in.hi.data(), out.hi.data(), n);
    for (size_t i = 0; i < n; ++i) ExpectSameBits(out.hi[i], TanhDouble(x[i].hi), *set, x[i]);
    set->exp_dd(in.hi.data(), in.lo.data(), out.hi.data(), out.lo.data(), n);
    for (size_t i = 0; i < n; ++i) {
      ExpectSameBits(out.hi[i], ExpDD(x[i]).hi, *set, x[i]);
      ExpectSameBits(out.lo[i], ExpDD(x[i]).lo, *set, x[i]);
    }
    set->tanh_dd(in.hi.data(), in.lo.data(), out.hi.data(), out.lo.data(), n);
    for (size_t i = 0; i < n; ++i) {
      ExpectSameBits(out.hi[i], TanhDD(x[i]).hi, *set, x[i]);
      ExpectSameBits(out.lo[i], TanhDD(x[i]).lo, *set, x[i]);
    }
    set->log_dd(in.hi.data(), in.lo.data(), out.hi.data(), out.lo.data(), n);
    for (size_t i = 0; i < n; ++i) {
      ExpectSameBits(out.hi[i], LogDD(x[i]).hi, *set, x[i]);
      ExpectSameBits(out.lo[i], LogDD(x[i]).lo, *set, x[i]);
    }
  }
}

TEST(SimdBits, ArithmeticGivesTheBitsOfTheScalarOne) {
  Operands operands(2);
  for (size_t n : {size_t{1}, size_t{2}, size_t{7}, size_t{8}, size_t{9}, size_t{129}}) {
    std::vector<DoubleDouble> x, y, z, acc;
    for (size_t i = 0; i < n; ++i) {
      x.push_back(operands.Pair(-300, 300));
      y.push_back(operands.Pair(-300, 300));
      z.push_back(operands.Pair(-60, 60));
      acc.push_back(operands.Pair(-600, 600));
    }
    const Arrays ax(x), ay(y), az(z);
    for (const SimdLoops* set : SupportedLoops()) {
      Arrays out(acc);
      set->arithmetic(ax.hi.data(), ax.lo.data(), ay.hi.data(), ay.lo.data(), az.hi.data(),
                      az.lo.data(), out.hi.data(), out.lo.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const DoubleDouble expected = (acc[i] + x[i] * y[i]) / z[i];
        ExpectSameBits(out.hi[i], expected.hi, *set, x[i]);
        ExpectSameBits(out.lo[i], expected.lo, *set, x[i]);
      }
    }
  }
}

TEST(SimdBits, DotProductOverKeysGivesTheBitsOfTheScalarOne) {
  Operands operands(3);
  for (size_t keys : {size_t{1}, size_t{2}, size_t{7}, size_t{8}, size_t{9}, size_t{129}}) {
    const size_t d = 65;
    std::vector<double> q, k;
    for (size_t i = 0; i < d; ++i) q.push_back(operands.Double(-20, 20));
    for (size_t i = 0; i < d * keys; ++i) k.push_back(operands.Double(-20, 20));
    for (const SimdLoops* set : SupportedLoops()) {
      std::vector<double> hi(keys), lo(keys);
      set->dot(q.data(), k.data(), hi.data(), lo.data(), d, keys);
      for (size_t j = 0; j < keys; ++j) {
        DoubleDouble sum{0.0, 0.0};
        for (size_t i = 0; i < d; ++i) sum = AddProduct(sum, q[i], k[i * keys + j]);
        ExpectSameBits(hi[j], sum.hi, *set, sum);
        ExpectSameBits(lo[j], sum.lo, *set, sum);
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
