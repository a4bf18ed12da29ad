// The signal handler behind mapped_file.h: memory ranges in which SIGBUS means that a mapped file
// lost its end, and is answered by a page of zeros and a flag.

#ifndef GOLDEN_BUS_GUARD_H_
#define GOLDEN_BUS_GUARD_H_

#include <atomic>
#include <cstddef>

namespace kvcheck {

// One guarded range. The handler runs in the thread that touched the range, so that whoever may
// touch it keeps it registered; other threads see ranges come and go.
struct GuardedRange;

// From now on, a page of [pages, pages + bytes) that cannot be read is replaced by zeros, and sets
// `damaged`, which has to live until the range is given back. Installs the handler when it is first
// called.
GuardedRange* GuardRange(const void* pages, size_t bytes, std::atomic<bool>* damaged);
// Before the range is unmapped.
void UnguardRange(GuardedRange* range);

}  // namespace kvcheck

#endif  // GOLDEN_BUS_GUARD_H_
