// Errors of values against originals, added up in an order that does not depend on threads.

#ifndef TOOLS_MEASURE_ERROR_FIGURES_H_
#define TOOLS_MEASURE_ERROR_FIGURES_H_

#include <cmath>
#include <cstdint>
#include <limits>

namespace kvcheck {

struct ErrorSums {
  int64_t elements = 0;
  int64_t not_finite = 0;  // values that are no number, of finite originals
  double error = 0;        // sum of |value - original|
  double error_squared = 0;
  double original_squared = 0;
  double largest = 0;

  void Add(double original, double value) { Add(original, value, value - original); }
  // difference: value - original, where it is known more exactly than by these doubles.
  void Add(double original, double value, double difference) {
    ++elements;
    original_squared += original * original;
    if (!std::isfinite(value)) {
      ++not_finite;
      return;
    }
    const double size = std::fabs(difference);
    error += size;
    error_squared += size * size;
    if (size > largest) largest = size;
  }
  void Add(const ErrorSums& other) {
    elements += other.elements;
    not_finite += other.not_finite;
    error += other.error;
    error_squared += other.error_squared;
    original_squared += other.original_squared;
    if (other.largest > largest) largest = other.largest;
  }

  // Infinite where a value is no number.
  double Mean() const { return OrInfinite(error / static_cast<double>(elements)); }
  double Largest() const { return OrInfinite(largest); }
  // Sum of squared errors over sum of squares: the distortion D of papers. 0 where nothing is lost.
  double Nmse() const {
    return OrInfinite(error_squared == 0 ? 0 : error_squared / original_squared);
  }

 private:
  double OrInfinite(double figure) const {
    return not_finite == 0 ? figure : std::numeric_limits<double>::infinity();
  }
};

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_ERROR_FIGURES_H_
