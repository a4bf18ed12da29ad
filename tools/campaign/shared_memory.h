// A value in memory that a process shares with the children which it forks afterwards.

#ifndef TOOLS_CAMPAIGN_SHARED_MEMORY_H_
#define TOOLS_CAMPAIGN_SHARED_MEMORY_H_

#include <sys/mman.h>

#include <new>

#include "reference/spec/error.h"

namespace kvcheck {

template <typename T>
class SharedValue {
 public:
  // Errors: kUnsupported.
  SharedValue() {
    void* place =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) {
      throw Error(ErrorCode::kUnsupported, "no memory can be shared with child processes");
    }
    value_ = new (place) T;
  }
  ~SharedValue() { munmap(value_, sizeof(T)); }
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;

  T* get() const { return value_; }

 private:
  T* value_;
};

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_SHARED_MEMORY_H_
