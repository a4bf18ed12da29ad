// Memory that is counted while it is held, and given back to the system at once: what a process
// needs at its peak can then be seen from outside.

#ifndef TOOLS_MEASURE_PAGES_H_
#define TOOLS_MEASURE_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace kvcheck {

// Bytes that are held now, and the most of them at one time.
struct HeldBytes {
  int64_t now = 0;
  int64_t peak = 0;
};

// Pages of the system, of zeros, all of them there from the start: whoever writes to them does not
// wait for the system. Movable.
class Pages {
 public:
  Pages() = default;
  // held: counts them, and outlives them. Errors: std::bad_alloc.
  Pages(int64_t bytes, HeldBytes* held);
  ~Pages() { Release(); }
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(held_, other.held_);
    return *this;
  }

  void Release();
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  HeldBytes* held_ = nullptr;
};

// The resident memory of this process at its peak since Restart(), beyond what was resident then.
class ResidentPeak {
 public:
  void Restart();
  // nullopt where the system does not say (it is read from /proc).
  std::optional<int64_t> Bytes() const;

 private:
  std::optional<int64_t> before_;
};

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_PAGES_H_
