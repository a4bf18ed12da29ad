#include "reference/judge/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

#include "reference/judge/run_checks.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kMostAcross = 56;  // beside a margin of 16 columns
constexpr int64_t kMostDown = 24;
constexpr size_t kMargin = 16;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Shade {
  double up_to;
  std::string_view ascii;
  std::string_view block;
};

// 1 is the tolerance: the first three shades pass.
constexpr std::array<Shade, 6> kShades = {{{0.125, ".", "·"},
                                           {0.5, ":", "░"},
                                           {1, "-", "▒"},
                                           {16, "*", "▓"},
                                           {std::numeric_limits<double>::max(), "#", "█"},
                                           {std::numeric_limits<double>::infinity(), "!", "╳"}}};

std::string_view MarkOf(double ratio, bool blocks) {
  if (ratio < 0) return " ";
  for (const Shade& shade : kShades) {
    if (ratio <= shade.up_to) return blocks ? shade.block : shade.ascii;
  }
  return "!";
}

// The largest of some ratios, -1 when none was judged; NaN counts as infinite.
double Largest(const double* ratios, int64_t count) {
  const size_t size = static_cast<size_t>(count);
  uint64_t nan = 0;
  for (size_t i = 0; i < size; ++i) nan |= std::isnan(ratios[i]) ? 1 : 0;
  return nan != 0 ? kInfinity : LargestOf(-1, size, [&](size_t i) { return ratios[i]; });
}

std::string CellLabel(const HeatAxis& axis, int64_t cell) {
  const int64_t first = cell * axis.width;
  const int64_t last = std::min(axis.extent, first + axis.width) - 1;
  return first == last ? fmt::format("{}={}", axis.label, axis.first + first)
                       : fmt::format("{}={}-{}", axis.label, axis.first + first, axis.first + last);
}

}  // namespace

std::string AxisLabel(const Shape& shape, size_t axis) {
  std::string label = shape.axes[axis].name;
  if (label.empty()) return fmt::format("axis {}", axis);
  for (char& c : label) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return label;
}

HeatAxis MakeHeatAxis(std::string label, int64_t extent, int64_t most_cells, int64_t first) {
  return {std::move(label), extent, std::max<int64_t>(1, (extent + most_cells - 1) / most_cells),
          first};
}

HeatMap::HeatMap(HeatAxis down, HeatAxis across)
    : down_(std::move(down)),
      across_(std::move(across)),
      cells_(static_cast<size_t>(down_.Cells() * across_.Cells()), -1.0) {}

void HeatMap::Add(int64_t down, int64_t across, double ratio) {
  double& cell =
      cells_[static_cast<size_t>(down / down_.width * across_.Cells() + across / across_.width)];
  cell = std::max(cell, std::isnan(ratio) ? kInfinity : ratio);
}

void HeatMap::Merge(const HeatMap& other) {
  KVCHECK_CHECK(cells_.size() == other.cells_.size(), "heat maps of different sizes");
  for (size_t i = 0; i < cells_.size(); ++i) cells_[i] = std::max(cells_[i], other.cells_[i]);
}

double HeatMap::At(int64_t down_cell, int64_t across_cell) const {
  return cells_[static_cast<size_t>(down_cell * across_.Cells() + across_cell)];
}

std::vector<std::string> Render(const HeatMap& map, bool blocks) {
  std::vector<std::string> lines;
  if (map.empty()) return lines;
  const HeatAxis& down = map.down();
  const HeatAxis& across = map.across();
  lines.push_back(fmt::format("{:{}}{} {}..{}, {} per column", "", kMargin, across.label,
                              across.first, across.first + across.extent - 1, across.width));
  for (int64_t y = 0; y < down.Cells(); ++y) {
    // A label is cut rather than shifting the picture.
    std::string line = fmt::format("{:>{}.{}} ", CellLabel(down, y), kMargin - 1, kMargin - 1);
    for (int64_t x = 0; x < across.Cells(); ++x) line += MarkOf(map.At(y, x), blocks);
    lines.push_back(std::move(line));
  }
  std::string legend = fmt::format("{:{}}error/tolerance", "", kMargin);
  for (const auto& [shade, text] :
       {std::pair{0, "<=1/8"}, {1, "<=1/2"}, {2, "<=1"}, {3, "<=16"}, {4, ">16"}, {5, "inf"}}) {
    const Shade& s = kShades[static_cast<size_t>(shade)];
    legend += fmt::format(" {}{}", blocks ? s.block : s.ascii, text);
  }
  lines.push_back(std::move(legend));
  return lines;
}

HeatMaps::HeatMaps(const Shape& shape, int64_t row_length) {
  const int64_t elements = shape.ElementCount();
  if (elements <= 1 || row_length <= 0) return;
  const bool has_channels = row_length > 1;
  if (has_channels) {
    rows_by_channel = HeatMap(MakeHeatAxis("row", elements / row_length, kMostDown),
                              MakeHeatAxis(AxisLabel(shape, shape.axes.size() - 1), row_length,
                                           kMostAcross, shape.axes.back().first));
  }
  // The two largest leading axes; of equal ones the later, which varies faster.
  const int leading = static_cast<int>(shape.axes.size()) - (has_channels ? 1 : 0);
  const auto largest = [&](int except) {
    int best = -1;
    for (int a = 0; a < leading; ++a) {
      const int64_t extent = shape.axes[static_cast<size_t>(a)].extent;
      if (a == except || extent <= 1) continue;
      if (best < 0 || extent >= shape.axes[static_cast<size_t>(best)].extent) best = a;
    }
    return best;
  };
  const int first = largest(-1);
  const int second = largest(first);
  if (first < 0 || second < 0) return;
  heads_axis = std::min(first, second);
  token_axis = std::max(first, second);
  const size_t h = static_cast<size_t>(heads_axis);
  const size_t t = static_cast<size_t>(token_axis);
  const auto axis = [&](size_t a, int64_t most_cells) {
    return MakeHeatAxis(AxisLabel(shape, a), shape.axes[a].extent, most_cells, shape.axes[a].first);
  };
  heads_by_token = HeatMap(axis(h, kMostDown), axis(t, kMostAcross));
}

void HeatMaps::AddRows(const Shape& shape, int64_t first_row, int64_t row_count,
                       const double* ratios, int64_t row_length) {
  if (!rows_by_channel.empty()) AddChannels(first_row, row_count, ratios, row_length);
  if (!heads_by_token.empty()) AddHeads(shape, first_row, row_count, ratios, row_length);
}

// The largest of each channel over the rows of a cell first, then the largest of a cell's channels.
void HeatMaps::AddChannels(int64_t first_row, int64_t row_count, const double* ratios,
                           int64_t row_length) {
  const int64_t rows_per_cell = rows_by_channel.down().width;
  const int64_t channels_per_cell = rows_by_channel.across().width;
  const size_t length = static_cast<size_t>(row_length);
  std::vector<double> largest(length);
  for (int64_t row = first_row; row < first_row + row_count;) {
    const int64_t end = std::min(first_row + row_count, (row / rows_per_cell + 1) * rows_per_cell);
    std::fill(largest.begin(), largest.end(), -1.0);
    const int64_t cell_row = row;
    for (; row < end; ++row) {
      const double* of_row = ratios + (row - first_row) * row_length;
      for (size_t c = 0; c < length; ++c) {
        largest[c] = !(of_row[c] <= largest[c]) ? of_row[c] : largest[c];  // takes NaN
        largest[c] = std::isnan(largest[c]) ? kInfinity : largest[c];
      }
    }
    for (int64_t c = 0; c < row_length; c += channels_per_cell) {
      const int64_t last = std::min(row_length, c + channels_per_cell);
      rows_by_channel.Add(cell_row, c, Largest(largest.data() + c, last - c));
    }
  }
}

void HeatMaps::AddHeads(const Shape& shape, int64_t first_row, int64_t row_count,
                        const double* ratios, int64_t row_length) {
  // Rows from one coordinate of an axis to the next.
  const auto stride = [&](int axis) {
    int64_t elements = 1;
    for (size_t a = static_cast<size_t>(axis) + 1; a < shape.axes.size(); ++a) {
      elements *= shape.axes[a].extent;
    }
    return elements / row_length;
  };
  const int64_t head_stride = stride(heads_axis);
  const int64_t token_stride = stride(token_axis);
  const HeatAxis& heads = heads_by_token.down();
  const HeatAxis& tokens = heads_by_token.across();
  for (int64_t row = first_row; row < first_row + row_count;) {
    const int64_t head = row / head_stride % heads.extent;
    const int64_t token = row / token_stride % tokens.extent;
    // The token axis follows the head axis: up to the end of the cell the head stays the same.
    const int64_t cell_end = std::min(tokens.extent, (token / tokens.width + 1) * tokens.width);
    const int64_t rows = std::min(first_row + row_count - row,
                                  (cell_end - token) * token_stride - row % token_stride);
    heads_by_token.Add(head, token,
                       Largest(ratios + (row - first_row) * row_length, rows * row_length));
    row += rows;
  }
}

void HeatMaps::Merge(const HeatMaps& other) {
  if (other.heads_axis < 0 && other.rows_by_channel.empty()) return;
  if (!rows_by_channel.empty()) rows_by_channel.Merge(other.rows_by_channel);
  if (!heads_by_token.empty()) heads_by_token.Merge(other.heads_by_token);
}

}  // namespace kvcheck
