// The verdict on every element of one tile: special values first, then the difference against the
// bound or code against code, then the alternatives that the reference lists.

#ifndef REFERENCE_JUDGE_EVALUATE_H_
#define REFERENCE_JUDGE_EVALUATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/exact_compare.h"
#include "reference/judge/metrics.h"
#include "reference/judge/special_values.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// A reference whose own error bound exceeds this share of the bound is asked again, more precisely:
// it could move the verdict of one element in a thousand at most (design: precision ladder).
inline constexpr double kReferenceShare = 0x1p-10;

// The observed values of a tile's rows.
struct ObservedTile {
  std::vector<std::byte> bytes;
  std::vector<double> got;
  std::vector<double> got_low;   // 64-bit integers only: what got leaves out; empty otherwise
  std::vector<uint8_t> no_code;  // e2m1fn and bool: bytes that are no code; empty otherwise
};

ObservedTile ReadObserved(const ObservedSource& source, const OutputInfo& info, int64_t first_row,
                          int64_t row_count);

enum class ElementState : uint8_t { kNotJudged, kFree, kAlternative, kPassed, kFailed };

// Consecutive elements that are all ordinary pairs of finite numbers, passed or failed, with a
// finite error.
struct PlainRun {
  size_t begin = 0;
  size_t end = 0;  // at most kRun elements
  int64_t failed = 0;
  double largest_ratio = 0;
  double largest_error = 0;
};

// Why a row is asked again, the stronger reason last.
enum class FinerReason : uint8_t {
  kNone,
  kConfirms,  // a failure is proved already; one more step guards against a wrong reference
  kDecides,   // the reference's own error is too large beside the bound, or decides a verdict
};

struct Evaluation {
  std::vector<ElementState> state;
  std::vector<PairKind> kind;
  std::vector<double> error;  // got - expected; not finite where either is not
  std::vector<double> ratio;  // |error| over the tolerance; infinite for other failures, -1 where
                              // nothing was judged, or the row was accepted at a smaller bound
  std::vector<int64_t> alternatives;  // accepted, by reason
  int64_t unbounded_elements = 0;     // of judged rows, with an infinite bound
  int64_t undefined_elements = 0;     // of judged rows, without a defined value
  int64_t on_reference_bound = 0;
  int64_t unresolved = 0;
  std::vector<PlainRun> plain_runs;  // ascending; other elements may be like these too
  // A more precise reference could change or must confirm a verdict; and in which rows.
  bool wants_finer = false;
  std::vector<FinerReason> finer;
};

// Conformance. The code of the expected value: of tile.codes, or of value + value_lo when that is
// exactly a value of the type, else nullopt.
std::optional<uint64_t> ExpectedCode(DType dtype, const ExpectedTile& tile, size_t element);
uint64_t CodeAt(DType dtype, const std::vector<std::byte>& bytes, size_t element);
// The value of a code and the code: "1.5 (0x3fc0)"; integers without the code.
std::string CodeText(DType dtype, uint64_t code);

Parts ExpectedParts(const ExpectedTile& tile, size_t element);
Parts GotParts(const ObservedTile& observed, size_t element);
double ReferenceBoundAt(const ExpectedTile& tile, size_t element);

// Sets what is expected of elements where that depends on the observed ones.
void TakeGiven(const ObservedTile& observed, ExpectedTile* tile);

// A check that the vectors of a tile have the sizes that its rows ask for.
void CheckTile(const OutputInfo& info, const ExpectedTile& tile);

// Precondition: TakeGiven.
Evaluation Evaluate(const OutputInfo& info, const ExpectedTile& tile, const ObservedTile& observed,
                    const SpecialPolicy& policy);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_EVALUATE_H_
