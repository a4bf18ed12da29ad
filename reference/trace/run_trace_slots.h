// What a TraceRunner keeps per slot and per saved state: the implementation's cache and the model's
// state beside each other.

#ifndef REFERENCE_TRACE_RUN_TRACE_SLOTS_H_
#define REFERENCE_TRACE_RUN_TRACE_SLOTS_H_

#include <fmt/format.h>

#include <memory>
#include <string>

#include "reference/data/token_rows.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {

struct TraceRunner::Slot {
  bool used = false;
  std::unique_ptr<Cache> cache;
  ModelState state;
  int64_t made_by = -1;   // index of the operation that put the cache there
  int64_t saved_by = -1;  // of the one that saved it, where that was a load; -1
};

struct TraceRunner::Saved {
  bool used = false;
  ModelState state;
  int64_t saved_by = -1;  // index of the operation
};

struct TraceRunner::Names : public TokenNames {
  explicit Names(const VectorTable* t) : table(t) {}
  std::string Describe(int32_t handle) const override {
    const TokenOrigin origin = OriginOf(table->Token(handle));
    return fmt::format("column {} of row {} of operation {}", origin.column, origin.row,
                       origin.operation + 1);
  }
  bool IsKey(int32_t handle) const override { return table->Part(handle) == TokenPart::kKey; }
  KvFormat FormatOf(int32_t handle) const override { return table->Format(handle); }
  const VectorTable* table;
};

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_RUN_TRACE_SLOTS_H_
