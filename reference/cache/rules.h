// The cache contract as named rules, each of which a mutant may replace. An empty rule is the
// contract. A rule that is there changes what the contract made, and counts how often that made a
// difference, so that a fault that was never exercised is not mistaken for one that was not caught.

#ifndef REFERENCE_CACHE_RULES_H_
#define REFERENCE_CACHE_RULES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "reference/cache/close_groups.h"
#include "reference/cache/model_state.h"
#include "reference/data/token_rows.h"
#include "reference/spec/cache_profile.h"
#include "reference/spec/profile.h"

namespace kvcheck {

// A call, as far as rules about legality need it.
struct CacheCall {
  CacheOpKind op = CacheOpKind::kAppend;
  const ModelState* state = nullptr;  // operated on, or as loaded; null for new and merge
  const ModelState* other = nullptr;  // of extend; of merge: the operand with the fewest tokens
  int64_t count = 0;                  // columns, tokens or the row
  std::span<const int64_t> numbers;   // padding, lengths, rows
};

// What a cache says about itself.
struct CacheNumbers {
  std::span<int64_t> offsets;  // (rows)
  int64_t size = 0;
  int64_t live_bytes = 0;
  int64_t capacity_bytes = 0;
  bool empty = true;
  bool trimmable = true;
};

// Why a saved record is refused.
enum class RecordFault : uint8_t { kForeign, kVersion, kHash, kOtherSetup };

struct CacheRules {
  // Whose contract it is, where a cache states another one than the default.
  CacheProfile profile;
  Profile conventions;  // of its codes
  // Positions that the query of the token at `position` sees, at an append and at an attend.
  std::function<void(const ModelState&, size_t row, int64_t position, TokenRange*)> visible;
  std::function<void(const ModelState&, size_t row, int64_t position, int64_t window, TokenRange*)>
      visible_in_window;
  // Positions that a row still holds once an append of `columns` has made room.
  std::function<void(const ModelState&, size_t row, int64_t columns, TokenRange*)> retained;
  // Which columns of an append are tokens of a row.
  std::function<void(const ModelState&, size_t row, int64_t columns, ColumnSplit*)> split;
  // The stored bytes of a vector that came in an append of `columns`, one head after the other.
  std::function<void(TokenPart, const KvFormat&, int64_t columns, std::span<std::byte> stored)>
      encode;
  std::function<void(const ModelState&, int64_t count, int64_t* reach)> trim_reach;
  GroupRules groups;  // of formats that code groups of tokens

  // What an operation carries: the state before, and the one that it made, to be changed.
  using Carried = std::function<void(const ModelState& before, ModelState* after)>;
  Carried append;
  Carried finalize;
  Carried trim;
  Carried to_quantized;
  Carried copy;
  Carried load;  // before: as it was saved
  std::function<void(const ModelState& before, std::span<const int64_t> rows, ModelState* after)>
      filter;
  std::function<void(const ModelState& before, const ModelState& other, ModelState* after)> extend;
  std::function<void(std::span<const ModelState* const> operands, ModelState* after)> merge;
  std::function<void(const ModelState& from, int64_t row, ModelState* after)> extract;

  // Whether a call is refused: *why is the contract's reason, or "".
  std::function<void(const CacheCall&, std::string_view* why)> legal;
  // What a refused call leaves behind.
  std::function<void(const CacheCall&, ModelState* state)> refused;
  // Whether a record is taken in spite of what is wrong with it.
  std::function<bool(RecordFault)> takes_record;
  // Whether the result of copy, save or load, or the operand of extend, is the same object.
  std::function<bool(CacheOpKind)> shares;

  std::function<void(const ModelState&, CacheNumbers*)> numbers;
  // A finished row of attend's output. Shapes: out (Dv).
  std::function<void(const ModelState&, size_t row, int64_t query, std::span<double> out)> attend;

  // How often a replaced rule changed something; shared by copies.
  std::shared_ptr<std::atomic<int64_t>> hits = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_RULES_H_
