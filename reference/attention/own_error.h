// How far the reference itself may be off what it computes, by the arithmetic that it uses.

#ifndef REFERENCE_ATTENTION_OWN_ERROR_H_
#define REFERENCE_ATTENTION_OWN_ERROR_H_

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>

#include "reference/attention/arithmetic.h"
#include "reference/attention/definition.h"
#include "reference/numerics/real.h"

namespace kvcheck {

// Relative error of a dot product of d terms against its magnitude S.
template <typename Real>
double DotError(double d) {
  if constexpr (std::same_as<Real, double>) {
    return Gamma(d + 2, 0x1p-53);
  } else if constexpr (std::same_as<Real, DoubleDouble>) {
    const double g = Gamma(d + 2, 0x1p-53);
    return g * g + kUnitRoundoff<DoubleDouble>;
  } else {
    return Gamma(d + 2, kUnitRoundoff<Real>);
  }
}

// The reference's own error, by the same reasoning as the bound: weights are off by rho_j, sums by
// gamma_n; sum p rho |v - o| is at most (sum p rho min(1, 2 (1 - p))) max |v - o|.
template <typename Real>
class OwnError {
 public:
  // magnitude: sum |q k| of the keys, as the reference sums it.
  OwnError(const RowQuestion& row, const RowScores& scores, std::span<const double> magnitude)
      : n_(static_cast<double>(row.keys.size()) + 1) {
    const double u = kUnitRoundoff<Real>;
    const double dot = DotError<Real>(static_cast<double>(row.q.size()));
    const auto error = [&](size_t j) {
      // A forced score is exact.
      if (!scores.forced.empty() && scores.forced[j] == scores.forced[j]) return 0.0;
      const double bias = scores.bias.empty() ? 0 : Abs(scores.bias[j]);
      double e = (dot + 2 * u) * magnitude[j] +
                 2 * u * (Abs(scores.x[j]) + Abs(scores.s[j]) + bias) + 0x1p-1000;
      if (row.softcap > 0) {
        e += (kTanhError<Real> + 4 * u) * row.softcap + kTanhFloor<Real> * row.softcap;
      }
      return e;
    };
    double largest = 0;
    for (size_t j = 0; j < scores.s.size(); ++j) {
      if (scores.p[j] > 0) largest = Max(largest, error(j));
    }
    for (size_t j = 0; j < scores.s.size(); ++j) {
      if (!(scores.p[j] > 0)) continue;
      const double tau = error(j) + largest + u * (scores.max - scores.s[j]);
      Add(scores.p[j], scores.p[j] * (std::expm1(2 * tau) + 2 * kExpError<Real>));
    }
    // A sink far below the maximum weighs exactly nothing, however inexact its distance.
    if (row.has_sink && scores.sink_p > 0) {
      Add(scores.sink_p, scores.sink_p * (std::expm1(2 * (largest + u * (scores.max - row.sink))) +
                                          2 * kExpError<Real>));
    }
    sums_ = Gamma(n_ + 4, u);
    floor_ = n_ * (kExpFloor<Real> + 0x1p-1070);
  }

  double Channel(const ChannelSums& sums) const {
    return (centred_ * sums.spread + sums_ * (sums.mass + Abs(sums.o))) * (1 + 0x1p-20) +
           floor_ * (1 + sums.largest);
  }
  double Lse(double lse, double max) const {
    return (rho_ + sums_ + kLogError<Real> * Abs(lse - max) +
            4 * kUnitRoundoff<Real> * (Abs(lse) + Abs(max))) *
               (1 + 0x1p-20) +
           floor_;
  }

 private:
  // |v_j - o| <= (1 - p_j) max |v_j - v_k| <= 2 (1 - p_j) spread: the error of a key that dominates
  // hardly moves the mean. 2^-48 covers the roundings of p in double.
  void Add(double p, double p_rho) {
    rho_ += p_rho;
    centred_ += p_rho * std::min(1.0, 2 * (1 - p) + 0x1p-48);
  }

  double n_;
  double rho_ = 0;
  double centred_ = 0;
  double sums_ = 0;
  double floor_ = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_OWN_ERROR_H_
