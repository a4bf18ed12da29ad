#include "reference/model/linear.h"

#include <cmath>

#include "reference/model/product.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

Matrix Product(const Matrix& x, const Linear& linear, const std::vector<double>& w) {
  KVCHECK_CHECK(x.columns == linear.in, "a product of other extents");
  Matrix y(x.rows, linear.out);
#ifdef __x86_64__
  static const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                         __builtin_cpu_supports("bmi2");
  if (v3) {
    ProductV3(x.values.data(), x.rows, linear.in, w.data(), linear.out, y.values.data());
    return y;
  }
#endif
  ProductBaseline(x.values.data(), x.rows, linear.in, w.data(), linear.out, y.values.data());
  return y;
}

}  // namespace

Linear::Linear(const Tensor& tensor) : in(tensor.shape.RowLength()), out(tensor.shape.RowCount()) {
  std::vector<double> rows(static_cast<size_t>(in * out));
  DecodeTo(tensor, 0, rows);
  weights.resize(rows.size());
  magnitudes.resize(rows.size());
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const double value = rows[static_cast<size_t>(o * in + i)];
      weights[static_cast<size_t>(i * out + o)] = value;
      magnitudes[static_cast<size_t>(i * out + o)] = std::fabs(value);
    }
  }
}

Matrix Multiply(const Matrix& x, const Linear& linear) {
  return Product(x, linear, linear.weights);
}

Matrix MultiplyMagnitudes(const Matrix& x, const Linear& linear) {
  return Product(x, linear, linear.magnitudes);
}

std::vector<double> MultiplyTransposed(const std::vector<double>& y, const Linear& linear) {
  std::vector<double> x(static_cast<size_t>(linear.in));
  for (int64_t i = 0; i < linear.in; ++i) {
    const double* row = linear.weights.data() + i * linear.out;
    double sum = 0;
    for (int64_t o = 0; o < linear.out; ++o) sum += row[o] * y[static_cast<size_t>(o)];
    x[static_cast<size_t>(i)] = sum;
  }
  return x;
}

}  // namespace kvcheck
