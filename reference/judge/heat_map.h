// A picture of where an output is wrong: the largest |error| / tolerance over cells of two axes, as
// text of at most 72 columns. Cells keep a maximum, so maps merge in any order to the same picture.

#ifndef REFERENCE_JUDGE_HEAT_MAP_H_
#define REFERENCE_JUDGE_HEAT_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/shape.h"

namespace kvcheck {

// One axis of the map, cut into cells of equal width (the last may be narrower).
struct HeatAxis {
  std::string label;  // "hq", "row", "dv"; "axis 1" when unnamed
  int64_t extent = 1;
  int64_t width = 1;  // coordinates per cell
  int64_t first = 0;  // coordinate in the whole, of a slice
  int64_t Cells() const { return (extent + width - 1) / width; }
  bool operator==(const HeatAxis&) const = default;
};

// first: coordinate of the first cell, in texts.
HeatAxis MakeHeatAxis(std::string label, int64_t extent, int64_t most_cells, int64_t first = 0);

class HeatMap {
 public:
  HeatMap() = default;
  HeatMap(HeatAxis down, HeatAxis across);

  // ratio: |error| over the tolerance; NaN counts as infinite.
  void Add(int64_t down, int64_t across, double ratio);
  void Merge(const HeatMap& other);
  bool empty() const { return cells_.empty(); }
  // -1 where nothing was judged.
  double At(int64_t down_cell, int64_t across_cell) const;
  const HeatAxis& down() const { return down_; }
  const HeatAxis& across() const { return across_; }
  bool operator==(const HeatMap&) const = default;

 private:
  HeatAxis down_;
  HeatAxis across_;
  std::vector<double> cells_;
};

// Lines of at most 72 columns, a legend last. blocks: UTF-8 shades in place of ASCII marks.
std::vector<std::string> Render(const HeatMap& map, bool blocks = false);

// The two maps of an output: rows x channels, and the two largest leading axes (head x token). A
// map with a single cell is empty.
struct HeatMaps {
  HeatMap rows_by_channel;
  HeatMap heads_by_token;
  int heads_axis = -1;
  int token_axis = -1;

  HeatMaps() = default;
  HeatMaps(const Shape& shape, int64_t row_length);
  // ratios: of consecutive rows of the output; negative where not judged.
  void AddRows(const Shape& shape, int64_t first_row, int64_t row_count, const double* ratios,
               int64_t row_length);
  void Merge(const HeatMaps& other);
  bool operator==(const HeatMaps&) const = default;

 private:
  void AddChannels(int64_t first_row, int64_t row_count, const double* ratios, int64_t row_length);
  void AddHeads(const Shape& shape, int64_t first_row, int64_t row_count, const double* ratios,
                int64_t row_length);
};

// "hq" of axis Hq; "axis 1" of an unnamed one.
std::string AxisLabel(const Shape& shape, size_t axis);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_HEAT_MAP_H_
