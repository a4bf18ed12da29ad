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
    size_t k = 0;
    bool is_finer = false;
    for (ExpectedTile& tile : source.Tiles(index, request)) {
      if (!is_used(tile)) continue;
      KVCHECK_CHECK(k < settled.size(), "another precision gave more tiles");
      is_finer = is_finer || tile.precision > settled[k].tile.precision;
      const OutputInfo& info = infos[static_cast<size_t>(tile.output)];
      Replace(info, std::move(tile), options.special, &settled[k++]);
    }
    KVCHECK_CHECK(k == settled.size(), "another precision gave fewer tiles");
    if (!is_finer) break;  // the source knows nothing more precise
  }
  return settled;
}

}  // namespace kvcheck
