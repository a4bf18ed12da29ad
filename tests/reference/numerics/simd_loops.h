// Loops over arrays around the inlined functions, compiled once per instruction set; the arrays do
// not overlap. simd_loops.cc is the body.

#ifndef TESTS_REFERENCE_NUMERICS_SIMD_LOOPS_H_
#define TESTS_REFERENCE_NUMERICS_SIMD_LOOPS_H_

#include <cstddef>

namespace kvcheck {

struct SimdLoops {
  const char* name;
  bool fused;  // the set has a fused multiply-add and this code was compiled for it
  void (*exp)(const double* x, double* out, size_t n);
  void (*tanh)(const double* x, double* out, size_t n);
  void (*exp_dd)(const double* hi, const double* lo, double* out_hi, double* out_lo, size_t n);
  void (*tanh_dd)(const double* hi, const double* lo, double* out_hi, double* out_lo, size_t n);
  void (*log_dd)(const double* hi, const double* lo, double* out_hi, double* out_lo, size_t n);
  // acc[j] += q[i] k_transposed[i][j], i < d, j < n.
  void (*dot)(const double* q, const double* k_transposed, double* acc_hi, double* acc_lo, size_t d,
              size_t n);
  // acc[j] = (acc[j] + x[j] y[j]) / z[j], pairs.
  void (*arithmetic)(const double* x_hi, const double* x_lo, const double* y_hi, const double* y_lo,
                     const double* z_hi, const double* z_lo, double* acc_hi, double* acc_lo,
                     size_t n);
};

const SimdLoops& BaselineLoops();
#ifdef __x86_64__
const SimdLoops& X86V3Loops();
const SimdLoops& X86V4Loops();
#endif

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_NUMERICS_SIMD_LOOPS_H_
