// The exponential of the kernels against that of the reference, over runs of bit patterns.

#ifndef TESTS_OPTIMIZED_ATTENTION_EXP_ERROR_H_
#define TESTS_OPTIMIZED_ATTENTION_EXP_ERROR_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "optimized/attention/kernels.h"
#include "reference/numerics/exp.h"

namespace kvcheck {

struct WorstExp {
  double error = 0;  // relative, that of the reference included
  float x = 0;
};

// Every `step`-th bit pattern of [first, last], of negative numbers.
inline WorstExp WorstOf(bool fused, uint32_t first, uint32_t last, uint32_t step) {
  WorstExp worst;
  std::vector<float> x, y;
  for (uint64_t bits = first; bits <= last;) {
    x.clear();
    for (; bits <= last && x.size() < 4096; bits += step) {
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    y.resize(x.size());
    optimized::ExpOf(fused, x.data(), std::ssize(x), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = ExpDouble(static_cast<double>(x[i]));
      const double error =
          std::fabs(static_cast<double>(y[i]) - exact) / exact + 2 * kExpDoubleError;
      if (!(error <= worst.error)) worst = {error, x[i]};
    }
  }
  return worst;
}

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_ATTENTION_EXP_ERROR_H_
