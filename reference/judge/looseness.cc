#include "reference/judge/looseness.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/judge/ordered_parallel.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

void AddTile(const OutputInfo& info, const ExpectedTile& tile, const ToleranceRule& rule,
             Looseness* found) {
  const std::vector<double> tolerances = RuleBounds(rule, info.dtype, tile.value);
  const size_t length = static_cast<size_t>(info.row_length);
  for (size_t i = 0; i < tile.value.size(); ++i) {
    if (!tile.standing.empty() && tile.standing[i / length] != Standing::kJudged) continue;
    if (!tile.undefined.empty() && tile.undefined[i] != 0) continue;
    const double bound = info.claim == Claim::kConformance ? 0 : tile.bound[i];
    if (!std::isfinite(tile.value[i]) || !std::isfinite(bound)) continue;
    ++found->compared;
    if (!(tolerances[i] > bound)) continue;
    ++found->looser;
    const double ratio =
        bound == 0 ? std::numeric_limits<double>::infinity() : tolerances[i] / bound;
    if (!(ratio > found->ratio)) continue;
    found->ratio = ratio;
    found->element = tile.first_row * info.row_length + static_cast<int64_t>(i);
    found->tolerance = tolerances[i];
    found->bound = bound;
  }
}

}  // namespace

std::optional<Looseness> FindLooseness(const ExpectedSource& derived, int output,
                                       const ToleranceRule& rule, int threads) {
  if (std::holds_alternative<ExactRule>(rule)) return std::nullopt;
  if (std::holds_alternative<CodecRule>(rule) || std::holds_alternative<DerivedRule>(rule)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("'{}' is a derived bound itself", Print(rule)));
  }
  const OutputInfo& info = derived.Outputs()[static_cast<size_t>(output)];
  Looseness found;
  OrderedParallelFor(
      derived.TileCount(), threads,
      [&](int64_t index) {
        Looseness here;
        for (const ExpectedTile& tile : derived.Tiles(index, TileRequest{})) {
          if (tile.output == output) AddTile(info, tile, rule, &here);
        }
        return here;
      },
      [&](int64_t, const Looseness& here) {
        Looseness next = here.ratio > found.ratio ? here : found;
        next.looser = found.looser + here.looser;
        next.compared = found.compared + here.compared;
        found = next;
      });
  if (found.looser == 0) return std::nullopt;
  found.coordinates = ElementName(info.shape, found.element);
  return found;
}

}  // namespace kvcheck
