// Two expressions whose value tells whether the compiler fused a product with a sum.

#include "contraction_probe.h"

namespace kvcheck {

double Determinant(double a, double b, double c, double d) { return a * d - b * c; }

double ProductResidue(double a, double b) {
  const double product = a * b;
  return a * b - product;
}

}  // namespace kvcheck
