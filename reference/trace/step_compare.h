// Judges what a cache shows after an operation: visible sets, retained tokens, stored bytes and the
// numbers that describe the cache. Tokens are recognised by the bytes of their stored vectors, K
// and V of every head, so that no order of columns is assumed and a swap of tokens, heads or of K
// and V shows. Everything is compared exactly. What an implementation cannot tell is not judged.

#ifndef REFERENCE_TRACE_STEP_COMPARE_H_
#define REFERENCE_TRACE_STEP_COMPARE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/cache_profile.h"
#include "reference/spec/expected_step.h"

namespace kvcheck {

// What broke. Names are part of the signature by which failures are recognised again.
enum class StepFault : uint8_t {
  kNone,
  kRows,             // another number of rows
  kLayout,           // another layout than the cache was made with
  kFormat,           // another format than the cache should have
  kQueries,          // a step of another length, or one that should have ended
  kPending,          // says wrongly whether a prefill is pending
  kOffset,           // tokens seen by a row
  kUnfedPadding,     // padding still to come
  kVisibleMissing,   // a query does not see a token that it must see
  kVisibleExtra,     // a query sees a token that it must not see
  kVisiblePadding,   // a query sees what is no token: padding, stale or foreign bytes
  kRetainedMissing,  // a token that some future query must see is gone
  kRetainedExtra,    // what is retained is no token of the row
  kTokenTwice,       // a token of the row stands in two columns
  kKvMismatch,       // a column holds K of one token and V of another
  kHeadMismatch,     // heads of a column hold different tokens
  kWrongPart,        // V where K belongs, or K where V belongs
  kWrongBytes,       // bytes that belong to no token
  kNeverForgets,     // a ring retains more than it may
  kSize,
  kEmpty,
  kTrimmable,
  kLiveBytes,
  kCapacity,
  kAccepted,       // an illegal call was carried out
  kRefused,        // a legal call was refused
  kTrimCount,      // trim gave back another number of tokens
  kAttention,      // attention is outside its bound
  kPlan,           // an answer of attention states a plan that cannot be
  kInputChanged,   // the caller's arrays were changed
  kResultChanged,  // what was returned earlier has changed
};

// "visible_missing", ...
std::string_view Name(StepFault fault);
// The property of the catalogue of faults that it breaks first: "P2" ... "" for kNone.
std::string_view PropertyOf(StepFault fault);

struct StepFailure {
  StepFault fault = StepFault::kNone;
  int64_t row = -1;
  int64_t query = -1;     // column of the last append
  int64_t position = -1;  // of the token in its row
  std::string message;    // "row 1: query 0 does not see token 3 (column 1 of row 1 of append 5)"
};

class StepComparer {
 public:
  // True when the view is what is expected; else *failure says what is wrong first.
  bool Compare(const ExpectedStep& expected, const StepView& view, const CacheProfile& profile,
               StepFailure* failure);

 private:
  bool CompareShape();
  bool CompareRow(size_t b);
  bool CompareNumbers();
  void Measure();
  // Which of `tokens` each column of row b holds that is retained or that a query sees, into
  // positions_, seen_, shift_; retained, visible: bit rows, or null.
  bool Locate(size_t b, std::span<const StoredToken> tokens, const uint64_t* retained,
              const uint64_t* visible);
  // The position of the token that column c of row b holds, `guess` tried first; -1: none.
  int64_t Identify(size_t b, std::span<const StoredToken> tokens, int64_t c, int64_t guess) const;
  bool Matches(size_t b, int64_t c, StoredToken token) const;
  bool PartMatches(size_t b, int64_t c, bool is_key, int64_t head, const std::byte* vector) const;
  bool CompareQueries(size_t b, const uint64_t* retained);
  bool CompareRetained(size_t b);
  bool ExplainColumn(size_t b, int64_t c, int64_t query);
  bool Fail(StepFault fault, int64_t row, std::string message);
  std::string TokenText(size_t b, int64_t position) const;
  std::string VectorText(size_t b, int64_t c, bool is_key, int64_t head) const;

  const ExpectedStep* expected_ = nullptr;
  const StepView* view_ = nullptr;
  const CacheProfile* profile_ = nullptr;
  StepFailure* failure_ = nullptr;
  Planes k_, v_;
  size_t k_bytes_ = 0, v_bytes_ = 0;  // of one vector
  size_t words_ = 0;
  std::vector<int32_t> positions_;  // per column of the row: the token's position, -1 none
  std::vector<uint64_t> seen_;      // bits by position
  std::vector<uint64_t> wanted_;    // a bit row by column
  std::vector<int64_t> retained_;   // per row: retained tokens; -1 where that cannot be told
  int64_t shift_ = 0;               // column - position, where it is one number for all columns
  bool shifted_ = false;
  bool exact_ = true;       // what is shown as retained is all that is
  int64_t live_ = 0;        // tokens retained by all rows; -1: cannot be told
  int64_t live_bytes_ = 0;  // that they take
  int64_t room_bytes_ = 0;  // and with the room of their residuals
  int64_t size_ = 0;        // lowest possible size
  int64_t size_most_ = 0;
  bool trimmable_ = true;
};

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_STEP_COMPARE_H_
