// The definition of attention for one query, written out: slow and obvious, once, for every number
// type of the precision ladder. The vectorised evaluator (evaluate.h) performs the same operations
// in the same order and must agree bit for bit.
//
//   x_j = scale q.k_j       s_j = softcap tanh(x_j / softcap) + bias_j      m = max s_j
//   e_j = exp(s_j - m)      L = sum_j e_j      p_j = e_j / L      o_c = sum_j p_j v_jc
// An attention sink is one more key with v = 0 and score = the sink logit, first in every sum.

#ifndef REFERENCE_ATTENTION_DEFINITION_H_
#define REFERENCE_ATTENTION_DEFINITION_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "reference/attention/head_data.h"
#include "reference/numerics/real.h"

namespace kvcheck {

// What one query is asked over one head.
struct RowQuestion {
  const HeadData* head = nullptr;
  std::span<const double> q;      // (Dk) exact values
  std::span<const int32_t> keys;  // columns that take part, ascending
  std::span<const double> bias;   // per key; empty: none
  // Per key: this score instead of the computed one (a finite mask value); NaN: none. Empty: none.
  std::span<const double> forced_score;
  double scale = 1;
  double softcap = 0;        // 0: none
  int32_t first_column = 0;  // after the row's left padding
  bool has_sink = false;
  double sink = 0;
};

template <typename Real>
struct RowAnswer {
  std::vector<Real> x;  // per key
  std::vector<Real> s;
  std::vector<Real> e;
  std::vector<Real> p;
  std::vector<double> magnitude;  // S_j = |scale| sum_i |q_i| |k_ji|, in double
  std::vector<Real> o;            // (Dv)
  Real max{};
  Real denominator{};
  Real sink_p{};
};

// q.k_j with every product exact where the type allows: plain for double, compensated for
// double-double.
template <typename Real>
Real Dot(std::span<const double> q, const double* k, const double* k_lo) {
  if constexpr (std::same_as<Real, double>) {
    static_cast<void>(k_lo);
    double sum = 0;
    for (size_t i = 0; i < q.size(); ++i) sum += q[i] * k[i];
    return sum;
  } else if constexpr (std::same_as<Real, DoubleDouble>) {
    DoubleDouble sum{0, 0};
    for (size_t i = 0; i < q.size(); ++i) {
      sum = AddProduct(sum, q[i], k[i]);
      if (k_lo != nullptr) sum.lo += q[i] * k_lo[i];
    }
    return Normalize(sum);
  } else {
    Real sum = FromDouble<Real>(0);
    for (size_t i = 0; i < q.size(); ++i) {
      sum = sum + FromDouble<Real>(q[i]) * FromPair<Real>(k[i], k_lo == nullptr ? 0.0 : k_lo[i]);
    }
    return sum;
  }
}

// One score from its dot product: scaling, softcap, bias.
template <typename Real>
void FinishScore(const RowQuestion& row, size_t j, const Real& dot, Real* x, Real* s) {
  *x = dot * FromDouble<Real>(row.scale);
  *s = *x;
  if (row.softcap > 0) {
    const Real cap = FromDouble<Real>(row.softcap);
    *s = cap * Tanh(*x / cap);
  }
  if (!row.bias.empty()) *s = *s + FromDouble<Real>(row.bias[j]);
  if (!row.forced_score.empty() && row.forced_score[j] == row.forced_score[j]) {
    *x = FromDouble<Real>(row.forced_score[j]);
    *s = *x;
  }
}

// Maximum over the scores and the sink.
template <typename Real>
Real MaxScore(const RowQuestion& row, std::span<const Real> s) {
  Real max = row.has_sink ? FromDouble<Real>(row.sink) : s[0];
  for (const Real& score : s) max = Max(max, score);
  return max;
}

// The denominator, the sink first.
template <typename Real>
Real Denominator(const RowQuestion& row, std::span<const Real> e, const Real& max) {
  Real sum = FromDouble<Real>(0);
  if (row.has_sink) sum = Exp(FromDouble<Real>(row.sink) - max);
  for (const Real& weight : e) sum = sum + weight;
  return sum;
}

// Precondition: at least one key.
template <typename Real>
RowAnswer<Real> Define(const RowQuestion& row) {
  const HeadData& head = *row.head;
  const size_t n = row.keys.size();
  const auto k_dim = static_cast<size_t>(head.k.dim);
  const auto v_dim = static_cast<size_t>(head.v.dim);
  RowAnswer<Real> a;
  a.x.resize(n), a.s.resize(n), a.e.resize(n), a.p.resize(n), a.magnitude.resize(n);
  for (size_t j = 0; j < n; ++j) {
    const size_t offset = static_cast<size_t>(row.keys[j]) * k_dim;
    const double* lo = head.k.lo.empty() ? nullptr : &head.k.lo[offset];
    FinishScore(row, j, Dot<Real>(row.q, &head.k.hi[offset], lo), &a.x[j], &a.s[j]);
    double magnitude = 0;
    for (size_t i = 0; i < k_dim; ++i) {
      const double k =
          head.k.magnitude.empty() ? Abs(head.k.hi[offset + i]) : head.k.magnitude[offset + i];
      magnitude += Abs(row.q[i]) * k;
    }
    a.magnitude[j] = magnitude * Abs(row.scale);
  }
  a.max = MaxScore<Real>(row, a.s);
  for (size_t j = 0; j < n; ++j) a.e[j] = Exp(a.s[j] - a.max);
  a.denominator = Denominator<Real>(row, a.e, a.max);
  for (size_t j = 0; j < n; ++j) a.p[j] = a.e[j] / a.denominator;
  a.sink_p =
      row.has_sink ? Exp(FromDouble<Real>(row.sink) - a.max) / a.denominator : FromDouble<Real>(0);
  a.o.assign(v_dim, FromDouble<Real>(0));
  for (size_t j = 0; j < n; ++j) {
    const size_t offset = static_cast<size_t>(row.keys[j]) * v_dim;
    for (size_t c = 0; c < v_dim; ++c) {
      const double lo = head.v.lo.empty() ? 0.0 : head.v.lo[offset + c];
      a.o[c] = a.o[c] + a.p[j] * FromPair<Real>(head.v.hi[offset + c], lo);
    }
  }
  return a;
}

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_DEFINITION_H_
