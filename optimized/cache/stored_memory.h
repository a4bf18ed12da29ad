// Memory of stored keys and values.

#ifndef OPTIMIZED_CACHE_STORED_MEMORY_H_
#define OPTIMIZED_CACHE_STORED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kvcheck::optimized {

// Bytes of undefined contents, which start at a cache line. Many of them are pages of their own and
// ask for huge ones, where the system gives such to who asks: attention reads them in many short
// streams, and with pages of 4 KiB looking up addresses takes 5 to 10 % of its time.
class StoredMemory {
 public:
  StoredMemory() = default;
  // Errors: std::bad_alloc.
  explicit StoredMemory(int64_t bytes);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return data_ == nullptr ? 0 : bytes_; }

 private:
  struct Free {
    void* pages;  // null: from operator new
    size_t page_bytes;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  int64_t bytes_ = 0;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_STORED_MEMORY_H_
