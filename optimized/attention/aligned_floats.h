// Aligned buffers for kernels, which store whole vectors.

#ifndef OPTIMIZED_ATTENTION_ALIGNED_FLOATS_H_
#define OPTIMIZED_ATTENTION_ALIGNED_FLOATS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvcheck::optimized {

// `floats` floats of a buffer that grows as needed, 64-byte aligned.
inline float* AlignedFloats(std::vector<float>* buffer, int64_t floats) {
  constexpr size_t kAlignment = 64;  // of the widest vectors
  const auto wanted = static_cast<size_t>(floats) + kAlignment / sizeof(float);
  if (buffer->size() < wanted) buffer->resize(wanted);
  void* start = buffer->data();
  size_t room = buffer->size() * sizeof(float);
  return static_cast<float*>(
      std::align(kAlignment, static_cast<size_t>(floats) * sizeof(float), start, room));
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_ALIGNED_FLOATS_H_
