// What a trace hands to an implementation: columns to append, queries to attend with, and damage to
// what was saved. All of it follows from the operation, its index and the seed of the case.

#ifndef REFERENCE_TRACE_TRACE_INPUTS_H_
#define REFERENCE_TRACE_TRACE_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/cache/model_state.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// Vectors of one call at most.
inline constexpr int64_t kMaxTraceVectors = int64_t{1} << 22;

// The columns of an append, in *k and *v: tokens where the state takes tokens, NaN where it takes
// padding; zeros of another shape or type where the operation says so.
// Errors: kUnsupported above kMaxTraceVectors.
TokenColumns FillColumns(const CacheSetup& setup, const CacheOp& op, int64_t operation,
                         const ModelState& state, std::vector<std::byte>* k,
                         std::vector<std::byte>* v);

// A request for the queries of the last append, or for one query a row where there is no step.
// Errors: kUnsupported above kMaxTraceVectors.
AttendRequest FillQueries(const CacheSetup& setup, const CacheOp& op, int64_t operation,
                          const ModelState& state, std::vector<std::byte>* q,
                          std::vector<float>* sinks);

// Makes *record something that must be refused. Damage to bytes leaves the hash as it was; a
// foreign kind and an unknown version come with the right one, so that nothing else gives them
// away.
void DamageRecord(const CacheOp& op, StateRecord* record);

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_TRACE_INPUTS_H_
