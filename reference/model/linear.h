// Products of the model in double: rows times a matrix of weights, term by term in the order of the
// inputs, so that a row's result has the same bits in any batch and on every instruction set.

#ifndef REFERENCE_MODEL_LINEAR_H_
#define REFERENCE_MODEL_LINEAR_H_

#include <cstdint>
#include <vector>

#include "reference/spec/tensor.h"

namespace kvcheck {

// Row-major.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(int64_t row_count, int64_t column_count)
      : rows(row_count),
        columns(column_count),
        values(static_cast<size_t>(row_count * column_count)) {}
  double* Row(int64_t row) { return values.data() + row * columns; }
  const double* Row(int64_t row) const { return values.data() + row * columns; }
};

// A matrix of weights (out, in) and its magnitudes, transposed: [in][out].
struct Linear {
  int64_t in = 0;
  int64_t out = 0;
  std::vector<double> weights;
  std::vector<double> magnitudes;

  Linear() = default;
  // tensor: (out, in) of a real type; every value is a double.
  explicit Linear(const Tensor& tensor);
};

// y = x W^T. Shapes: x (rows, in), result (rows, out).
Matrix Multiply(const Matrix& x, const Linear& linear);
// The same with |W|.
Matrix MultiplyMagnitudes(const Matrix& x, const Linear& linear);
// One row of out values times W: the transposed product, (in).
std::vector<double> MultiplyTransposed(const std::vector<double>& y, const Linear& linear);

}  // namespace kvcheck

#endif  // REFERENCE_MODEL_LINEAR_H_
