// In which order a stored tensor has the axes of a case: as labels say it (an attribute, --axes),
// or as its extents alone can be read. Axes of extent 1 move no element, so that they may stand
// anywhere or be left out.

#ifndef TOOLS_COMPARE_AXIS_ORDER_H_
#define TOOLS_COMPARE_AXIS_ORDER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/shape.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// Axes of the case (indices into its shape) in the order in which the tensor has them, the slowest
// first; axes of extent 1 are left out.
using AxisOrder = std::vector<size_t>;

// The order of the case itself.
AxisOrder OwnOrder(const Shape& wanted);

// The labels of "B,T,H,D", "BTHD" or "T,H*D" (of one axis that has two, the first one slower).
std::vector<std::string> SplitAxisLabels(std::string_view text);

// Labels name axes as the case does (B Hq Hkv L T Dk Dv W G), or as people do: H or heads, T, L, S
// or seq, D or head_dim; "1" and "" are axes of extent 1. nullopt when a label is none of these, or
// means two axes of the case, or comes twice.
std::optional<AxisOrder> OrderOfLabels(const std::vector<std::string>& labels, const Shape& stored,
                                       const Shape& wanted);

// True when every label is one that `wanted` can have, whatever the extents.
bool NameAxesOf(const std::vector<std::string>& labels, const Shape& wanted);

// All orders of those often met that these extents can be: that of the case, heads after tokens
// (B,T,H,D), and the channels of all heads as one axis (B,T,H*D).
std::vector<AxisOrder> OrdersThatFit(const Shape& stored, const Shape& wanted);

// "B,L,Hq,Dk", axes of extent 1 included at their place in the case's order.
std::string AxesText(const AxisOrder& order, const Shape& wanted);

// The elements in the order of the case. Precondition: the tensor has as many as `wanted`.
Tensor InOwnOrder(Tensor tensor, const AxisOrder& order, const Shape& wanted);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_AXIS_ORDER_H_
