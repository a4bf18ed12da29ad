#include "reference/judge/ladder.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

Precision Next(Precision precision) {
  return static_cast<Precision>(static_cast<int>(precision) + 1);
}

std::optional<int64_t> FindContradiction(const ExpectedTile& coarse, const ExpectedTile& fine,
                                         int64_t row_length) {
  for (size_t i = 0; i < fine.value.size(); ++i) {
    const size_t row = i / static_cast<size_t>(row_length);
    if (!fine.standing.empty() && fine.standing[row] != Standing::kJudged) continue;
    if (!fine.undefined.empty() && fine.undefined[i] != 0) continue;
    const bool same_kind = std::isfinite(coarse.value[i]) == std::isfinite(fine.value[i]);
    if (same_kind && !std::isfinite(fine.value[i])) continue;
    if (!same_kind || !IsWithin(ExpectedParts(coarse, i), ExpectedParts(fine, i),
                                ReferenceBoundAt(coarse, i), ReferenceBoundAt(fine, i))) {
      return static_cast<int64_t>(i);
    }
  }
  return std::nullopt;
}

// Whether no row of a tile is in the sample, so that nothing observed is needed.
bool IsLeftOut(const ExpectedTile& tile) {
  return !tile.standing.empty() &&
         std::all_of(tile.standing.begin(), tile.standing.end(),
                     [](Standing standing) { return standing == Standing::kLeftOut; });
}

SettledTile Judged(const OutputInfo& info, ExpectedTile tile, ObservedTile observed,
                   const SpecialPolicy& policy) {
  CheckTile(info, tile);
  TakeGiven(observed, &tile);
  SettledTile settled;
  settled.evaluation = Evaluate(info, tile, observed, policy);
  settled.tile = std::move(tile);
  settled.observed = std::move(observed);
  return settled;
}

void Replace(const OutputInfo& info, ExpectedTile finer, const SpecialPolicy& policy,
             SettledTile* settled) {
  ExpectedTile& coarse = settled->tile;
  KVCHECK_CHECK(finer.output == coarse.output && finer.first_row == coarse.first_row &&
                    finer.row_count == coarse.row_count,
                "another precision gave other rows");
  CheckTile(info, finer);
  TakeGiven(settled->observed, &finer);
  if (!settled->contradiction.has_value()) {
    settled->contradiction = FindContradiction(coarse, finer, info.row_length);
  }
  finer.statistics = std::move(coarse.statistics);
  settled->tile = std::move(finer);
  settled->evaluation = Evaluate(info, settled->tile, settled->observed, policy);
}

// Rows of a tile that are asked again: all that a finer step may decide; of failures, which stand,
// the first and the largest.
std::vector<int64_t> RowsInDoubt(const OutputInfo& info, const SettledTile& settled) {
  const Evaluation& evaluation = settled.evaluation;
  const auto length = static_cast<size_t>(info.row_length);
  std::vector<int64_t> rows;
  std::optional<size_t> first, largest;
  double ratio = 0;
  for (size_t row = 0; row < evaluation.finer.size(); ++row) {
    if (evaluation.finer[row] == FinerReason::kNone) continue;
    if (evaluation.finer[row] == FinerReason::kDecides) {
      rows.push_back(settled.tile.first_row + static_cast<int64_t>(row));
      continue;
    }
    if (!first) first = row;
    for (size_t i = row * length; i < (row + 1) * length; ++i) {
      if (largest && !(evaluation.ratio[i] > ratio)) continue;
      ratio = evaluation.ratio[i];
      largest = row;
    }
  }
  if (first) rows.push_back(settled.tile.first_row + static_cast<int64_t>(*first));
  if (largest && largest != first) {
    rows.push_back(settled.tile.first_row + static_cast<int64_t>(*largest));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

// Whether rows were left out that the coarser tile has.
bool LeavesOut(const ExpectedTile& finer, const ExpectedTile& coarse) {
  for (size_t row = 0; row < finer.standing.size(); ++row) {
    const bool had = coarse.standing.empty() || coarse.standing[row] != Standing::kLeftOut;
    if (had && finer.standing[row] == Standing::kLeftOut) return true;
  }
  return false;
}

template <typename T>
void CopyRow(const std::vector<T>& from, size_t row, size_t length, size_t rows,
             std::vector<T>* to) {
  if (from.empty() && to->empty()) return;
  to->resize(rows * length);
  for (size_t i = row * length; i < (row + 1) * length; ++i) {
    (*to)[i] = from.empty() ? T() : from[i];
  }
}

// The rows that the finer tile has in place of the coarse ones.
void ReplaceRows(const OutputInfo& info, ExpectedTile finer, const SpecialPolicy& policy,
                 SettledTile* settled) {
  ExpectedTile& tile = settled->tile;
  const auto rows = static_cast<size_t>(tile.row_count);
  const auto length = static_cast<size_t>(info.row_length);
  TakeGiven(settled->observed, &finer);
  if (settled->row_precision.empty()) settled->row_precision.assign(rows, tile.precision);
  if (!settled->contradiction.has_value()) {
    settled->contradiction = FindContradiction(tile, finer, info.row_length);
  }
  const auto is_new = [&](size_t row) { return finer.standing[row] != Standing::kLeftOut; };
  std::erase_if(tile.alternatives, [&](const Alternative& alternative) {
    return is_new(static_cast<size_t>(alternative.element) / length);
  });
  for (const Alternative& alternative : finer.alternatives) {
    if (is_new(static_cast<size_t>(alternative.element) / length)) {
      tile.alternatives.push_back(alternative);
    }
  }
  std::stable_sort(
      tile.alternatives.begin(), tile.alternatives.end(),
      [](const Alternative& a, const Alternative& b) { return a.element < b.element; });
  if (tile.standing.empty()) tile.standing.assign(rows, Standing::kJudged);
  for (size_t row = 0; row < rows; ++row) {
    if (!is_new(row)) continue;
    tile.standing[row] = finer.standing[row];
    CopyRow(finer.standing_reason, row, 1, rows, &tile.standing_reason);
    CopyRow(finer.may_overflow, row, 1, rows, &tile.may_overflow);
    CopyRow(finer.value, row, length, rows, &tile.value);
    CopyRow(finer.value_lo, row, length, rows, &tile.value_lo);
    CopyRow(finer.bound, row, length, rows, &tile.bound);
    CopyRow(finer.proven_bound, row, length, rows, &tile.proven_bound);
    CopyRow(finer.reference_bound, row, length, rows, &tile.reference_bound);
    CopyRow(finer.mass, row, length, rows, &tile.mass);
    CopyRow(finer.undefined, row, length, rows, &tile.undefined);
    if (!tile.accepted.empty()) tile.accepted[row] = 0;
    settled->row_precision[row] = finer.precision;
  }
  tile.precision = std::max(tile.precision, finer.precision);
  settled->evaluation = Evaluate(info, tile, settled->observed, policy);
}

}  // namespace

std::vector<SettledTile> Settle(const ExpectedSource& source, const ObservedSource& observed,
                                const LadderOptions& options, int64_t index) {
  const std::vector<OutputInfo>& infos = source.Outputs();
  const auto is_used = [&](const ExpectedTile& tile) {
    KVCHECK_CHECK(tile.output >= 0 && static_cast<size_t>(tile.output) < infos.size(),
                  "a tile of an output that was not announced");
    return options.use[static_cast<size_t>(tile.output)] != 0 && tile.row_count > 0;
  };
  TileRequest request;
  request.precision = options.first;
  request.statistics = options.statistics;
  request.noise = options.noise;
  request.accepts = [&](int output, int64_t row, std::span<const double> value,
                        std::span<const double> tolerance) {
    const auto index_of = static_cast<size_t>(output);
    if (options.use[index_of] == 0) return true;
    const ObservedTile seen = ReadObserved(observed, infos[index_of], row, 1);
    for (size_t c = 0; c < value.size(); ++c) {
      // The factor is that of the roundings here.
      if (!(std::fabs(seen.got[c] - value[c]) <= tolerance[c] * (1 - 0x1p-50))) return false;
      if (!seen.no_code.empty() && seen.no_code[c] != 0) return false;
    }
    return seen.got_low.empty();
  };
  std::vector<SettledTile> settled;
  for (ExpectedTile& tile : source.Tiles(index, request)) {
    if (!is_used(tile)) continue;
    const OutputInfo& info = infos[static_cast<size_t>(tile.output)];
    ObservedTile rows;
    if (IsLeftOut(tile)) {
      rows.got.resize(tile.value.size());
    } else {
      rows = ReadObserved(observed, info, tile.first_row, tile.row_count);
    }
    settled.push_back(Judged(info, std::move(tile), std::move(rows), options.special));
  }
  const auto wants_finer = [](const SettledTile& tile) { return tile.evaluation.wants_finer; };
  request.statistics = false;
  request.accepts = {};
  const Precision highest = std::min(options.highest, source.FinestPrecision());
  while (request.precision < highest && std::any_of(settled.begin(), settled.end(), wants_finer)) {
    request.precision = Next(request.precision);
    std::vector<std::vector<int64_t>> in_doubt(infos.size());
    for (const SettledTile& tile : settled) {
      const auto output = static_cast<size_t>(tile.tile.output);
      in_doubt[output] = RowsInDoubt(infos[output], tile);
    }
    const RowSample sample(std::move(in_doubt));
    request.sample = &sample;
    size_t k = 0;
    bool is_finer = false;
    for (ExpectedTile& tile : source.Tiles(index, request)) {
      if (!is_used(tile)) continue;
      KVCHECK_CHECK(k < settled.size(), "another precision gave more tiles");
      is_finer = is_finer || tile.precision > settled[k].tile.precision;
      const OutputInfo& info = infos[static_cast<size_t>(tile.output)];
      SettledTile& coarse = settled[k++];
      if (LeavesOut(tile, coarse.tile)) {
        ReplaceRows(info, std::move(tile), options.special, &coarse);
      } else {
        Replace(info, std::move(tile), options.special, &coarse);
      }
    }
    KVCHECK_CHECK(k == settled.size(), "another precision gave fewer tiles");
    if (!is_finer) break;  // the source knows nothing more precise
  }
  return settled;
}

}  // namespace kvcheck
