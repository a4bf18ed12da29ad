// Tensors that lie beside the inputs of a case of attention and that it does not use: where an
// answer fails, they are read as what the case may have left out
// (reference/attention/completions.h).

#ifndef TOOLS_CORRIDOR_SPARE_TENSORS_H_
#define TOOLS_CORRIDOR_SPARE_TENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reference/spec/case.h"
#include "reference/spec/shape.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// The name that completions know a tensor by ("sinks", "mask", "alibi_slopes", "k_scale",
// "v_scale", "cu_seqlens_q", "cu_seqlens_k"), if its own name, or the last part of its path, is one
// of those that libraries have for it and its extents fit the case. nullopt: none, or the case uses
// it.
std::optional<std::string> SpareName(const Case& c, std::string_view path, DType dtype,
                                     const Shape& shape);

// Adds such a tensor to the inputs in the form that completions read; does nothing where they have
// one of that name, or it is none. Gives the name.
std::optional<std::string> AddSpare(const Case& c, std::string_view path, Tensor tensor,
                                    TensorMap* inputs);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_SPARE_TENSORS_H_
