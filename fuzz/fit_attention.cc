#include "fuzz/fit_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

// Types that attention is drawn with.
constexpr std::array<DType, 4> kRealTypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                                             DType::kFloat64};
constexpr int kTries = 20'000;  // for a mask that is one in some thousand

[[noreturn]] void ThrowEmpty(const AttentionSpace& space, const char* what) {
  throw Error(ErrorCode::kUsage,
              fmt::format("no {} that is drawn is among what the implementation has: {}", what,
                          Describe(space)));
}

bool Among(const std::vector<DType>& types, DType type) {
  return types.empty() || std::find(types.begin(), types.end(), type) != types.end();
}

// allowed: of the space, empty: all.
void FitType(const AttentionSpace& space, const std::vector<DType>& allowed, const PickOne& pick,
             DType* type) {
  if (Among(allowed, *type)) return;
  std::vector<DType> types;
  for (const DType candidate : kRealTypes) {
    if (Among(allowed, candidate)) types.push_back(candidate);
  }
  if (types.empty()) ThrowEmpty(space, "type");
  *type = types[pick(types.size())];
}

// The format with rows of another type.
KvFormat WithRows(const KvFormat& format, DType type) {
  return type == DType::kFloat64 ? PlainFormat{type} : WithRowType(format, type);
}

// Prefers formats whose rows have type q, as they are drawn, and among these such as suit the
// dimension.
void FitFormat(const AttentionSpace& space, const std::function<bool(const KvFormat&)>& has,
               DType q, int64_t dim, const PickOne& pick, KvFormat* format) {
  if (has(*format)) return;
  std::vector<KvFormat> formats;
  int best = -1;
  for (const KvFormat& candidate : AllKvFormats()) {
    if (!has(candidate) || GroupsTokens(candidate)) continue;
    const int score = 2 * int{RowDType(candidate) == q} + int{dim % BlockOf(candidate) == 0};
    if (score < best) continue;
    if (score > best) formats.clear();
    best = score;
    formats.push_back(candidate);
  }
  if (formats.empty()) ThrowEmpty(space, "format of K and V");
  *format = formats[pick(formats.size())];
}

}  // namespace

void FitTypes(const AttentionSpace& space, const PickOne& pick, AttentionCase* c) {
  if (!space.grouped) c->query_heads = c->kv_heads;
  const DType drawn = c->q;
  FitType(space, space.q, pick, &c->q);
  if (c->q != drawn) {
    c->k = WithRows(c->k, c->q);
    c->v = WithRows(c->v, c->q);
    if (c->out == drawn) c->out = c->q;
  }
  const auto of_v = [&](const KvFormat& format) { return MatchesAnyGlob(space.v, Print(format)); };
  const auto of_k = [&](const KvFormat& format) {
    return MatchesAnyGlob(space.k, Print(format)) && (!space.same_format || of_v(format));
  };
  FitFormat(space, of_k, c->q, c->k_dim, pick, &c->k);
  if (space.same_format) {
    c->v = c->k;
  } else {
    FitFormat(space, of_v, c->q, c->v_dim, pick, &c->v);
  }
  if (c->k_dim % BlockOf(c->k) != 0) c->k_dim = BlockOf(c->k);
  if (space.same_dims) {
    // Groups are powers of two.
    if (c->k_dim % BlockOf(c->v) != 0) c->k_dim = std::max(BlockOf(c->k), BlockOf(c->v));
    c->v_dim = c->k_dim;
  } else if (c->v_dim % BlockOf(c->v) != 0) {
    c->v_dim = BlockOf(c->v);
  }
  if (space.out_as_q) c->out = c->q;
  FitType(space, space.out, pick, &c->out);
  if (space.out_as_q && c->out != c->q) ThrowEmpty(space, "type of the output");
}

void FitMask(const AttentionSpace& space, const std::function<MaskSpec()>& draw, AttentionCase* c) {
  for (int i = 0; i < kTries; ++i) {
    if (MatchesAnyGlob(space.masks, Print(c->mask))) return;
    c->mask = draw();
  }
  ThrowEmpty(space, "mask");
}

void FitExtras(const AttentionSpace& space, AttentionCase* c) {
  if (!space.softcap) c->softcap.reset();
  if (!space.sinks) c->sinks.reset();
  if (!space.alibi) c->alibi = false;
  if (!space.lse) c->lse = LseKind::kNone, c->lse_type.reset();
}

}  // namespace kvcheck
