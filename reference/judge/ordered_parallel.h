// Runs compute(i) for i in [0, count) on several threads and hands the results to merge(i, result)
// in ascending order, one at a time: what merge builds does not depend on the number of threads.
// The caller's thread is one of them, so that a machine which refuses others still gets all work
// done; the others are kept for the next loop.

#ifndef REFERENCE_JUDGE_ORDERED_PARALLEL_H_
#define REFERENCE_JUDGE_ORDERED_PARALLEL_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "reference/judge/kept_threads.h"

namespace kvcheck {

// An exception of compute or merge ends the loop and is thrown again here. At most a few results
// per thread wait to be merged, so memory does not grow with count.
template <typename Compute, typename Merge>
void OrderedParallelFor(int64_t count, int threads, Compute compute, Merge merge) {
  if (threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) merge(i, compute(i));
    return;
  }
  using Result = decltype(compute(int64_t{0}));
  const int64_t window = 4 * static_cast<int64_t>(threads);
  std::mutex mutex;
  std::condition_variable progressed;
  std::map<int64_t, Result> waiting;
  int64_t next = 0;    // to compute
  int64_t merged = 0;  // results merged so far
  bool merging = false;
  std::exception_ptr failure;

  const auto work = [&] {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      progressed.wait(lock, [&] { return failure || next >= count || next < merged + window; });
      if (failure || next >= count) return;
      const int64_t index = next++;
      lock.unlock();
      try {
        Result result = compute(index);
        lock.lock();
        waiting.emplace(index, std::move(result));
        while (!merging && !failure && !waiting.empty() && waiting.begin()->first == merged) {
          auto node = waiting.extract(waiting.begin());
          merging = true;
          lock.unlock();
          merge(node.key(), std::move(node.mapped()));
          lock.lock();
          merging = false;
          ++merged;
          progressed.notify_all();
        }
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!failure) failure = std::current_exception();
        progressed.notify_all();
        return;
      }
    }
  };
  {
    // Fewer where the system gives no more: those that there are do it.
    const KeptThreads helpers(std::min<int64_t>(threads, count) - 1, work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_ORDERED_PARALLEL_H_
