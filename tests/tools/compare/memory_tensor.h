// A tensor in memory as a TensorView, which counts what is read of it.

#ifndef TESTS_TOOLS_COMPARE_MEMORY_TENSOR_H_
#define TESTS_TOOLS_COMPARE_MEMORY_TENSOR_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "reference/spec/tensor.h"
#include "tools/compare/tensor_view.h"

namespace kvcheck {

class MemoryTensor : public TensorView {
 public:
  explicit MemoryTensor(Tensor tensor)
      : TensorView(tensor.dtype, tensor.shape), tensor_(std::move(tensor)) {}
  void Read(const std::string&, int64_t first_element, std::span<std::byte> out) const override {
    const size_t first = static_cast<size_t>(first_element) * SizeInBytes(tensor_.dtype);
    ASSERT_LE(first + out.size(), tensor_.bytes.size());
    std::copy_n(tensor_.bytes.begin() + static_cast<std::ptrdiff_t>(first), out.size(),
                out.begin());
    ++reads_;
    largest_read_ = std::max(largest_read_, out.size());
  }
  int64_t reads() const { return reads_; }
  size_t largest_read() const { return largest_read_; }

 private:
  Tensor tensor_;
  mutable int64_t reads_ = 0;
  mutable size_t largest_read_ = 0;
};

}  // namespace kvcheck

#endif  // TESTS_TOOLS_COMPARE_MEMORY_TENSOR_H_
