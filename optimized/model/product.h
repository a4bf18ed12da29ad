// y (rows, outputs of a range) = x (rows, in) times w [in][out], f32.

#ifndef OPTIMIZED_MODEL_PRODUCT_H_
#define OPTIMIZED_MODEL_PRODUCT_H_

#include <cstdint>

namespace kvcheck::optimized {

// Inputs whose products are summed before the sum is added to the result.
inline constexpr int64_t kSumBlock = 64;

struct ProductArguments {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t in = 0;
  const float* w = nullptr;
  int64_t out = 0;
  float* y = nullptr;
};

// Outputs [first, first + count) of every row. The order of a sum does not depend on the rows, the
// range or the instruction set; with FMA or without differs.
void Product(const ProductArguments& arguments, int64_t first, int64_t count);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_MODEL_PRODUCT_H_
