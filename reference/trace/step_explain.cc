// The words of StepComparer: names of what can break, whose a token is, and what a column holds
// that is not the token which it is held out as. Runs only when something is wrong.

#include <fmt/format.h>

#include <array>

#include "reference/trace/step_compare.h"

namespace kvcheck {
namespace {

struct FaultName {
  StepFault fault;
  std::string_view name;
  std::string_view property;
};

constexpr std::array<FaultName, 31> kFaults = {{
    {StepFault::kNone, "none", ""},
    {StepFault::kRows, "rows", "P6"},
    {StepFault::kLayout, "layout", "P6"},
    {StepFault::kFormat, "format", "P6"},
    {StepFault::kQueries, "queries", "P2"},
    {StepFault::kPending, "pending", "P6"},
    {StepFault::kOffset, "offset", "P14"},
    {StepFault::kUnfedPadding, "unfed_padding", "P6"},
    {StepFault::kVisibleMissing, "visible_missing", "P12"},
    {StepFault::kVisibleExtra, "visible_extra", "P2"},
    {StepFault::kVisiblePadding, "visible_padding", "P13"},
    {StepFault::kRetainedMissing, "retained_missing", "P12"},
    {StepFault::kRetainedExtra, "retained_extra", "P6"},
    {StepFault::kTokenTwice, "token_twice", "P6"},
    {StepFault::kKvMismatch, "kv_mismatch", "P6"},
    {StepFault::kHeadMismatch, "head_mismatch", "P6"},
    {StepFault::kWrongPart, "wrong_part", "P6"},
    {StepFault::kWrongBytes, "wrong_bytes", "P5"},
    {StepFault::kNeverForgets, "never_forgets", "P7"},
    {StepFault::kSize, "size", "P7"},
    {StepFault::kEmpty, "empty", "P7"},
    {StepFault::kTrimmable, "trimmable", "P3"},
    {StepFault::kLiveBytes, "live_bytes", "P7"},
    {StepFault::kCapacity, "capacity", "P7"},
    {StepFault::kAccepted, "accepted", "P15"},
    {StepFault::kRefused, "refused", "P15"},
    {StepFault::kTrimCount, "trim_count", "P3"},
    {StepFault::kAttention, "attention", "P8"},
    {StepFault::kPlan, "plan", "P8"},
    {StepFault::kInputChanged, "input_changed", "P10"},
    {StepFault::kResultChanged, "result_changed", "P10"},
}};

}  // namespace

std::string_view Name(StepFault fault) {
  for (const FaultName& entry : kFaults) {
    if (entry.fault == fault) return entry.name;
  }
  return "";
}

std::string_view PropertyOf(StepFault fault) {
  for (const FaultName& entry : kFaults) {
    if (entry.fault == fault) return entry.property;
  }
  return "";
}

std::string StepComparer::TokenText(size_t b, int64_t position) const {
  const std::span<const StoredToken> tokens = expected_->rows[b].tokens;
  if (position < 0 || position >= static_cast<int64_t>(tokens.size())) return "no token";
  std::string text = fmt::format("token {}", position);
  if (expected_->names != nullptr) {
    text +=
        fmt::format(" ({})", expected_->names->Describe(tokens[static_cast<size_t>(position)].k));
  }
  return text;
}

std::string StepComparer::VectorText(size_t b, int64_t c, bool is_key, int64_t head) const {
  const TokenNames* names = expected_->names;
  if (names == nullptr) return "bytes of no token";
  const KvFormat& format = is_key ? expected_->k : expected_->v;
  const size_t total = is_key ? k_bytes_ : v_bytes_;
  for (int64_t handle = expected_->table.count - 1; handle >= 0; --handle) {
    const auto index = static_cast<int32_t>(handle);
    if (!(names->FormatOf(index) == format)) continue;
    // K and V of another size do not fit.
    if (names->IsKey(index) != is_key && expected_->k_dim != expected_->v_dim) continue;
    for (int64_t h = 0; h < expected_->kv_heads; ++h) {
      const std::byte* vector = expected_->table.Vector(index) + static_cast<size_t>(h) * total;
      if (!PartMatches(b, c, is_key, head, vector)) continue;
      return fmt::format("{} of head {} of {}", names->IsKey(index) ? "K" : "V", h,
                         names->Describe(index));
    }
  }
  return "bytes of no token";
}

// A column that the cache holds out as a token of the row, and that is none: what is it?
bool StepComparer::ExplainColumn(size_t b, int64_t c, int64_t query) {
  failure_->query = query;
  const ExpectedRow& row = expected_->rows[b];
  const auto r = static_cast<int64_t>(b);
  // The token of the row that most of its vectors belong to.
  int64_t best = -1;
  int64_t best_count = 0;
  for (size_t p = 0; p < row.tokens.size(); ++p) {
    int64_t count = 0;
    for (int64_t h = 0; h < expected_->kv_heads; ++h) {
      const auto head = static_cast<size_t>(h);
      count +=
          PartMatches(b, c, true, h, expected_->table.Vector(row.tokens[p].k) + head * k_bytes_);
      count +=
          PartMatches(b, c, false, h, expected_->table.Vector(row.tokens[p].v) + head * v_bytes_);
    }
    if (count > best_count) {
      best_count = count;
      best = static_cast<int64_t>(p);
    }
  }
  bool foreign = false;  // whole vectors of other tokens
  bool unknown = false;
  StepFault fault = StepFault::kRetainedExtra;
  std::string first_text;
  for (const bool is_key : {true, false}) {
    for (int64_t h = 0; h < expected_->kv_heads; ++h) {
      const auto head = static_cast<size_t>(h);
      if (best >= 0) {
        const StoredToken token = row.tokens[static_cast<size_t>(best)];
        const std::byte* vector = is_key ? expected_->table.Vector(token.k) + head * k_bytes_
                                         : expected_->table.Vector(token.v) + head * v_bytes_;
        if (PartMatches(b, c, is_key, h, vector)) continue;
      }
      const std::string text = VectorText(b, c, is_key, h);
      if (first_text.empty()) {
        first_text =
            fmt::format("as {} of head {} column {} holds {}", is_key ? "K" : "V", h, c, text);
        if (text.starts_with(is_key ? "V of" : "K of")) fault = StepFault::kWrongPart;
        if (best >= 0 && text.starts_with(is_key ? "K of" : "V of")) {
          fault = text.starts_with(fmt::format("{} of head {} ", is_key ? "K" : "V", h))
                      ? StepFault::kKvMismatch
                      : StepFault::kHeadMismatch;
        }
      }
      (text == "bytes of no token" ? unknown : foreign) = true;
    }
  }
  if (best >= 0) {
    failure_->position = best;
    if (unknown && !foreign) fault = StepFault::kWrongBytes;
    return Fail(fault, r,
                fmt::format("{} is not stored as it must be: {}", TokenText(b, best), first_text));
  }
  if (!foreign) {
    return Fail(StepFault::kVisiblePadding, r,
                fmt::format("column {} is held out as a token, and holds bytes of no token "
                            "(padding, stale memory, or a token stored otherwise)",
                            c));
  }
  return Fail(fault, r, fmt::format("{}, which is no token of this row", first_text));
}

}  // namespace kvcheck
