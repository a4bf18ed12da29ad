#include "optimized/cache/stored_memory.h"

#include <sys/mman.h>

#include <new>

namespace kvcheck::optimized {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kHugePage = size_t{2} << 20;
// Below this the part of the last page that is left over would count.
constexpr size_t kHugeFrom = 2 * kHugePage;

}  // namespace

void StoredMemory::Free::operator()(std::byte* data) const {
  if (pages == nullptr) return ::operator delete(data, kAlignment);
  munmap(pages, page_bytes);
}

StoredMemory::StoredMemory(int64_t bytes) : bytes_(bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (size < kHugeFrom) {
    data_ = {static_cast<std::byte*>(::operator new(size, kAlignment)), Free{nullptr, 0}};
    return;
  }
  // Not from the heap, where the wish for huge pages would outlive these bytes.
  const size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
  const size_t mapped = whole + kHugePage;
  if (mapped < size) throw std::bad_alloc();
  void* pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  void* start = pages;
  size_t room = mapped;
  data_ = {static_cast<std::byte*>(std::align(kHugePage, whole, start, room)), Free{pages, mapped}};
#ifdef MADV_HUGEPAGE
  madvise(start, whole, MADV_HUGEPAGE);  // without them everything works the same
#endif
}

}  // namespace kvcheck::optimized
