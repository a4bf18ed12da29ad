// Sums of products that neither overflow nor underflow: squares of 1e200 and of 1e-200 are summed
// as exactly as others. The result is a mantissa and an exponent, so that ratios of two such sums
// are right even where the sums themselves are beyond double.

#ifndef REFERENCE_JUDGE_SCALED_SUM_H_
#define REFERENCE_JUDGE_SCALED_SUM_H_

#include <cmath>

namespace kvcheck {

// mantissa * 2^exponent.
struct Scaled {
  double mantissa = 0;
  int exponent = 0;

  double ToDouble() const { return std::ldexp(mantissa, exponent); }
};

inline Scaled Normalised(Scaled s) {
  int shift = 0;
  s.mantissa = std::frexp(s.mantissa, &shift);
  s.exponent += shift;
  return s;
}

inline Scaled Add(Scaled a, Scaled b) {
  a = Normalised(a);
  b = Normalised(b);
  if (a.mantissa == 0) return b;
  if (b.mantissa == 0) return a;
  if (a.exponent < b.exponent) return Add(b, a);
  const double moved = std::ldexp(b.mantissa, b.exponent - a.exponent);
  return Normalised({a.mantissa + moved, a.exponent});
}

inline double Ratio(Scaled a, Scaled b) {
  a = Normalised(a);
  b = Normalised(b);
  return std::ldexp(a.mantissa / b.mantissa, a.exponent - b.exponent);
}

// sqrt of a nonnegative sum.
inline Scaled Root(Scaled s) {
  s = Normalised(s);
  if (s.exponent % 2 != 0) s = {s.mantissa * 2, s.exponent - 1};
  return {std::sqrt(s.mantissa), s.exponent / 2};
}

class ScaledSum {
 public:
  // Adds a * b. Both finite.
  void AddProduct(double a, double b) {
    const double product = a * b;
    const double size = std::fabs(product);
    if (size < 0x1p900 && size > 0x1p-900) {
      plain_ += product;
    } else if (a != 0 && b != 0) {
      int a_exponent = 0;
      int b_exponent = 0;
      const double mantissa = std::frexp(a, &a_exponent) * std::frexp(b, &b_exponent);
      extreme_ = Add(extreme_, {mantissa, a_exponent + b_exponent});
    }
  }
  // The same for factors whose product is 0 or within 2^-900 and 2^900 in size.
  void AddModerate(double a, double b) { plain_ += a * b; }
  void Merge(const ScaledSum& other) {
    plain_ += other.plain_;
    extreme_ = Add(extreme_, other.extreme_);
  }
  Scaled Total() const { return Add({plain_, 0}, extreme_); }

 private:
  double plain_ = 0;  // below 2^900 times the number of terms
  Scaled extreme_;
};

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_SCALED_SUM_H_
