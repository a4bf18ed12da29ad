// The loops of double_double_bench.cc, compiled once per instruction set.

#ifndef BENCH_REFERENCE_DOUBLE_DOUBLE_LOOPS_H_
#define BENCH_REFERENCE_DOUBLE_DOUBLE_LOOPS_H_

#include <cstddef>

namespace kvcheck {

// Arrays of n pairs; they do not overlap. Functions of one double use x and out alone.
struct LoopArguments {
  const double* x;
  const double* x_lo;
  const double* y;
  const double* y_lo;
  double* out;
  double* out_lo;
  size_t n;
};

using BenchLoop = void (*)(const LoopArguments&);

struct BenchLoops {
  const char* name;
  bool fused;  // compiled for a set with a fused multiply-add
  BenchLoop exp;
  BenchLoop tanh;
  BenchLoop exp_dd;
  BenchLoop tanh_dd;
  BenchLoop log_dd;
  BenchLoop add;
  BenchLoop multiply;
  BenchLoop divide;
  BenchLoop dot_step;  // out += x * y, pair += double * double
};

const BenchLoops& BaselineBenchLoops();
#ifdef __x86_64__
const BenchLoops& X86V3BenchLoops();
#endif

}  // namespace kvcheck

#endif  // BENCH_REFERENCE_DOUBLE_DOUBLE_LOOPS_H_
