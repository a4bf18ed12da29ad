#include "optimized/cache/stored_memory.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace kvcheck::optimized {
namespace {

// Rows of vector registers start at cache lines.
constexpr int64_t kLine = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
// Below this the part of a page that is left over would count.
constexpr int64_t kHugeFrom = 2 * kHugePage;

std::align_val_t AlignmentOf(int64_t bytes) {
  return static_cast<std::align_val_t>(bytes >= kHugeFrom ? kHugePage : kLine);
}

}  // namespace

StoredMemory::StoredMemory(int64_t bytes)
    : data_(static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), AlignmentOf(bytes))),
            Free{AlignmentOf(bytes)}),
      bytes_(bytes) {
#ifdef MADV_HUGEPAGE
  // A wish: without huge pages everything works the same.
  if (bytes >= kHugeFrom) madvise(data_.get(), static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
}

}  // namespace kvcheck::optimized
