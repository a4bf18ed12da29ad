// What a cache must show after an operation, as the reference gives it to the judge: tokens per row
// by position, what of them must be retained, what each query of the last append must see. Beside
// StepView, which is what a cache does show.

#ifndef REFERENCE_SPEC_EXPECTED_STEP_H_
#define REFERENCE_SPEC_EXPECTED_STEP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "reference/spec/cache_layout.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {

// K and V of one token, as handles into a table of stored vectors.
struct StoredToken {
  int32_t k = 0;
  int32_t v = 0;
  bool operator==(const StoredToken&) const = default;
};

// The table: vector `handle` starts at bytes + offsets[handle], all heads one after the other, each
// plane after plane.
struct StoredTokens {
  const std::byte* bytes = nullptr;
  const uint32_t* offsets = nullptr;
  int64_t count = 0;
  const std::byte* Vector(int32_t handle) const { return bytes + offsets[handle]; }
};

// Says whose a vector is, for messages. The judge asks when something is wrong, and only then.
class TokenNames {
 public:
  virtual ~TokenNames() = default;
  // "token 3 of row 0 of append 5".
  virtual std::string Describe(int32_t handle) const = 0;
  virtual bool IsKey(int32_t handle) const = 0;
  virtual KvFormat FormatOf(int32_t handle) const = 0;
};

struct ExpectedRow {
  std::span<const StoredToken> tokens;  // by position, evicted ones included
  // What the queries of the last append see instead, where the append has coded groups of tokens
  // and its queries read what was there before. Empty: `tokens`.
  std::span<const StoredToken> seen;
  int64_t offset = 0;  // == tokens.size()
  // Tokens that are coded in groups; of formats that code each by itself, any number.
  int64_t k_coded = 0;
  int64_t v_coded = 0;
  int64_t unfed_padding = 0;
  TokenRange required;         // positions that must be retained
  TokenRange required_before;  // those that the state with one token less would require
  // Whether that state can be returned to as far as groups of tokens go (CanReturnTo).
  bool returns_before = true;
  TokenRange newest_visible;   // what the newest token's query sees; empty in an empty row
  int64_t most_retained = -1;  // more is a cache that never forgets; -1: no limit
  // Columns first_query .. first_query + visible.size() - 1 of the last append were tokens of this
  // row, and must see these positions; the other columns were padding.
  int64_t first_query = 0;
  std::span<const TokenRange> visible;
};

struct ExpectedStep {
  CacheLayout layout;
  KvFormat k;
  KvFormat v;
  int64_t kv_heads = 1;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t queries = 0;  // columns of the last append; 0: no step
  bool pending = false;
  bool no_tail = false;  // capacity must be the tokens alone (after extract)
  std::span<const ExpectedRow> rows;
  StoredTokens table;
  const TokenNames* names = nullptr;  // without it a foreign vector is bytes without meaning
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_EXPECTED_STEP_H_
