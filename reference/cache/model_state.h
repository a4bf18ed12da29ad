// The state of the cache contract (contract.md, section 2): rows as token lists, and what every
// operation makes of them. Nothing here knows bytes, columns or capacity; tokens are handles. The
// same functions serve the judge's side, which never forgets a token, and the model as an
// implementation (model_cache.h), which evicts.
//
// What the contract leaves to be said precisely:
// - A token's position is its index in its row.
// - Unfed left padding comes before the tokens of a prepared prefill: of the columns that follow, a
//   row takes its padding, then its tokens, then right padding.
// - trim's n' is the largest n' <= n for which the state after n' fewer tokens requires no evicted
//   one. The empty state requires nothing: losing all tokens is always possible.
// - "Nothing appended" means that no row has a token.
// - Groups of tokens, and the newest ones of a residual, are counted from position 0 of each row,
//   whatever is padding: the first ClosedTokens of its tokens are coded (token_groups.h), as soon
//   as the others are there. Where a profile codes groups again (RegroupRule), how many are coded
//   depends on where appends ended.

#ifndef REFERENCE_CACHE_MODEL_STATE_H_
#define REFERENCE_CACHE_MODEL_STATE_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/data/token_rows.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/cache_layout.h"
#include "reference/spec/cache_profile.h"
#include "reference/spec/expected_step.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {

struct ModelRow {
  std::vector<StoredToken> tokens;  // by position
  // What queries of the last append see, where that is not `tokens`; else empty.
  std::vector<StoredToken> seen;
  TokenRange retained;  // of them; what is outside has been evicted
  int64_t offset = 0;   // tokens seen: tokens.size()
  int64_t unfed_padding = 0;
  int64_t to_come = 0;        // tokens of a prepared prefill that have not arrived
  int64_t most_retained = 0;  // W - 1 + N of a ring's appends so far
  // Tokens in groups, of K and of V, where a profile codes groups again.
  int64_t k_coded = 0;
  int64_t v_coded = 0;
  // Of the last append: its first column that is a token, and how many there are.
  int64_t first_query = 0;
  int64_t query_tokens = 0;

  const std::vector<StoredToken>& Seen() const { return seen.empty() ? tokens : seen; }
};

// Rows that keep their memory when they go: nothing allocates once a case has warmed up.
class ModelRows {
 public:
  ModelRows() = default;
  ModelRows(const ModelRows& other) { *this = other; }
  ModelRows(ModelRows&&) = default;
  ModelRows& operator=(const ModelRows& other) {
    if (this == &other) return *this;
    Resize(other.size());
    for (size_t i = 0; i < count_; ++i) pool_[i] = other.pool_[i];
    return *this;
  }
  ModelRows& operator=(ModelRows&&) = default;

  size_t size() const { return count_; }
  ModelRow& operator[](size_t i) { return pool_[i]; }
  const ModelRow& operator[](size_t i) const { return pool_[i]; }
  ModelRow* begin() { return pool_.data(); }
  ModelRow* end() { return pool_.data() + count_; }
  const ModelRow* begin() const { return pool_.data(); }
  const ModelRow* end() const { return pool_.data() + count_; }
  // New rows hold whatever they held before.
  void Resize(size_t count) {
    if (count > pool_.size()) pool_.resize(count);
    count_ = count;
  }
  void Swap(ModelRows* other) {
    pool_.swap(other->pool_);
    std::swap(count_, other->count_);
  }

 private:
  std::vector<ModelRow> pool_;
  size_t count_ = 0;
};

struct ModelState {
  CacheLayout layout;
  KvFormat k;
  KvFormat v;
  RegroupRule regroup = RegroupRule::kNever;  // of the profile that the cache has
  ModelRows rows;
  bool pending = false;
  int64_t queries = 0;   // columns of the last append; 0: no step
  bool no_tail = false;  // made by extract, and not changed since
};

// What the contract says about a layout; the token at `position` has been appended.
TokenRange Visible(const CacheLayout& layout, int64_t position);
// The layout's rule and the newest `window` tokens; the first `keep` of a ring stay.
TokenRange VisibleInWindow(const CacheLayout& layout, int64_t position, int64_t window);
// What some future query may see, after `offset` tokens.
TokenRange Required(const CacheLayout& layout, int64_t offset);
// Whether `retained` holds all of `required`, of the positions below required.end.
bool Holds(const TokenRange& retained, const TokenRange& required);

// Why a call is illegal, or "" when it is legal.
std::string_view RefuseNew(const CacheSetup& setup, const CacheLayout& layout, const KvFormat& k,
                           const KvFormat& v, int64_t rows, std::span<const int64_t> padding);
std::string_view RefuseAppend(const CacheSetup& setup, const ModelState& state,
                              const TokenColumns& columns);
std::string_view RefusePrepare(const ModelState& state, std::span<const int64_t> lengths);
std::string_view RefuseFinalize(const ModelState& state);
std::string_view RefuseTrim(const ModelState& state, int64_t count);
std::string_view RefuseFilter(const ModelState& state, std::span<const int64_t> rows);
std::string_view RefuseExtend(const ModelState& state, const ModelState& other);
std::string_view RefuseMerge(std::span<const ModelState* const> states);
std::string_view RefuseExtract(const ModelState& state, int64_t row);
std::string_view RefuseToQuantized(const CacheSetup& setup, const ModelState& state,
                                   const KvFormat& k, const KvFormat& v);
// Copy and save.
std::string_view RefuseWhilePending(const ModelState& state);
std::string_view RefuseAttend(const CacheSetup& setup, const ModelState& state,
                              const AttendRequest& request);

// How the N columns of an append fall to a row: padding, then tokens, then padding.
struct ColumnSplit {
  int64_t padding = 0;
  int64_t tokens = 0;
};
ColumnSplit SplitColumns(const ModelState& state, size_t row, int64_t columns);

// What the operations do; every call must be legal.
void New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
         std::span<const int64_t> padding, ModelState* state);
// Takes the columns: the caller appends split.tokens to row.tokens and then calls Appended. evicts:
// first forgets what a ring, a window or a chunk no longer requires.
void StartAppend(ModelState* state, size_t row, int64_t columns, ColumnSplit split, bool evicts);
void Appended(ModelState* state, size_t row, ColumnSplit split);
void Prepare(std::span<const int64_t> lengths, ModelState* state);
void Finalize(ModelState* state);
// n' for rows that retain what `retained` says (one range per row; empty: ModelRow::retained).
int64_t TrimReach(const ModelState& state, int64_t count, std::span<const TokenRange> retained);
// How many tokens of a row are coded in groups, of K or of V.
int64_t CodedTokens(const ModelState& state, const ModelRow& row, TokenPart part);
// Whether a row without its newest `trimmed` tokens is as if it had never had them, as far as
// groups of tokens go: no group that is left was coded with one of them.
bool GroupsReturn(const ModelState& state, const ModelRow& row, int64_t trimmed);
// Whether every row is.
bool GroupsReturn(const ModelState& state, int64_t trimmed);
void Trim(int64_t reach, ModelState* state);
// scratch: rows whose memory is used.
void Filter(std::span<const int64_t> rows, ModelState* state, ModelRows* scratch);
void Extend(const ModelState& other, ModelState* state);  // state may be other
void Merge(std::span<const ModelState* const> states, ModelState* out);
void Extract(const ModelState& state, int64_t row, ModelState* out);
void CopyState(const ModelState& state, ModelState* out);
// No operation but an append leaves a step.
void EndStep(ModelState* state);

// Tokens retained that the newest query sees, of the longest row.
int64_t SizeOf(const ModelState& state);
bool IsEmpty(const ModelState& state);
bool IsTrimmable(const ModelState& state);

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_MODEL_STATE_H_
