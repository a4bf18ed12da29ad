// A state of the model as a record of a StateStore, and back: self-describing, versioned, hashed.
//
// Attributes: kind "kvcheck-cache-model", version "1", hash, layout, k, v, x, heads ("HKV DK DV").
// Tensors: rows (B, 3) i64 (offset, unfed padding, first retained position); k and v (tokens,
// bytes) u8, the retained tokens of all rows, oldest first.

#ifndef REFERENCE_CACHE_MODEL_RECORD_H_
#define REFERENCE_CACHE_MODEL_RECORD_H_

#include <functional>
#include <string_view>

#include "reference/cache/model_state.h"
#include "reference/cache/rules.h"
#include "reference/cache/vector_table.h"
#include "reference/spec/state_store.h"

namespace kvcheck {

StateRecord RecordOf(const CacheSetup& setup, const ModelState& state, const VectorTable& table);

// "" and the state, or why the record is refused; *state is changed only by success. takes: whether
// to go on in spite of a fault (empty: never).
std::string_view ReadRecord(const StateRecord& record, const CacheSetup& setup,
                            const std::function<bool(RecordFault)>& takes, VectorTable* table,
                            ModelState* state);

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_MODEL_RECORD_H_
