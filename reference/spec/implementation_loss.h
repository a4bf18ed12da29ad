// An implementation that does not answer any more, as a value that it states: thrown out of its
// calls, and what the case came to. Whoever judges need not know where it lives.

#ifndef REFERENCE_SPEC_IMPLEMENTATION_LOSS_H_
#define REFERENCE_SPEC_IMPLEMENTATION_LOSS_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace kvcheck {

// kNoRoom: it says that the disk is full, which proves nothing about it.
enum class LossKind : uint8_t { kCrashed, kTimedOut, kBrokeProtocol, kNoRoom };

class ImplementationLoss : public std::runtime_error {
 public:
  ImplementationLoss(LossKind kind, std::string request, const std::string& reason)
      : std::runtime_error(reason), kind_(kind), request_(std::move(request)) {}

  LossKind kind() const { return kind_; }
  // What it was asked: "append", "case".
  const std::string& request() const { return request_; }
  std::string reason() const { return what(); }
  // "CRASHED", "TIMED_OUT", "PROTOCOL", "NO_ROOM".
  const char* End() const {
    if (kind_ == LossKind::kCrashed) return "CRASHED";
    if (kind_ == LossKind::kNoRoom) return "NO_ROOM";
    return kind_ == LossKind::kTimedOut ? "TIMED_OUT" : "PROTOCOL";
  }
  // "append CRASHED".
  std::string Signature() const { return request_ + " " + End(); }

 private:
  LossKind kind_;
  std::string request_;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_IMPLEMENTATION_LOSS_H_
