// Which traces are defined: legal setups, and operations whose values have a text.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"
#include "reference/spec/trace.h"
#include "reference/spec/trace_limits.h"

namespace kvcheck {
namespace {

[[noreturn]] void Illegal(const std::string& what) { throw Error(ErrorCode::kIllegalCase, what); }

void CheckRange(std::string_view name, int64_t value, int64_t lowest, int64_t highest) {
  if (value < lowest || value > highest) {
    Illegal(fmt::format("{} {} is outside {}..{}", name, value, lowest, highest));
  }
}

void CheckFormat(const std::optional<KvFormat>& format) {
  if (!format) return;
  if (!Exists(*format)) Illegal(fmt::format("'{}' is not a format", Print(*format)));
  CheckCachesKeep(*format, "an operation");
}

void CheckOp(const CacheOp& op) {
  for (int slot : {op.slot, op.target}) CheckRange("slot", slot, 0, kSlots - 1);
  for (int slot : op.operands) CheckRange("slot", slot, 0, kSlots - 1);
  CheckRange("saved state", op.key, 0, kStateKeys - 1);
  for (int64_t number : op.numbers)
    CheckRange("number", number, -trace_limits::kMaxNumber, trace_limits::kMaxNumber);
  CheckRange("damaged byte", op.at, 0, trace_limits::kMaxNumber);
  if (op.window)
    CheckRange("window", *op.window, -trace_limits::kMaxNumber, trace_limits::kMaxNumber);
  if (op.scale && !(*op.scale - *op.scale == 0)) Illegal("scale must be finite");
  if (op.layout) {
    for (int64_t number : {op.layout->window, op.layout->keep, op.layout->chunk}) {
      CheckRange("layout", number, 0, trace_limits::kMaxNumber);
    }
  }
  CheckFormat(op.k);
  CheckFormat(op.v);
  switch (op.kind) {
    case CacheOpKind::kNew:
      CheckRange("rows", op.count, 0, trace_limits::kMaxExtent);
      break;
    case CacheOpKind::kAppend:
      CheckRange("columns", op.count, 1, trace_limits::kMaxColumns);
      break;
    case CacheOpKind::kMerge:
      if (op.operands.empty()) Illegal("merge names at least one slot");
      break;
    case CacheOpKind::kToQuantized:
      if (!op.k || !op.v) Illegal("to_quantized names both formats");
      break;
    default:
      CheckRange("number", op.count, -trace_limits::kMaxNumber, trace_limits::kMaxNumber);
  }
}

}  // namespace

void ValidateCacheCase(const CacheCase& c) {
  const CacheSetup& setup = c.setup;
  if (!IsLegal(setup.layout)) {
    Illegal(fmt::format("layout {}: W and C are at least 1, and K is less than W",
                        Print(setup.layout)));
  }
  for (int64_t number : {setup.layout.window, setup.layout.keep, setup.layout.chunk}) {
    CheckRange("layout", number, 0, trace_limits::kMaxNumber);
  }
  if (setup.x != DType::kFloat32 && setup.x != DType::kFloat16 && setup.x != DType::kBFloat16) {
    Illegal(fmt::format("x={} is none of f32, f16 and bf16", ShortName(setup.x)));
  }
  CheckRange("hkv", setup.kv_heads, 1, trace_limits::kMaxExtent);
  CheckRange("hq", setup.query_heads, 1, trace_limits::kMaxExtent);
  CheckRange("dk", setup.k_dim, 1, trace_limits::kMaxExtent);
  CheckRange("dv", setup.v_dim, 1, trace_limits::kMaxExtent);
  CheckRange("growth", setup.growth_tokens, 1, trace_limits::kMaxExtent);
  if (setup.query_heads % setup.kv_heads != 0) {
    Illegal(fmt::format("hq={} is not a multiple of hkv={}", setup.query_heads, setup.kv_heads));
  }
  CheckTokens(setup.k, setup.k_dim, "k");
  CheckTokens(setup.v, setup.v_dim, "v");
  CheckHeads(setup.k, setup.kv_heads, "k");
  CheckHeads(setup.v, setup.kv_heads, "v");
  if (!HasText(setup.data)) Illegal("data is REGIME:SEED, file or file:HASH");
  if (c.ops.size() > trace_limits::kMaxOps)
    Illegal(fmt::format("more than {} operations", trace_limits::kMaxOps));
  for (const CacheOp& op : c.ops) {
    CheckOp(op);
    if (op.k) CheckHeads(*op.k, setup.kv_heads, "k of an operation");
    if (op.v) CheckHeads(*op.v, setup.kv_heads, "v of an operation");
  }
}

}  // namespace kvcheck
