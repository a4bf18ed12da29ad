#include "optimized/formats/hadamard.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/hadamard.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/formats/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

void RotateBlocksOfVectors(float* v, int64_t dim, int64_t size, float scale) {
  for (int64_t first = 0; first < dim; first += size) {
    HadamardButterflies(v + first, static_cast<int>(size));
  }
  const ButterflyFloats d;
  const auto by = hn::Set(d, scale);
  for (int64_t i = 0; i < dim; i += kButterflyLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, v + i), by), d, v + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {
namespace {

HWY_EXPORT(RotateBlocksOfVectors);

// Shorter than the longest vectors.
void RotateShortBlocks(float* v, int64_t dim, int64_t size, float scale) {
  for (int64_t stride = 1; stride < size; stride *= 2) {
    for (int64_t i = 0; i < dim; ++i) {
      if ((i & stride) != 0) continue;
      const float a = v[i], b = v[i + stride];
      v[i] = a + b;
      v[i + stride] = a - b;
    }
  }
  for (int64_t i = 0; i < dim; ++i) v[i] *= scale;
}

}  // namespace

void RotateBlocks(float* v, int64_t dim, int64_t size) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  if (size < 8) {
    RotateShortBlocks(v, dim, size, scale);
  } else {
    HWY_DYNAMIC_DISPATCH(RotateBlocksOfVectors)(v, dim, size, scale);
  }
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
