// Requests that are known before the answers to earlier ones have come: sent in few pieces, and
// taken one by one when their turn comes. The child answers in order, so nothing else changes.

#ifndef TOOLS_PROCESS_REQUESTS_AHEAD_H_
#define TOOLS_PROCESS_REQUESTS_AHEAD_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace kvcheck {

class RequestsAhead {
 public:
  // More are not kept: what is asked one by one costs little beside work of that size.
  static constexpr size_t kMostBytes = size_t{1} << 20;
  // Sent without an answer, at most.
  static constexpr size_t kMostUnanswered = 64;

  void Clear() {
    bytes_.clear();
    ends_.clear();
    sent_ = taken_ = 0;
  }
  bool Full() const { return bytes_.size() >= kMostBytes; }
  // A whole frame, with its header.
  void Add(std::span<const std::byte> frame) {
    bytes_.insert(bytes_.end(), frame.begin(), frame.end());
    ends_.push_back(bytes_.size());
  }

  // Forgets those whose turn has not come. Precondition: none of them was sent.
  void DropRest() {
    ends_.resize(taken_);
    bytes_.resize(StartOf(taken_));
  }

  // Whether one was taken since Clear.
  bool Used() const { return taken_ > 0; }
  // Whether there are some whose turn has not come.
  bool Any() const { return taken_ < ends_.size(); }
  // Precondition: Any().
  bool IsNext(std::span<const std::byte> frame) const {
    const size_t start = StartOf(taken_);
    return frame.size() == ends_[taken_] - start &&
           std::equal(frame.begin(), frame.end(), bytes_.begin() + static_cast<long>(start));
  }
  // Sent, and not taken: so many answers are on their way.
  size_t Unanswered() const { return sent_ - taken_; }
  // Takes the next. Precondition: Any(), and it was sent.
  void Take() { ++taken_; }
  // The frames to be sent now, in one piece; empty where those on their way are enough.
  std::span<const std::byte> Send() {
    if (2 * Unanswered() > kMostUnanswered || sent_ == ends_.size()) return {};
    const size_t start = StartOf(sent_);
    sent_ = std::min(ends_.size(), taken_ + kMostUnanswered);
    return {bytes_.data() + start, ends_[sent_ - 1] - start};
  }

 private:
  size_t StartOf(size_t i) const { return i == 0 ? 0 : ends_[i - 1]; }

  std::vector<std::byte> bytes_;
  std::vector<size_t> ends_;
  size_t sent_ = 0;
  size_t taken_ = 0;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REQUESTS_AHEAD_H_
