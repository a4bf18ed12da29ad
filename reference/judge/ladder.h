// The precision ladder: a tile is recomputed one Precision higher as long as the reference's own
// error could decide about one of its elements, and once where an element would fail.

#ifndef REFERENCE_JUDGE_LADDER_H_
#define REFERENCE_JUDGE_LADDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/judge/evaluate.h"

namespace kvcheck {

struct LadderOptions {
  Precision first = Precision::kDouble;
  Precision highest = Precision::kOracle50;
  bool statistics = false;  // asked for with the first step
  bool noise = false;       // TileRequest::noise
  SpecialPolicy special;
  std::vector<uint8_t> use;  // per output: whether its tiles are judged
};

// A tile with its verdicts at the precision that settled them. tile.statistics is that of the first
// step.
struct SettledTile {
  ExpectedTile tile;
  std::vector<Precision> row_precision;  // where rows differ; empty: tile.precision
  ObservedTile observed;
  Evaluation evaluation;
  // The first element (within the tile) whose values at two precisions differ by more than their
  // own error bounds: a fault of the reference.
  std::optional<int64_t> contradiction;
};

std::vector<SettledTile> Settle(const ExpectedSource& source, const ObservedSource& observed,
                                const LadderOptions& options, int64_t index);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_LADDER_H_
