// How far a kernel's scores may be off before the exponential (bound.md).

#ifndef REFERENCE_ATTENTION_SCORE_ERROR_H_
#define REFERENCE_ATTENTION_SCORE_ERROR_H_

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "reference/attention/arithmetic.h"
#include "reference/attention/bound.h"

namespace kvcheck {

// (1 + a)(1 + b) - 1 without cancellation.
inline double Compose(double a, double b) { return a + b + a * b; }

// E_j: error of a score before the exponential.
class ScoreError {
 public:
  ScoreError(const Arithmetic& a, const RowScores& row) : a_(a), row_(row) {
    // Of a query that is rotated afterwards, `codec` has what its rounding loses.
    const double u_q = a.rotates_k ? 0 : a.u_q;
    const double of_sum = a.cut_qk.lost + Gamma(a.h_qk, a.u_qk) * a.cut_qk.size;
    dot_ = Compose(
        Compose(u_q, Compose(of_sum, Gamma(a.c_s, a.u_a))),
        Compose(Gamma(a.k_parts.c, a.factored ? std::max(a.u_a, a.u_qk) : a.u_a), a.k_parts.u));
    dot_ = Compose(dot_, Gamma(a.c_group, a.u_a));
    // Bias and softcap are operations whose result is rounded again to the type of stored scores.
    u_b_ = Compose(a.u_a, a.u_store);
    bias_ = Compose(Gamma(a.c_b, a.u_a), u_b_);
    cap_argument_ = Compose(Gamma(2, a.u_a), a.u_store);
    cap_value_ = Compose(a.u_tanh, Compose(Gamma(a.cap_roundings, a.u_a), a.u_store));
  }

  // A score that stands in place of the computed one, brought into the kernel's units.
  double Forced(double score) const {
    return Compose(Gamma(a_.c_b + 1, a_.u_a), a_.u_store) * std::fabs(score) + a_.eta_s;
  }

  double operator()(size_t j) const {
    if (!row_.forced.empty() && row_.forced[j] == row_.forced[j]) {
      return row_.all_forced ? 0 : Forced(row_.forced[j]);
    }
    const double codec = row_.codec.empty() ? 0 : row_.codec[j];
    const double scale = std::fabs(row_.scale);
    double error =
        dot_ * (row_.magnitude[j] + codec) +
        a_.lambda * (1 + scale) * (row_.q_abs_sum + row_.k_abs_sum[j] + 2 * row_.k_dim + 2);
    error += a_.eta_q * (1 + scale) * (1 + dot_) *
             (row_.q_abs_sum + row_.k_abs_sum[j] + a_.eta_q * row_.k_dim);
    error += a_.k_parts.eta * scale * row_.q_abs_sum * (1 + dot_);
    error += a_.cut_qk.eta * (1 + scale) * (1 + dot_) *
             (row_.q_abs_sum + row_.k_abs_sum[j] + a_.cut_qk.eta * row_.k_dim);
    if (a_.c_group > 0) {
      // Scales and biases that are flushed, and products of scales that vanish, are multiplied by
      // sums of codes; eight operations a group.
      const double lost = (a_.q_codes + 1) * row_.k_abs_sum[j] + (a_.k_codes + 1) * row_.q_abs_sum +
                          (a_.q_codes * a_.k_codes + 8) * row_.k_dim;
      error += a_.lambda_op * (1 + scale) * lost * (1 + dot_);
    }
    error += codec;
    if (a_.u_s > 0) {
      error = (1 + a_.u_s) * error + a_.u_s * std::fabs(row_.x[j]) + a_.eta_s;
    }
    if (row_.softcap > 0) {
      error += cap_argument_ * std::min(std::fabs(row_.x[j]) + error, row_.softcap / 2);
      const double bias = row_.bias.empty() ? 0 : row_.bias[j];
      // Of keys that stand for others: a score without its bias may be larger than any with it.
      const double largest = row_.stands_for > 0 ? row_.size_largest + std::fabs(bias) : 0;
      const double size = std::max(std::fabs(row_.s[j] - bias), largest);
      error += cap_value_ * std::min(size + error, row_.softcap);
      // What the argument of tanh loses by underflow comes back multiplied by the cap.
      error += (a_.eta_s + 2 * a_.lambda) * (row_.softcap + 2) * (1 + cap_value_);
    }
    if (!row_.bias.empty()) {
      error = (1 + u_b_) * error + bias_ * std::fabs(row_.bias[j]) +
              u_b_ * std::max(std::fabs(row_.s[j]), row_.size_largest);
      error += a_.eta_s;
    }
    return error;
  }

  double Sink() const {
    return Compose(Gamma(a_.c_b, a_.u_a), a_.u_store) * std::fabs(row_.sink) + a_.eta_s;
  }

 private:
  const Arithmetic& a_;
  const RowScores& row_;
  double dot_ = 0;
  double u_b_ = 0;
  double bias_ = 0;
  double cap_argument_ = 0;
  double cap_value_ = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_SCORE_ERROR_H_
