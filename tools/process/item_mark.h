// Where a worker stands, for its parent: two words in memory that both see, because a child that
// crashes sends no message. A mark costs a store, and is a sign of progress.

#ifndef TOOLS_PROCESS_ITEM_MARK_H_
#define TOOLS_PROCESS_ITEM_MARK_H_

#include <atomic>
#include <cstdint>

#include "tools/process/supervised_child.h"

namespace kvcheck {

class ItemMark {
 public:
  struct Shared {
    std::atomic<int64_t> item = -1;
    std::atomic<int64_t> step = -1;
  };

  // Both outlive the mark.
  ItemMark(Shared* shared, ChildChannel* channel) : shared_(shared), channel_(channel) {}
  void StartItem(int64_t item) {
    shared_->step.store(-1, std::memory_order_relaxed);
    shared_->item.store(item, std::memory_order_relaxed);
    channel_->Progress();
  }
  // A step within the item, from 0: an operation of a trace.
  void StartStep(int64_t step) {
    shared_->step.store(step, std::memory_order_relaxed);
    channel_->Progress();
  }
  // Within a step: work goes on.
  void Alive() { channel_->Progress(); }

 private:
  Shared* shared_;
  ChildChannel* channel_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_ITEM_MARK_H_
