// y (rows, out) = x (rows, in) times w [in][out], by the best instruction set that runs here.

#ifndef REFERENCE_MODEL_PRODUCT_H_
#define REFERENCE_MODEL_PRODUCT_H_

#include <cstdint>

namespace kvcheck {

void ProductBaseline(const double* x, int64_t rows, int64_t in, const double* w, int64_t out,
                     double* y);
#ifdef __x86_64__
void ProductV3(const double* x, int64_t rows, int64_t in, const double* w, int64_t out, double* y);
#endif

}  // namespace kvcheck

#endif  // REFERENCE_MODEL_PRODUCT_H_
