// The rotation of turboquant: y = (1/sqrt d) H (s o u) with Sylvester's H_ij = (-1)^popcount(i & j)
// and signs s; back: u = s o ((1/sqrt d) H y). In f32 as mlx-vlm orders it on the CPU, one
// operation at a time, and in double, beside which f32 is judged.

#ifndef REFERENCE_FORMATS_TURBOQUANT_ROTATION_H_
#define REFERENCE_FORMATS_TURBOQUANT_ROTATION_H_

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kvcheck {

// H v in place, d log2 d sums: strides 1, 2, ..., d / 2, the sum to the lower index, the difference
// to the upper.
template <typename T>
void HadamardInOrder(std::span<T> v) {
  for (size_t stride = 1; stride < v.size(); stride *= 2) {
    for (size_t first = 0; first < v.size(); first += 2 * stride) {
      for (size_t i = first; i < first + stride; ++i) {
        const T low = v[i], high = v[i + stride];
        v[i] = low + high;
        v[i + stride] = low - high;
      }
    }
  }
}

template <typename T>
T RotationScale(size_t d) {
  return static_cast<T>(1.0 / std::sqrt(static_cast<double>(d)));
}

template <typename T>
void Rotate(std::span<const float> signs, std::span<T> u) {
  for (size_t i = 0; i < u.size(); ++i) u[i] *= static_cast<T>(signs[i]);
  HadamardInOrder(u);
  for (T& value : u) value *= RotationScale<T>(u.size());
}

template <typename T>
void RotateBack(std::span<const float> signs, std::span<T> y) {
  HadamardInOrder(y);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = y[i] * RotationScale<T>(y.size()) * static_cast<T>(signs[i]);
  }
}

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_TURBOQUANT_ROTATION_H_
