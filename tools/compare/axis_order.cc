#include "tools/compare/axis_order.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

enum class Role { kBatch, kHead, kToken, kChannel, kOther };

struct RoleNames {
  Role role;
  std::string_view own;     // as cases write them
  std::string_view others;  // as people write them, each between blanks
};

constexpr std::array<RoleNames, 4> kRoles = {{
    {Role::kBatch, " b ", " batch batch_size bs "},
    {Role::kHead, " hq hkv ", " h head heads num_heads n_heads nh "},
    {Role::kToken, " l t ",
     " s m n seq seqlen seq_len sequence token tokens len length time "
     "position positions q_len kv_len "},
    {Role::kChannel, " dk dv w g ", " d c dim head_dim channel channels "},
}};

bool Lists(std::string_view names, const std::string& name) {
  return !name.empty() && names.find(" " + name + " ") != std::string_view::npos;
}

Role RoleOf(std::string_view label) {
  const std::string name = LowerCase(label);
  for (const RoleNames& role : kRoles) {
    if (Lists(role.own, name) || Lists(role.others, name)) return role.role;
  }
  return Role::kOther;
}

// The axis that a label means: the one of its name, else the only one of its role.
std::optional<size_t> AxisOf(const std::string& label, const Shape& wanted) {
  const std::string name = LowerCase(label);
  std::optional<size_t> found;
  for (size_t a = 0; a < wanted.axes.size(); ++a) {
    if (LowerCase(wanted.axes[a].name) == name) return a;
  }
  const Role role = RoleOf(label);
  if (role == Role::kOther) return std::nullopt;
  for (size_t a = 0; a < wanted.axes.size(); ++a) {
    if (RoleOf(wanted.axes[a].name) != role) continue;
    if (found) return std::nullopt;
    found = a;
  }
  return found;
}

std::vector<std::string> SplitAt(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != separator) continue;
    parts.emplace_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

std::vector<int64_t> LongExtents(const Shape& shape) {
  std::vector<int64_t> extents;
  for (const Axis& axis : shape.axes) {
    if (axis.extent != 1) extents.push_back(axis.extent);
  }
  return extents;
}

// The first axis of a role; the number of axes where there is none.
size_t AxisOfRole(const Shape& shape, Role role) {
  size_t a = 0;
  while (a < shape.axes.size() && RoleOf(shape.axes[a].name) != role) ++a;
  return a;
}

AxisOrder WithoutOnes(AxisOrder order, const Shape& wanted) {
  std::erase_if(order, [&](size_t a) { return wanted.axes[a].extent == 1; });
  return order;
}

}  // namespace

AxisOrder OwnOrder(const Shape& wanted) {
  AxisOrder order(wanted.axes.size());
  for (size_t a = 0; a < order.size(); ++a) order[a] = a;
  return WithoutOnes(std::move(order), wanted);
}

std::vector<std::string> SplitAxisLabels(std::string_view text) {
  if (text.find_first_of(",*_") != std::string_view::npos || RoleOf(text) != Role::kOther) {
    return SplitAt(text, ',');
  }
  std::vector<std::string> labels;
  for (const char c : text) labels.emplace_back(1, c);
  return labels;
}

std::optional<AxisOrder> OrderOfLabels(const std::vector<std::string>& labels, const Shape& stored,
                                       const Shape& wanted) {
  if (labels.size() != stored.axes.size()) return std::nullopt;
  AxisOrder order;
  std::vector<bool> seen(wanted.axes.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i].empty() || labels[i] == "1") {
      if (stored.axes[i].extent != 1) return std::nullopt;
      continue;
    }
    int64_t extent = 1;
    for (const std::string& part : SplitAt(labels[i], '*')) {
      const std::optional<size_t> axis = AxisOf(part, wanted);
      // An axis that the case does not have, of extent 1.
      if (!axis && RoleOf(part) != Role::kOther && stored.axes[i].extent == 1) continue;
      if (!axis || seen[*axis]) return std::nullopt;
      seen[*axis] = true;
      extent *= wanted.axes[*axis].extent;
      order.push_back(*axis);
    }
    if (extent != stored.axes[i].extent) return std::nullopt;
  }
  for (size_t a = 0; a < seen.size(); ++a) {
    if (!seen[a] && wanted.axes[a].extent != 1) return std::nullopt;
  }
  return WithoutOnes(std::move(order), wanted);
}

bool NameAxesOf(const std::vector<std::string>& labels, const Shape& wanted) {
  for (const std::string& label : labels) {
    if (label.empty() || label == "1") continue;
    for (const std::string& part : SplitAt(label, '*')) {
      if (!AxisOf(part, wanted)) return false;
    }
  }
  return true;
}

std::vector<AxisOrder> OrdersThatFit(const Shape& stored, const Shape& wanted) {
  const std::vector<int64_t> extents = LongExtents(stored);
  std::vector<AxisOrder> fitting;
  const auto add = [&](const AxisOrder& order) {
    if (std::find(fitting.begin(), fitting.end(), order) == fitting.end()) fitting.push_back(order);
  };
  const AxisOrder own = OwnOrder(wanted);
  if (extents == LongExtents(wanted)) add(own);
  const size_t head = AxisOfRole(wanted, Role::kHead);
  const size_t token = AxisOfRole(wanted, Role::kToken);
  // Of a mask, whose last axis is of keys, other orders are not met.
  const bool is_row =
      wanted.axes.size() >= 3 && token == head + 1 &&
      (wanted.axes.size() == token + 1 || RoleOf(wanted.axes.back().name) == Role::kChannel);
  if (!is_row) return fitting;
  Shape heads_last;
  AxisOrder order;
  for (size_t a = 0; a < wanted.axes.size(); ++a) {
    const size_t from = a == head ? token : a == token ? head : a;
    order.push_back(from);
    heads_last.axes.push_back(wanted.axes[from]);
  }
  order = WithoutOnes(std::move(order), wanted);
  if (extents == LongExtents(heads_last)) add(order);
  if (wanted.axes.size() == token + 2) {
    heads_last.axes[token].extent *= heads_last.axes.back().extent;
    heads_last.axes.pop_back();
    if (extents == LongExtents(heads_last)) add(order);
  }
  return fitting;
}

std::string AxesText(const AxisOrder& order, const Shape& wanted) {
  std::string text;
  size_t next = 0;
  for (size_t a = 0; a < wanted.axes.size(); ++a) {
    const size_t axis = wanted.axes[a].extent == 1 ? a : order[next++];
    text += (a > 0 ? "," : "") + wanted.axes[axis].name;
  }
  return text;
}

Tensor InOwnOrder(Tensor tensor, const AxisOrder& order, const Shape& wanted) {
  if (order == OwnOrder(wanted)) {
    tensor.shape = wanted;
    return tensor;
  }
  // The distance in the stored tensor of neighbours along each axis of the case.
  std::vector<int64_t> stride(wanted.axes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i > 0; --i) {
    stride[order[i - 1]] = step;
    step *= wanted.axes[order[i - 1]].extent;
  }
  const size_t size = SizeInBytes(tensor.dtype);
  Tensor ordered(tensor.dtype, wanted);
  std::vector<int64_t> at(wanted.axes.size());
  int64_t from = 0;
  const int64_t elements = wanted.ElementCount();
  for (int64_t to = 0; to < elements; ++to) {
    std::memcpy(ordered.bytes.data() + static_cast<size_t>(to) * size,
                tensor.bytes.data() + static_cast<size_t>(from) * size, size);
    for (size_t a = at.size(); a > 0; --a) {
      from += stride[a - 1];
      if (++at[a - 1] < wanted.axes[a - 1].extent) break;
      from -= stride[a - 1] * at[a - 1];
      at[a - 1] = 0;
    }
  }
  return ordered;
}

}  // namespace kvcheck
