// The second pass over an output: what the first one did not ask for, and only where it is needed.
// The terms of the bound for the worst element; fault directions and likenesses for a failing
// output.

#ifndef REFERENCE_JUDGE_EXPLAIN_H_
#define REFERENCE_JUDGE_EXPLAIN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/accumulate.h"
#include "reference/judge/hints.h"
#include "reference/judge/shifts.h"
#include "reference/judge/verdict.h"

namespace kvcheck {

// Failing tiles that are asked again for their fault directions, in their order.
inline constexpr int64_t kHintTiles = 8;

// One output of a case: everything that the second pass looks at.
struct OutputView {
  const ExpectedSource& source;
  const ObservedSource& observed;
  const SpecialPolicy& special;
  int output = 0;
  bool noise = false;  // TileRequest::noise

  const OutputInfo& info() const { return source.Outputs()[static_cast<size_t>(output)]; }
};

// Rows that fail, all of them or, of more than kMost, a part that is spread over them.
class FailingRowList {
 public:
  static constexpr size_t kMost = 4096;
  void Add(const FailureRun& run, int64_t row_length);
  const std::vector<int64_t>& rows() const { return rows_; }
  bool is_part() const { return stride_ > 1; }

 private:
  std::vector<int64_t> rows_;
  int64_t last_ = -1;
  int64_t count_ = 0;
  int64_t stride_ = 1;
};

// What the errors say about the inputs that the rows were computed from; nullopt: the source knows
// nothing of them.
std::optional<SeenKeys> SeenKeysOf(const OutputView& view, const FailingRowList& failing);

// The probable cause in a sentence, or that there is none with the keys that stand out.
std::string HintOf(const SeenKeys& seen);

// The terms of the bound at the worst element, largest first.
std::vector<TermShare> TermsAt(const OutputView& view, const WorstElement& worst);

// The errors of the failing rows against the named directions.
std::vector<DirectionFit> FitDirections(const OutputView& view, const std::vector<TileSpan>& spans);

// Expected and observed values around an element. spans: all tiles of the output.
Window LoadWindow(const OutputView& view, const std::vector<TileSpan>& spans, int64_t around);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_EXPLAIN_H_
