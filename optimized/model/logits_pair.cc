#include "optimized/model/logits_pair.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/model/logits_pair.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Of each instruction set in turn.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = HWY_CAPPED(double, 8);
using Vector = hn::Vec<Doubles>;
constexpr size_t kMostLanes = 8;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What has been seen so far, lane by lane.
struct Seen {
  Vector sum, first, second, other;
  hn::Mask<Doubles> is_finite, other_is_finite;

  HWY_INLINE void Start() {
    const Doubles d;
    sum = hn::Zero(d);
    first = second = other = hn::Set(d, -kInfinity);
    is_finite = other_is_finite = hn::Eq(sum, sum);
  }
  HWY_INLINE void Add(Vector p, Vector q) {
    const Doubles d;
    const Vector infinity = hn::Set(d, kInfinity);
    is_finite = hn::And(is_finite, hn::Lt(p, infinity));
    other_is_finite = hn::And(other_is_finite, hn::Lt(q, infinity));
    second = hn::Max(second, hn::Min(first, p));
    first = hn::Max(first, p);
    other = hn::Max(other, q);
    const Vector mass = hn::Exp(d, p);
    const Vector term = hn::Mul(mass, hn::Sub(p, q));
    sum = hn::Add(sum, hn::IfThenElseZero(hn::Gt(mass, hn::Zero(d)), term));
  }
};

// The first index from `from` on that holds the value, which is there.
HWY_INLINE size_t IndexOf(const double* values, size_t count, double value, size_t from) {
  const Doubles d;
  const size_t lanes = hn::Lanes(d);
  const Vector wanted = hn::Set(d, value);
  for (; from + lanes <= count; from += lanes) {
    if (!hn::AllFalse(d, hn::Eq(hn::LoadU(d, values + from), wanted))) break;
  }
  while (from + 1 < count && !(values[from] == value)) ++from;
  return from;
}

LogitsPair ComparePairOn(const double* p, const double* q, size_t count) {
  const Doubles d;
  const size_t lanes = hn::Lanes(d);
  Seen even, odd;
  even.Start();
  odd.Start();
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even.Add(hn::LoadU(d, p + i), hn::LoadU(d, q + i));
    odd.Add(hn::LoadU(d, p + i + lanes), hn::LoadU(d, q + i + lanes));
  }
  for (; i < count; i += lanes) {
    // -inf has no mass and is never the largest.
    double rest_p[kMostLanes];
    double rest_q[kMostLanes];
    for (size_t lane = 0; lane < lanes; ++lane) {
      rest_p[lane] = i + lane < count ? p[i + lane] : -kInfinity;
      rest_q[lane] = i + lane < count ? q[i + lane] : -kInfinity;
    }
    even.Add(hn::LoadU(d, rest_p), hn::LoadU(d, rest_q));
  }
  LogitsPair pair;
  pair.is_finite = hn::AllTrue(d, hn::And(even.is_finite, odd.is_finite));
  pair.other_is_finite = hn::AllTrue(d, hn::And(even.other_is_finite, odd.other_is_finite));
  if (!pair.is_finite || !pair.other_is_finite) return pair;
  pair.kl = hn::GetLane(hn::SumOfLanes(d, hn::Add(even.sum, odd.sum)));
  // The two largest are among the two largest of every lane.
  double largest[4 * kMostLanes];
  hn::StoreU(even.first, d, largest);
  hn::StoreU(odd.first, d, largest + lanes);
  hn::StoreU(even.second, d, largest + 2 * lanes);
  hn::StoreU(odd.second, d, largest + 3 * lanes);
  std::partial_sort(largest, largest + 2, largest + 4 * lanes,
                    [](double a, double b) { return a > b; });
  pair.top = IndexOf(p, count, largest[0], 0);
  pair.second = pair.top;
  if (count > 1) {
    pair.second = IndexOf(p, count, largest[1], largest[1] == largest[0] ? pair.top + 1 : 0);
  }
  pair.other_top =
      IndexOf(q, count, hn::GetLane(hn::MaxOfLanes(d, hn::Max(even.other, odd.other))), 0);
  return pair;
}

ProbabilitySum SumProbabilitiesOn(const double* log_p, double floor, size_t count) {
  const Doubles d;
  const size_t lanes = hn::Lanes(d);
  // Beyond it hn::Exp is not defined.
  const Vector most = hn::Set(d, 700);
  const Vector least = hn::Set(d, floor);
  Vector all = hn::Zero(d);
  Vector above = hn::Zero(d);
  for (size_t i = 0; i < count; i += lanes) {
    double rest[kMostLanes];
    const double* from = log_p + i;
    if (i + lanes > count) {
      // -inf has no mass.
      for (size_t lane = 0; lane < lanes; ++lane) {
        rest[lane] = i + lane < count ? log_p[i + lane] : -kInfinity;
      }
      from = rest;
    }
    const Vector value = hn::LoadU(d, from);
    const Vector mass = hn::Exp(d, hn::Min(value, most));
    all = hn::Add(all, mass);
    above = hn::Add(above, hn::IfThenElseZero(hn::Gt(value, least), mass));
  }
  return {hn::GetLane(hn::SumOfLanes(d, all)), hn::GetLane(hn::SumOfLanes(d, above))};
}

void ScaleStepsOn(const uint16_t* steps, double scale, double least, double* out, size_t count) {
  const Doubles d;
  const hn::Rebind<uint16_t, Doubles> d16;
  const hn::Rebind<int32_t, Doubles> d32;
  const size_t lanes = hn::Lanes(d);
  const Vector by = hn::Set(d, scale);
  const Vector from = hn::Set(d, least);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vector step = hn::PromoteTo(d, hn::PromoteTo(d32, hn::LoadU(d16, steps + i)));
    hn::StoreU(hn::Add(hn::Mul(step, by), from), d, out + i);
  }
  for (; i < count; ++i) out[i] = scale * static_cast<double>(steps[i]) + least;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(ComparePairOn);
HWY_EXPORT(ScaleStepsOn);
HWY_EXPORT(SumProbabilitiesOn);

LogitsPair ComparePair(std::span<const double> log_p, std::span<const double> log_q) {
  return HWY_DYNAMIC_DISPATCH(ComparePairOn)(log_p.data(), log_q.data(), log_p.size());
}

ProbabilitySum SumProbabilities(std::span<const double> log_p, double floor) {
  return HWY_DYNAMIC_DISPATCH(SumProbabilitiesOn)(log_p.data(), floor, log_p.size());
}

void ScaleSteps(std::span<const uint16_t> steps, double scale, double least, double* out) {
  HWY_DYNAMIC_DISPATCH(ScaleStepsOn)(steps.data(), scale, least, out, steps.size());
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
