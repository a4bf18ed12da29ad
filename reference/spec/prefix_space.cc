#include "reference/spec/prefix_space.h"

#include <algorithm>

#include "reference/spec/glob.h"
#include "reference/spec/prefix_tokens.h"

namespace kvcheck {
namespace {

template <typename T>
bool Among(const std::vector<T>& values, const T& value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

bool IsPlainX(const std::optional<KvFormat>& format, DType x) {
  return !format || *format == KvFormat(PlainFormat{x});
}

}  // namespace

bool PrefixSpace::HasSetup(const PrefixSetup& setup) const {
  if (!Among(blocks, setup.block_tokens) || !Among(x, setup.x)) return false;
  if (!quantizes && !(IsPlainX(setup.k, setup.x) && IsPlainX(setup.v, setup.x))) return false;
  if (!formats.empty()) {
    const std::vector<Glob> globs = ParseGlobs(formats);
    for (const auto& format : {setup.k, setup.v}) {
      if (!IsPlainX(format, setup.x) && !MatchesAny(globs, Print(*format))) return false;
    }
  }
  if (same_dims && setup.k_dim != setup.v_dim) return false;
  if (!entries && setup.max_entries != 0) return false;
  return (windows || setup.window == 0) && (disk || !setup.disk);
}

bool PrefixSpace::HasOp(const PrefixOp& op) const {
  if (!Has(op.kind)) return false;
  if (op.kind == PrefixOpKind::kDamage && !Has(op.damage)) return false;
  if (op.kind == PrefixOpKind::kRestart) {
    return (!op.block_tokens || Among(blocks, *op.block_tokens)) && (!op.x || Among(x, *op.x));
  }
  if (op.kind != PrefixOpKind::kOpen) return true;
  if (op.all && !all) return false;
  if (op.from && !tiers) return false;
  if (op.from == PrefixTier::kDisk && !disk) return false;
  if (CountTokens(op.tokens) < least_tokens) return false;
  for (int field = 0; field < kIdentityFields; ++field) {
    if (HasField(op.who, field) && (identity >> field & 1u) == 0) return false;
  }
  return true;
}

bool PrefixSpace::HasCase(const PrefixCase& c) const {
  return HasSetup(c.setup) &&
         std::all_of(c.ops.begin(), c.ops.end(), [&](const PrefixOp& op) { return HasOp(op); });
}

}  // namespace kvcheck
