// Vectors of doubles as wide as the registers of one instruction set, and double-double arithmetic
// on them: the operations of double_double-inl.h, in their order, on every lane, so that a lane has
// the bits of the scalar functions. Included by evaluate_kernels-inl.h, whose translation unit
// defines KVCHECK_VECTOR_BYTES. Written for T = Vec and T = double at once: the latter serves the
// channels that fill no vector.

#ifndef REFERENCE_ATTENTION_EVALUATE_VECTORS_INL_H_
#define REFERENCE_ATTENTION_EVALUATE_VECTORS_INL_H_

#include <cstdint>

#include "reference/numerics/double_double-inl.h"

namespace kvcheck {
namespace {

// The compiler keeps explicit vectors in registers where it would keep small arrays in memory.
typedef double Vec __attribute__((vector_size(KVCHECK_VECTOR_BYTES)));
typedef long long VecBits __attribute__((vector_size(KVCHECK_VECTOR_BYTES)));
constexpr int64_t kVec = KVCHECK_VECTOR_BYTES / 8;  // wide, since offsets are multiples of it

KVCHECK_INLINE Vec Load(const double* from) {
  Vec v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
KVCHECK_INLINE void Store(Vec v, double* to) { __builtin_memcpy(to, &v, sizeof(v)); }
// T: Vec or double.
template <typename T>
KVCHECK_INLINE T LoadAs(const double* from) {
  T v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
// x in every lane; x - 0 is x, whatever its sign.
template <typename T>
KVCHECK_INLINE T InEveryLane(double x) {
  return x - T{};
}

KVCHECK_INLINE Vec Magnitude(Vec x) {
  return (Vec)((VecBits)x & (VecBits{} + 0x7fffffffffffffffLL));
}
KVCHECK_INLINE double Magnitude(double x) { return __builtin_fabs(x); }

KVCHECK_INLINE double Larger(double x, double y) { return x < y ? y : x; }
KVCHECK_INLINE Vec Larger(Vec x, Vec y) { return x < y ? y : x; }

// x y + z with one rounding.
KVCHECK_INLINE double Fused(double x, double y, double z) { return __builtin_fma(x, y, z); }
KVCHECK_INLINE Vec Fused(Vec x, Vec y, Vec z) {
  // By lanes of memory, which compilers turn into one instruction where the target has it.
  double a[kVec], b[kVec], c[kVec];
  Store(x, a), Store(y, b), Store(z, c);
  for (int i = 0; i < kVec; ++i) c[i] = __builtin_fma(a[i], b[i], c[i]);
  return Load(c);
}

// A DoubleDouble in every lane.
template <typename T>
struct Pair {
  T hi, lo;
};

template <typename T>
KVCHECK_INLINE Pair<T> PairSum(T a, T b) {
  const T sum = a + b;
  const T b_part = sum - a;
  const T a_part = sum - b_part;
  return {sum, (a - a_part) + (b - b_part)};
}

template <typename T>
KVCHECK_INLINE Pair<T> OrderedPairSum(T a, T b) {
  const T sum = a + b;
  return {sum, b - (sum - a)};
}

template <typename T>
KVCHECK_INLINE Pair<T> PairProduct(T a, T b) {
  const T product = a * b;
  return {product, Fused(a, b, -product)};
}

template <typename T>
KVCHECK_INLINE Pair<T> operator+(Pair<T> x, Pair<T> y) {
  const Pair<T> high = PairSum(x.hi, y.hi);
  const Pair<T> low = PairSum(x.lo, y.lo);
  const Pair<T> head = OrderedPairSum(high.hi, high.lo + low.hi);
  return OrderedPairSum(head.hi, low.lo + head.lo);
}

template <typename T>
KVCHECK_INLINE Pair<T> operator*(Pair<T> x, Pair<T> y) {
  const Pair<T> high = PairProduct(x.hi, y.hi);
  const T cross = Fused(x.lo, y.hi, Fused(x.hi, y.lo, x.lo * y.lo));
  return OrderedPairSum(high.hi, high.lo + cross);
}

// x * {y, 0}, where no lane of x.hi is negative or -0 and y is finite: the inner terms of the cross
// product are then +0, since +0 + -0 is. Whatever the sign of a y of 0, the result is +0.
template <typename T>
KVCHECK_INLINE Pair<T> TimesExact(Pair<T> x, T y) {
  const Pair<T> high = PairProduct(x.hi, y);
  return OrderedPairSum(high.hi, high.lo + Fused(x.lo, y, T{}));
}

// AddProduct of double_double-inl.h.
template <typename T>
KVCHECK_INLINE Pair<T> PlusProduct(Pair<T> sum, T a, T b) {
  const Pair<T> product = PairProduct(a, b);
  const Pair<T> high = PairSum(sum.hi, product.hi);
  return {high.hi, sum.lo + (high.lo + product.lo)};
}

}  // namespace
}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_EVALUATE_VECTORS_INL_H_
