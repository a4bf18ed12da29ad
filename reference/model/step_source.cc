#include "reference/model/step_source.h"

#include <utility>

namespace kvcheck {

StepSource::StepSource(std::vector<NamedStep> steps) : steps_(std::move(steps)) {
  for (const NamedStep& step : steps_) {
    OutputInfo info;
    info.name = step.name;
    info.dtype = DType::kFloat32;
    info.shape = Shape::Unnamed({step.values.value.rows, step.values.value.columns});
    info.row_length = step.values.value.columns;
    outputs_.push_back(std::move(info));
  }
}

std::vector<ExpectedTile> StepSource::Tiles(int64_t index, const TileRequest& request) const {
  const StepValues& step = steps_[static_cast<size_t>(index)].values;
  ExpectedTile tile;
  tile.output = static_cast<int>(index);
  tile.row_count = step.value.rows;
  tile.precision = request.precision;
  tile.value = step.value.values;
  tile.bound = step.bound.values;
  tile.reference_bound = step.own.values;
  tile.mass = step.mass.values;
  std::vector<ExpectedTile> tiles;
  tiles.push_back(std::move(tile));
  return tiles;
}

}  // namespace kvcheck
