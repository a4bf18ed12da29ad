// Forces the instruction set that Highway's dispatch chooses, while it lives.

#ifndef TESTS_OPTIMIZED_ON_TARGET_H_
#define TESTS_OPTIMIZED_ON_TARGET_H_

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>

namespace kvcheck {

class OnTarget {
 public:
  explicit OnTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~OnTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
};

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_ON_TARGET_H_
