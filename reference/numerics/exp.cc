// Out-of-line elementary functions. On x86-64 the fused multiply-add is optional, and without it
// std::fma is a call; each function that uses it is therefore compiled twice, and the choice is
// made when it is called.

#include "reference/numerics/exp.h"

#include "reference/numerics/exp-inl.h"
#include "reference/numerics/log-inl.h"
#include "reference/numerics/tanh-inl.h"

#if defined(__x86_64__) && !defined(__FMA__)
#define KVCHECK_FMA_DISPATCH 1
#else
#define KVCHECK_FMA_DISPATCH 0
#endif

namespace kvcheck {
namespace {

#if KVCHECK_FMA_DISPATCH
bool HasFma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

[[gnu::target("avx2,fma")]] DoubleDouble ExpDDFma(DoubleDouble x) { return inl::ExpDD(x); }
[[gnu::target("avx2,fma")]] DoubleDouble LogDDFma(DoubleDouble x) { return inl::LogDD(x); }
[[gnu::target("avx2,fma")]] DoubleDouble TanhDDFma(DoubleDouble x) { return inl::TanhDD(x); }
#else
constexpr bool HasFma() { return false; }

DoubleDouble ExpDDFma(DoubleDouble x) { return inl::ExpDD(x); }
DoubleDouble LogDDFma(DoubleDouble x) { return inl::LogDD(x); }
DoubleDouble TanhDDFma(DoubleDouble x) { return inl::TanhDD(x); }
#endif

}  // namespace

double ExpDouble(double x) { return inl::ExpDouble(x); }

double TanhDouble(double x) { return inl::TanhDouble(x); }

DoubleDouble ExpDD(DoubleDouble x) { return HasFma() ? ExpDDFma(x) : inl::ExpDD(x); }

DoubleDouble LogDD(DoubleDouble x) { return HasFma() ? LogDDFma(x) : inl::LogDD(x); }

DoubleDouble TanhDD(DoubleDouble x) { return HasFma() ? TanhDDFma(x) : inl::TanhDD(x); }

double LogDouble(double x) { return LogDD(FromDouble(x)).hi; }

}  // namespace kvcheck
