// Data of a call: no two elements are equal, none is large.

#ifndef TESTS_TOOLS_CORRIDOR_WAVES_H_
#define TESTS_TOOLS_CORRIDOR_WAVES_H_

#include <cmath>
#include <cstdint>
#include <vector>

namespace kvcheck {

inline std::vector<float> Waves(int64_t count, float phase) {
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) x.push_back(std::sin(0.7f * static_cast<float>(i) + phase));
  return x;
}

}  // namespace kvcheck

#endif  // TESTS_TOOLS_CORRIDOR_WAVES_H_
