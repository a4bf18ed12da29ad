#include "tools/compare/slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "reference/spec/error.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

// Of the whole, read at once where the runs of a part are short and lie close together.
constexpr int64_t kReadBytes = int64_t{1} << 20;
// Reading the gaps is worth it up to this many bytes a byte: a read costs as much as some KiB.
constexpr int64_t kMostWaste = 64;

std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool IsNumber(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The axis that a word means; nullopt when none or several.
std::optional<size_t> FindAxis(const Shape& shape, const std::string& word) {
  std::optional<size_t> begins;
  int64_t found = 0;
  for (size_t a = 0; a < shape.axes.size(); ++a) {
    const std::string label = Lower(shape.axes[a].name);
    if (label == Lower(word)) return a;
    if (label.starts_with(Lower(word))) {
      begins = a;
      ++found;
    }
  }
  if (found > 0) return found == 1 ? begins : std::nullopt;
  if (IsNumber(word) && word.size() < 3 && std::stoul(word) < shape.axes.size()) {
    return std::stoul(word);
  }
  return std::nullopt;
}

}  // namespace

std::vector<AxisSlice> ParseSlice(const std::string& text) {
  std::vector<AxisSlice> slices;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  try {
    for (const Piece& part : Split(WholeLine(text), ',')) {
      const size_t equals = part.text.find('=');
      if (equals == std::string_view::npos || equals == 0) part.Refuse("no axis");
      AxisSlice slice;
      slice.axis = part.text.substr(0, equals);
      slice.text = part.text;
      const std::vector<Piece> ends = Split({part.text.substr(equals + 1), part.whole}, ':');
      if (ends.size() > 2) part.Refuse("more than a range");
      slice.first = ParseInt(ends[0], 0, kMost);
      slice.last = ends.size() == 1 ? slice.first : ParseInt(ends[1], slice.first + 1, kMost) - 1;
      slices.push_back(std::move(slice));
    }
  } catch (const Error&) {
    throw Error(ErrorCode::kUsage,
                "write AXIS=I or AXIS=FIRST:END, joined by commas: b=0,h=3,t=0:512",
                fmt::format("--slice '{}'", text));
  }
  return slices;
}

Shape SliceShape(const Shape& whole, const std::vector<AxisSlice>& slices,
                 const std::string& where) {
  Shape part = whole;
  for (const AxisSlice& slice : slices) {
    const auto refuse = [&](const std::string& reason) {
      throw Error(ErrorCode::kUsage, reason, fmt::format("--slice {}: {}", slice.text, where));
    };
    const std::optional<size_t> found = FindAxis(whole, slice.axis);
    if (!found) {
      refuse(fmt::format("'{}' is not one axis of the shape {}; write a label, or a number from 0",
                         slice.axis, ToString(whole)));
    }
    Axis& axis = part.axes[*found];
    if (axis.is_slice) refuse("the axis is given twice");
    if (slice.last >= axis.extent) {
      refuse(fmt::format("coordinate {} is outside of the shape {}", slice.last, ToString(whole)));
    }
    axis.first = slice.first;
    axis.extent = slice.last - slice.first + 1;
    axis.is_slice = true;
  }
  return part;
}

SlicedTensor::SlicedTensor(const TensorView& whole, const Shape& part)
    : TensorView(whole.info().dtype, part), whole_(whole) {
  const Shape& from = whole.info().shape;
  for (size_t a = part.axes.size(); a-- > 0;) {
    run_ *= part.axes[a].extent;
    if (part.axes[a].extent != from.axes[a].extent) break;
  }
}

int64_t SlicedTensor::InWhole(int64_t element) const {
  const Shape& from = whole_.info().shape;
  const std::vector<int64_t> at = info_.shape.Coordinates(element);
  int64_t index = 0;
  for (size_t a = 0; a < at.size(); ++a) {
    index = index * from.axes[a].extent + info_.shape.axes[a].first + at[a];
  }
  return index;
}

void SlicedTensor::Read(const std::string& name, int64_t first_element,
                        std::span<std::byte> out) const {
  const auto size = static_cast<int64_t>(SizeInBytes(info_.dtype));
  const int64_t end = first_element + static_cast<int64_t>(out.size()) / size;
  std::vector<std::byte> buffer;
  int64_t element = first_element;
  std::byte* to = out.data();
  while (element < end) {
    // Runs [element, stop) that one read takes, with the gaps between them.
    const int64_t from = InWhole(element);
    int64_t stop = std::min(end, (element / run_ + 1) * run_);
    int64_t span = stop - element;
    while (stop < end) {
      const int64_t next_stop = std::min(end, stop + run_);
      const int64_t next_span = InWhole(stop) + (next_stop - stop) - from;
      if (next_span * size > kReadBytes || next_span / (next_stop - element) >= kMostWaste) {
        break;
      }
      stop = next_stop;
      span = next_span;
    }
    if (span == stop - element) {
      const size_t bytes = static_cast<size_t>(span * size);
      whole_.Read(name, from, {to, bytes});
      to += bytes;
      element = stop;
      continue;
    }
    buffer.resize(static_cast<size_t>(span * size));
    whole_.Read(name, from, buffer);
    while (element < stop) {
      const int64_t run_end = std::min(stop, (element / run_ + 1) * run_);
      const size_t bytes = static_cast<size_t>((run_end - element) * size);
      std::memcpy(to, buffer.data() + (InWhole(element) - from) * size, bytes);
      to += bytes;
      element = run_end;
    }
  }
}

}  // namespace kvcheck
