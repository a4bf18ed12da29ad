// See simd_loops.h. KVCHECK_LOOPS names the function that this compilation defines.

#include "simd_loops.h"

#include "reference/numerics/exp-inl.h"
#include "reference/numerics/log-inl.h"
#include "reference/numerics/tanh-inl.h"

namespace kvcheck {
namespace {

void ExpLoop(const double* __restrict x, double* __restrict out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = inl::ExpDouble(x[i]);
}

void TanhLoop(const double* __restrict x, double* __restrict out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = inl::TanhDouble(x[i]);
}

void ExpDDLoop(const double* __restrict hi, const double* __restrict lo, double* __restrict out_hi,
               double* __restrict out_lo, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const DoubleDouble result = inl::ExpDD({hi[i], lo[i]});
    out_hi[i] = result.hi;
    out_lo[i] = result.lo;
  }
}

void TanhDDLoop(const double* __restrict hi, const double* __restrict lo, double* __restrict out_hi,
                double* __restrict out_lo, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const DoubleDouble result = inl::TanhDD({hi[i], lo[i]});
    out_hi[i] = result.hi;
    out_lo[i] = result.lo;
  }
}

void LogDDLoop(const double* __restrict hi, const double* __restrict lo, double* __restrict out_hi,
               double* __restrict out_lo, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const DoubleDouble result = inl::LogDD({hi[i], lo[i]});
    out_hi[i] = result.hi;
    out_lo[i] = result.lo;
  }
}

void DotLoop(const double* __restrict q, const double* __restrict k_transposed,
             double* __restrict acc_hi, double* __restrict acc_lo, size_t d, size_t n) {
  for (size_t i = 0; i < d; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const DoubleDouble sum = AddProduct({acc_hi[j], acc_lo[j]}, q[i], k_transposed[i * n + j]);
      acc_hi[j] = sum.hi;
      acc_lo[j] = sum.lo;
    }
  }
}

void ArithmeticLoop(const double* __restrict x_hi, const double* __restrict x_lo,
                    const double* __restrict y_hi, const double* __restrict y_lo,
                    const double* __restrict z_hi, const double* __restrict z_lo,
                    double* __restrict acc_hi, double* __restrict acc_lo, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const DoubleDouble x = {x_hi[i], x_lo[i]};
    const DoubleDouble y = {y_hi[i], y_lo[i]};
    const DoubleDouble z = {z_hi[i], z_lo[i]};
    const DoubleDouble acc = (DoubleDouble{acc_hi[i], acc_lo[i]} + x * y) / z;
    acc_hi[i] = acc.hi;
    acc_lo[i] = acc.lo;
  }
}

}  // namespace

const SimdLoops& KVCHECK_LOOPS() {
#ifdef __FMA__
  constexpr bool kFused = true;
#else
  constexpr bool kFused = false;
#endif
  // Constant, so that calling this executes no instruction of the set.
  static constexpr SimdLoops kLoops = {KVCHECK_LOOPS_NAME, kFused,     &ExpLoop,
                                       &TanhLoop,          &ExpDDLoop, &TanhDDLoop,
                                       &LogDDLoop,         &DotLoop,   &ArithmeticLoop};
  return kLoops;
}

}  // namespace kvcheck
