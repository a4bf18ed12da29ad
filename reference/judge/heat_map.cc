#include "reference/judge/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kMostAcross = 56;  // beside a margin of 16 columns
constexpr int64_t kMostDown = 24;
constexpr size_t kMargin = 16;

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
  cell = std::max(cell, std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio);
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

void HeatMaps::AddRow(const Shape& shape, int64_t row, const double* ratios, int64_t row_length) {
  double largest = -1;
  for (int64_t c = 0; c < row_length; ++c) {
    const double ratio =
        std::isnan(ratios[c]) ? std::numeric_limits<double>::infinity() : ratios[c];
    largest = std::max(largest, ratio);
    if (!rows_by_channel.empty() && ratio >= 0) rows_by_channel.Add(row, c, ratio);
  }
  if (heads_by_token.empty() || largest < 0) return;
  const std::vector<int64_t> at = shape.Coordinates(row * row_length);
  heads_by_token.Add(at[static_cast<size_t>(heads_axis)], at[static_cast<size_t>(token_axis)],
                     largest);
}

void HeatMaps::Merge(const HeatMaps& other) {
  if (other.heads_axis < 0 && other.rows_by_channel.empty()) return;
  if (!rows_by_channel.empty()) rows_by_channel.Merge(other.rows_by_channel);
  if (!heads_by_token.empty()) heads_by_token.Merge(other.heads_by_token);
}

}  // namespace kvcheck
