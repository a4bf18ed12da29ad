// The tokens of a row that leave its residual, coded: whole groups, or one by one where a format
// codes them by themselves (a group is then one token). What an append and to_quantized do to a
// cache whose format has a residual, and which groups a profile codes again. The judge's side and
// the model as an implementation share it.

#ifndef REFERENCE_CACHE_CLOSE_GROUPS_H_
#define REFERENCE_CACHE_CLOSE_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "reference/cache/model_state.h"
#include "reference/cache/vector_table.h"
#include "reference/data/token_rows.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {

// What a mutant may replace (rules.h); empty: the contract.
struct GroupRules {
  // Tokens that are coded, of the first `tokens`, where no group is coded again.
  std::function<void(const KvFormat&, int64_t tokens, int64_t* closed)> closed;
  // The first positions of the groups to be coded now.
  std::function<void(const KvFormat&, int64_t tokens, std::vector<int64_t>* groups)> groups;
  // The coded vectors of a group, token by token, all heads; `before` is what the group before it
  // has, empty where it is the first.
  std::function<void(const KvFormat&, std::span<const std::byte* const> before,
                     std::span<std::byte* const> group, size_t vector_bytes)>
      coded;
};

// Codes the groups of K, or V, that are to be coded of a row whose tokens were `before` before the
// last ones came, and counts in the row how many of its tokens are coded. Does nothing where there
// is no residual.
void CloseGroups(TokenPart part, const KvFormat& format, RegroupRule regroup, int64_t before,
                 const GroupRules& rules, ModelRow* row, VectorTable* table);

// The same of K and V, at the end of an append. reads_before: the row keeps what its tokens were,
// for the queries of this append (CacheProfile).
void CloseAppended(const ModelState& state, bool reads_before, const GroupRules& rules,
                   ModelRow* row, VectorTable* table);

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_CLOSE_GROUPS_H_
