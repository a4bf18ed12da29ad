#include "reference/judge/failure_tally.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "reference/judge/heat_map.h"

namespace kvcheck {
namespace {

constexpr int64_t kMostCells = int64_t{1} << 16;
constexpr size_t kWholeRowsKept = 8;
// A longer list of coordinates is no pattern.
constexpr size_t kMostListed = 6;

std::string Ordinal(int64_t n) {
  if (n == 2) return "second";
  if (n == 3) return "third";
  return fmt::format("{}th", n);
}

std::vector<int64_t> FailingCells(const AxisTally& tally) {
  std::vector<int64_t> cells;
  for (size_t i = 0; i < tally.failed.size(); ++i) {
    if (tally.failed[i] > 0) cells.push_back(static_cast<int64_t>(i));
  }
  return cells;
}

// The common step of the cells, 0 when they have none.
int64_t CommonStep(const std::vector<int64_t>& cells) {
  if (cells.size() < 2) return 0;
  const int64_t step = cells[1] - cells[0];
  for (size_t i = 2; i < cells.size(); ++i) {
    if (cells[i] - cells[i - 1] != step) return 0;
  }
  return step;
}

}  // namespace

FailureTally::FailureTally(const Shape& shape, int64_t row_length)
    : shape_(shape), row_length_(std::max<int64_t>(1, row_length)) {
  for (const Axis& axis : shape.axes) {
    AxisTally tally;
    tally.extent = axis.extent;
    tally.first_coordinate = axis.first;
    tally.is_slice = axis.is_slice;
    while (((axis.extent - 1) >> tally.cell_bits) >= kMostCells) ++tally.cell_bits;
    const int64_t cells = axis.extent > 0 ? ((axis.extent - 1) >> tally.cell_bits) + 1 : 0;
    tally.failed.resize(static_cast<size_t>(cells));
    axes_.push_back(std::move(tally));
  }
}

void FailureTally::Add(const FailureRun& run) {
  elements_ += run.count;
  int64_t first = run.first;
  int64_t left = run.count;
  while (left > 0) {
    const int64_t row = first / row_length_;
    const int64_t here = std::min(left, (row + 1) * row_length_ - first);
    AddInRow(row, first, here);
    first += here;
    left -= here;
  }
}

void FailureTally::AddInRow(int64_t row, int64_t first, int64_t count) {
  if (row != current_row_) {
    current_row_ = row;
    in_current_row_ = 0;
    ++rows_;
  }
  in_current_row_ += count;
  if (in_current_row_ == row_length_) {
    ++whole_rows_;
    if (first_whole_rows_.size() < kWholeRowsKept) first_whole_rows_.push_back(row);
  }
  const std::vector<int64_t> at = shape_.Coordinates(first);
  for (size_t a = 0; a < at.size(); ++a) {
    AxisTally& tally = axes_[a];
    if (a + 1 == at.size()) {
      for (int64_t c = at[a]; c < at[a] + count; ++c) {
        ++tally.failed[static_cast<size_t>(c >> tally.cell_bits)];
      }
    } else {
      tally.failed[static_cast<size_t>(at[a] >> tally.cell_bits)] += count;
    }
  }
}

std::optional<std::string> DescribeCoordinates(const std::string& label, const AxisTally& tally) {
  std::vector<int64_t> cells = FailingCells(tally);
  const int64_t all = static_cast<int64_t>(tally.failed.size());
  const int64_t count = static_cast<int64_t>(cells.size());
  if (count == 0 || count == all) return std::nullopt;
  const bool from_first = cells.front() == 0 && !tally.is_slice;
  const int64_t end = std::min(tally.extent, (cells.back() + 1) << tally.cell_bits);
  const bool to_last = end == tally.extent && !tally.is_slice;
  const int64_t first = tally.first_coordinate + (cells.front() << tally.cell_bits);
  const int64_t last = tally.first_coordinate + end - 1;
  if (count == 1 && first == last) {
    return to_last && tally.extent > 2 ? fmt::format("the last {} ({}={})", label, label, last)
                                       : fmt::format("{}={}", label, first);
  }
  if (cells.back() - cells.front() + 1 == count) {
    if (to_last) return fmt::format("{} >= {}", label, first);
    if (from_first) return fmt::format("{} <= {}", label, last);
    return fmt::format("{} = {}..{}", label, first, last);
  }
  if (tally.cell_bits > 0) return std::nullopt;
  if (const int64_t step = CommonStep(cells); step > 1 && count > 2) {
    const bool throughout =
        cells.front() < step && cells.back() + step >= tally.extent && !tally.is_slice;
    return throughout ? fmt::format("every {} {} (from {})", Ordinal(step), label, first)
                      : fmt::format("every {} {} of {}..{}", Ordinal(step), label, first, last);
  }
  if (cells.size() <= kMostListed) {
    for (int64_t& cell : cells) cell += tally.first_coordinate;
    return fmt::format("{} in {{{}}}", label, fmt::join(cells, ", "));
  }
  return std::nullopt;
}

std::vector<std::string> DescribeFailures(const FailureTally& tally, const Shape& shape,
                                          int64_t row_length) {
  std::vector<std::string> lines;
  if (tally.elements() == 0) return lines;
  const int64_t elements = shape.ElementCount();
  const int64_t rows = row_length > 0 ? elements / row_length : 0;
  if (row_length > 1) {
    lines.push_back(fmt::format("{} of {} elements fail, in {} of {} rows, {} of them wholly",
                                tally.elements(), elements, tally.rows(), rows,
                                tally.whole_rows()));
  } else {
    lines.push_back(fmt::format("{} of {} elements fail", tally.elements(), elements));
  }
  std::vector<std::string> where;
  int64_t box = 1;
  for (size_t a = 0; a < tally.axes().size(); ++a) {
    const AxisTally& axis = tally.axes()[a];
    const std::string label = AxisLabel(shape, a);
    if (auto text = DescribeCoordinates(label, axis)) {
      where.push_back(*text);
      const int64_t cells = static_cast<int64_t>(FailingCells(axis).size());
      box *= std::min(axis.extent, cells << axis.cell_bits);
    } else {
      box *= axis.extent;
    }
  }
  if (!where.empty()) {
    const double percent = 100.0 * static_cast<double>(tally.elements()) / static_cast<double>(box);
    const std::string share = tally.elements() == box ? "everything there"
                              : percent > 99          ? "more than 99 % of what is there"
                                             : fmt::format("{:.2g} % of what is there", percent);
    lines.push_back(fmt::format("all failures at {}, {}", fmt::join(where, ", "), share));
  } else if (tally.elements() == elements) {
    lines.push_back("everything fails");
  }
  // An axis without a pattern may still have most of its failures in one place.
  for (size_t a = 0; a < tally.axes().size(); ++a) {
    const AxisTally& axis = tally.axes()[a];
    if (axis.failed.size() < 3 || axis.cell_bits > 0) continue;
    const auto most = std::max_element(axis.failed.begin(), axis.failed.end());
    const int64_t others = tally.elements() - *most;
    if (others > 0 && *most > others) {
      lines.push_back(
          fmt::format("{}={} holds {:.0f} % of the failures", AxisLabel(shape, a),
                      axis.first_coordinate + (most - axis.failed.begin()),
                      100.0 * static_cast<double>(*most) / static_cast<double>(tally.elements())));
    }
  }
  if (row_length > 1 && tally.whole_rows() > 0 && tally.whole_rows() == tally.rows() &&
      tally.rows() * 8 <= rows) {
    std::vector<std::string> names;
    for (const int64_t row : tally.first_whole_rows()) {
      names.push_back(ElementName(shape, row * row_length));
    }
    lines.push_back(fmt::format(
        "garbage in whole rows, the others are right: rows of {}{}", fmt::join(names, " "),
        tally.whole_rows() > static_cast<int64_t>(names.size()) ? " ..." : ""));
  }
  return lines;
}

}  // namespace kvcheck
