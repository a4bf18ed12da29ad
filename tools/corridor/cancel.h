// Cutting work short: whoever asks hands a Cancel in, and work looks at it wherever it can stop. In
// a supervised worker the same places give a sign of life.

#ifndef TOOLS_CORRIDOR_CANCEL_H_
#define TOOLS_CORRIDOR_CANCEL_H_

#include <functional>
#include <utility>

namespace kvcheck {

// Thrown out of work that was cut short. Not an error: the report says that it is partial.
struct Cancelled {};

class Cancel {
 public:
  // Nobody cuts the work short.
  Cancel() = default;
  // requested: called by every thread of the work.
  explicit Cancel(std::function<bool()> requested) : requested_(std::move(requested)) {}
  // The same, which calls `alive` wherever the work could stop.
  Cancel WithSignOfLife(std::function<void()> alive) const {
    Cancel other = *this;
    other.alive_ = std::move(alive);
    return other;
  }

  bool IsRequested() const { return requested_ && requested_(); }
  void ThrowIfRequested() const {
    if (alive_) alive_();
    if (IsRequested()) throw Cancelled();
  }
  // As a callback of rooms that know no Cancel. Errors: Cancelled.
  void operator()() const { ThrowIfRequested(); }

 private:
  std::function<bool()> requested_;
  std::function<void()> alive_;
};

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_CANCEL_H_
