// What the tiles of one output add up to. Tiles are accumulated one by one, on any thread, and
// merged in their order.

#ifndef REFERENCE_JUDGE_ACCUMULATE_H_
#define REFERENCE_JUDGE_ACCUMULATE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/failure_tally.h"
#include "reference/judge/heat_map.h"
#include "reference/judge/ladder.h"
#include "reference/judge/metrics.h"
#include "reference/judge/statistics.h"
#include "reference/judge/verdict.h"

namespace kvcheck {

// Which rows a tile index covers, and what the second pass must know about them.
struct TileSpan {
  int64_t index = 0;
  int64_t first_row = 0;
  int64_t row_count = 0;
  int64_t failed = 0;
};

struct WorstElement {
  ElementReport report;  // without terms
  bool failed = false;
  int64_t tile_index = 0;
};

// Judged rows by what losing inputs would do to them.
struct SensitivityCounts {
  int64_t with_inputs = 0;
  int64_t showing = 0;  // losing some one input would show
  int64_t blind = 0;    // losing all but any one would not

  void Add(const SensitivityCounts& other) {
    with_inputs += other.with_inputs, showing += other.showing, blind += other.blind;
  }
};

struct OutputTally {
  JudgeCounts counts;
  std::vector<int64_t> alternatives;    // by reason
  std::vector<int64_t> not_judged;      // by reason
  std::vector<int64_t> unbounded_rows;  // by reason, of not_judged
  SpecialCounts special;
  MetricsAccumulator metrics;
  StatisticsAccumulator statistics;
  HeatMaps heat;
  std::optional<WorstElement> worst;
  int64_t with_share = 0;     // judged elements that have a bound / mass
  int64_t above_vacuous = 0;  // of these, above kVacuousShare and no less than the least fault
  int64_t pass_as_zero = 0;   // of with_share: 0 is inside the bound, and not expected
  bool names_faults = false;  // whether least faults are known
  int64_t vacuous_rows = 0;   // where elements have a mass that is not their value
  std::map<int, int64_t> vacuous_rows_of_group;  // where rows have groups
  int64_t first_vacuous_row = -1;
  int64_t loose = 0;       // of a chosen tolerance: above kVacuousShare, and not as expected
  int64_t ruled_rows = 0;  // of a chosen tolerance: those of more than one element
  int64_t loose_rows = 0;  // of these, with as many loose elements as others
  int64_t nonzero = 0;     // judged pairs of which one is not 0
  double detectable_sum = 0;
  int64_t detectable_count = 0;
  SensitivityCounts rows;
  int64_t rows_without_inputs = 0;                 // judged: fully masked queries
  std::map<int, SensitivityCounts> rows_of_group;  // where rows have groups
  std::array<int64_t, kPrecisions> rows_at{};
  std::string contradiction;  // coordinates of the first element
  std::vector<FailureRun> failures;
  TileSpan span;

  // Everything but failures and span, which the caller keeps per tile.
  void Merge(const OutputTally& other);
};

OutputTally TallyOf(const OutputInfo& info, const SettledTile& settled, int64_t tile_index);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_ACCUMULATE_H_
