// Whether an error is within its tolerance, decided without rounding: the numbers are doubles, so
// the comparison is the sign of a sum of doubles, and that sign can be computed exactly. No element
// passes or fails because the judge rounded.

#ifndef REFERENCE_JUDGE_EXACT_COMPARE_H_
#define REFERENCE_JUDGE_EXACT_COMPARE_H_

#include <span>
#include <utility>

namespace kvcheck {

// A number carried as an unevaluated sum (int64 and double-double values need two parts).
struct Parts {
  double high = 0;
  double low = 0;
};

// (got - expected) as one double, within three roundings of the exact difference; infinite when the
// difference is beyond the range of double.
double ErrorOf(Parts got, Parts expected);

// |got - expected| <= bound + slack, exactly. False when a part is NaN or infinite; bound and slack
// are not negative. Where a term exceeds 2^1000, terms below 2^-1014 are rounded.
bool IsWithin(Parts got, Parts expected, double bound, double slack);

// |got - expected| <= the sum of the products a b, exactly. All finite; the sum not negative.
bool IsWithinProducts(Parts got, Parts expected,
                      std::span<const std::pair<double, double>> products);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_EXACT_COMPARE_H_
