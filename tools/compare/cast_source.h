// A tensor in a wider type, which has every value of its own: tensors of two types are compared in
// a type that holds both exactly, so that the cast itself can hide nothing.

#ifndef TOOLS_COMPARE_CAST_SOURCE_H_
#define TOOLS_COMPARE_CAST_SOURCE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "reference/spec/dtype.h"
#include "reference/spec/tensor.h"
#include "tools/compare/tensor_view.h"

namespace kvcheck {

// True when every value of `narrow` is one of `wide`, zeros of either sign, infinities and NaN
// among them. A type holds itself.
bool HoldsEveryValue(DType wide, DType narrow);

// The tensor in type `to`, where every element is a value of that type (a NaN stays one). Else
// nullopt, with the first element that is none in *first and their number in *count.
// Errors: kIllegalCase for a byte that is no code of the tensor's type.
std::optional<Tensor> ExactlyAs(const Tensor& tensor, DType to, int64_t* first, int64_t* count);

// The elements of another tensor in type `wide`. A NaN becomes quiet and keeps its sign, and what
// of its payload Encode keeps.
class CastTensor : public TensorView {
 public:
  // tensor must outlive this. where: the tensor, for messages.
  // Errors: kUsage unless wide holds every value of the tensor's type.
  CastTensor(const TensorView& tensor, DType wide, const std::string& where);
  // Errors: kIllegalCase for a byte that is no code of the tensor's type; those of the tensor.
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override;

 private:
  const TensorView& tensor_;
};

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_CAST_SOURCE_H_
