// Which other reading of a case explains a failing output: each row that fails must be what the
// reading expects, all of it, by bounds that prove something. A reading that explains the worst
// element alone, or by being vacuous, would mislead.

#ifndef REFERENCE_JUDGE_READINGS_H_
#define REFERENCE_JUDGE_READINGS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/accumulate.h"
#include "reference/judge/explain.h"
#include "reference/spec/declared_change.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// Readings that are asked for a whole output at most; of more, the first.
inline constexpr size_t kMostReadings = 8;

// Rows that refute most readings, and tiles that the others are asked of after the first one: an
// explanation costs no more however large the output is.
inline constexpr size_t kScreenRows = 2;
inline constexpr size_t kReadingTiles = 16;

// Tiles that a completion is held against where no element of the output fails by itself.
inline constexpr size_t kCompletionTiles = 4;

struct ExplainedReading {
  std::string name;
  std::string text;
  std::optional<DeclaredChange> declared;  // in place of both
};

// What the question may have left out, as its source says it (ExpectedSource::Completions): the
// first under which each failing row is what is expected, beyond chance, and all of the outputs
// pass; "": none. row: a failing one of the output.
std::string ExplainingCompletion(const OutputView& view, const std::vector<TileSpan>& spans,
                                 int64_t row,
                                 const std::function<bool(const ExpectedSource& source)>& passes);

// In the order of the source. passes: whether all of the output passes where a reading is all that
// is expected, and no other output is against it, which a declaration must.
std::vector<ExplainedReading> ExplainingReadings(
    const OutputView& view, const std::vector<TileSpan>& spans,
    const std::function<bool(const ExpectedSource& source)>& passes);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_READINGS_H_
