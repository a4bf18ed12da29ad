// exp(x) for x <= 0 in f32 lanes, the same bits in every lane width. Included once per instruction
// set.
//
// x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) = 1 + (r + r^2 p(r)), p of degree 4 by interpolation at
// Chebyshev nodes (2^-26.5 from exp, relative); times 2^n. Below kExpUnderflow, where exp leaves
// the normal numbers, the result is 0. NaN gives NaN.
//
// Error: ExpError, relative, over every f32 from kExpUnderflow to 0, measured by
// tests/optimized/attention/exp_sweep_test.cc.

#if defined(OPTIMIZED_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_EXP_INL_H_
#undef OPTIMIZED_ATTENTION_EXP_INL_H_
#else
#define OPTIMIZED_ATTENTION_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "optimized/attention/exp.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a b + c, fused or rounded twice.
template <bool kFused, class V>
HWY_INLINE V MultiplyAdd(V a, V b, V c) {
  if constexpr (kFused) {
    return hn::MulAdd(a, b, c);
  } else {
    return hn::Add(hn::Mul(a, b), c);
  }
}

template <bool kFused, class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNegative(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to an integer in the low bits.
  const V magic = hn::Set(d, 0x1.8p23f);
  const V shifted = MultiplyAdd<kFused>(x, hn::Set(d, 0x1.715476p+0f), magic);
  const V n = hn::Sub(shifted, magic);
  // The first part of ln 2 has 15 bits: its products with n are exact.
  V r = MultiplyAdd<kFused>(n, hn::Set(d, -0x1.62e4p-1f), x);
  r = MultiplyAdd<kFused>(n, hn::Set(d, -0x1.7f7d1cp-20f), r);
  V p = hn::Set(d, 0x1.6d112cp-10f);
  p = MultiplyAdd<kFused>(p, r, hn::Set(d, 0x1.120b9p-7f));
  p = MultiplyAdd<kFused>(p, r, hn::Set(d, 0x1.55551ap-5f));
  p = MultiplyAdd<kFused>(p, r, hn::Set(d, 0x1.5554dcp-3f));
  p = MultiplyAdd<kFused>(p, r, hn::Set(d, 0.5f));
  p = MultiplyAdd<kFused>(p, hn::Mul(r, r), r);
  p = hn::Add(p, hn::Set(d, 1.0f));
  const auto exponent =
      hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, int32_t{127} << 23));
  const V y = hn::Mul(p, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kExpUnderflow)), y);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
