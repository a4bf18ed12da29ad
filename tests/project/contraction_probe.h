// The probe of contraction_test.cc, compiled on its own for an instruction set that has FMA.

#ifndef TESTS_PROJECT_CONTRACTION_PROBE_H_
#define TESTS_PROJECT_CONTRACTION_PROBE_H_

namespace kvcheck {

// a d - b c as the compiler renders it.
double Determinant(double a, double b, double c, double d);

// What is left of a b after the rounded product is taken away.
double ProductResidue(double a, double b);

}  // namespace kvcheck

#endif  // TESTS_PROJECT_CONTRACTION_PROBE_H_
