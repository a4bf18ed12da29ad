// See double_double_loops.h. KVCHECK_LOOPS names the function that this compilation defines.

#include "double_double_loops.h"

#include "reference/numerics/exp-inl.h"
#include "reference/numerics/log-inl.h"
#include "reference/numerics/tanh-inl.h"

namespace kvcheck {
namespace {

// A loop over pairs; body(x, y, out) gives the new out. Always inlined, since one body serves one
// loop.
template <class Body>
[[gnu::always_inline]] inline void OverPairs(const LoopArguments& a, Body body) {
  const double* __restrict x = a.x;
  const double* __restrict x_lo = a.x_lo;
  const double* __restrict y = a.y;
  const double* __restrict y_lo = a.y_lo;
  double* __restrict out = a.out;
  double* __restrict out_lo = a.out_lo;
  const size_t n = a.n;
  for (size_t i = 0; i < n; ++i) {
    const DoubleDouble result = body(DoubleDouble{x[i], x_lo[i]}, DoubleDouble{y[i], y_lo[i]},
                                     DoubleDouble{out[i], out_lo[i]});
    out[i] = result.hi;
    out_lo[i] = result.lo;
  }
}

template <class Body>
[[gnu::always_inline]] inline void OverDoubles(const LoopArguments& a, Body body) {
  const double* __restrict x = a.x;
  double* __restrict out = a.out;
  const size_t n = a.n;
  for (size_t i = 0; i < n; ++i) out[i] = body(x[i]);
}

using Pair = DoubleDouble;

void ExpLoop(const LoopArguments& a) {
  OverDoubles(a, [](double x) { return inl::ExpDouble(x); });
}
void TanhLoop(const LoopArguments& a) {
  OverDoubles(a, [](double x) { return inl::TanhDouble(x); });
}
void ExpDDLoop(const LoopArguments& a) {
  OverPairs(a, [](Pair x, Pair, Pair) { return inl::ExpDD(x); });
}
void TanhDDLoop(const LoopArguments& a) {
  OverPairs(a, [](Pair x, Pair, Pair) { return inl::TanhDD(x); });
}
void LogDDLoop(const LoopArguments& a) {
  OverPairs(a, [](Pair x, Pair, Pair) { return inl::LogDD(x); });
}
void AddLoop(const LoopArguments& a) {
  OverPairs(a, [](Pair x, Pair y, Pair) { return x + y; });
}
void MultiplyLoop(const LoopArguments& a) {
  OverPairs(a, [](Pair x, Pair y, Pair) { return x * y; });
}
void DivideLoop(const LoopArguments& a) {
  OverPairs(a, [](Pair x, Pair y, Pair) { return x / y; });
}
void DotStepLoop(const LoopArguments& a) {
  OverPairs(a, [](Pair x, Pair y, Pair out) { return AddProduct(out, x.hi, y.hi); });
}

}  // namespace

const BenchLoops& KVCHECK_LOOPS() {
#ifdef __FMA__
  constexpr bool kFused = true;
#else
  constexpr bool kFused = false;
#endif
  static constexpr BenchLoops kLoops = {KVCHECK_LOOPS_NAME, kFused,      &ExpLoop,    &TanhLoop,
                                        &ExpDDLoop,         &TanhDDLoop, &LogDDLoop,  &AddLoop,
                                        &MultiplyLoop,      &DivideLoop, &DotStepLoop};
  return kLoops;
}

}  // namespace kvcheck
