#include "reference/spec/token_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "reference/spec/dtype.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

template <typename F>
concept TokenGrouped = requires(const F& family) {
  family.TokenGroup();
  family.OfToken();
};
// Whose tokens a cache codes as others come.
template <typename F>
concept Residual = TokenGrouped<F> && requires(const F& family) { family.Residual(); };
// Of these, those that are coded one by one.
template <typename F>
concept RollingResidual = Residual<F> && requires(const F& family) { family.Coded(); };

}  // namespace

int64_t TokenGroupOf(const KvFormat& format) {
  return std::visit(
      []<typename F>(const F& family) -> int64_t {
        if constexpr (TokenGrouped<F>) return family.TokenGroup();
        return 1;
      },
      format);
}

bool CachesKeep(const KvFormat& format) {
  return std::visit(
      []<typename F>(const F& family) {
        if constexpr (TokenGrouped<F> && !Residual<F>) return family.TokenGroup() == 1;
        if constexpr (RollingResidual<F>) return family.Residual() > 0;
        return true;
      },
      format);
}

std::vector<KvFormat> CacheFormats() {
  std::vector<KvFormat> formats = AllKvFormats();
  std::erase_if(formats, [](const KvFormat& format) { return !CachesKeep(format); });
  for (const KvFormat& format : FormatsOfCachesAlone()) formats.push_back(format);
  return formats;
}

bool HasResidual(const KvFormat& format) {
  return CachesKeep(format) && (GroupsTokens(format) || ResidualRolls(format));
}

void CheckCachesKeep(const KvFormat& format, const std::string& context) {
  if (CachesKeep(format)) return;
  if (!GroupsTokens(format)) {
    throw Error(
        ErrorCode::kIllegalCase,
        fmt::format("{} is how one token of a cache is shown: name its residual", Print(format)),
        context);
  }
  throw Error(ErrorCode::kIllegalCase,
              fmt::format("{} is how a page of {} tokens lies in memory, and a cache keeps tokens "
                          "one by one: ask with {}",
                          Print(format), TokenGroupOf(format), Print(TokenFormatOf(format))),
              context);
}

KvFormat TokenFormatOf(const KvFormat& format) {
  return std::visit(
      []<typename F>(const F& family) -> KvFormat {
        if constexpr (TokenGrouped<F>) return family.OfToken();
        return family;
      },
      format);
}

KvFormat OpenGroupOf(const KvFormat& format, int64_t tokens) {
  return std::visit(
      [&]<typename F>(F family) -> KvFormat {
        if constexpr (Residual<F> && !RollingResidual<F>) family.group = tokens;
        return family;
      },
      format);
}

Planes TokenPlanesOf(const KvFormat& format, int64_t head_dim) {
  return PlanesOf(TokenFormatOf(format), head_dim);
}

bool FitsTokens(const KvFormat& format, int64_t head_dim) {
  return CachesKeep(format) && FitsHeadDim(TokenFormatOf(format), head_dim);
}

void CheckTokens(const KvFormat& format, int64_t head_dim, const std::string& context) {
  CheckCachesKeep(format, context);
  // A group that does not exist is named as it was written.
  CheckHeadDim(Exists(format) ? TokenFormatOf(format) : format, head_dim, context);
}

int64_t ResidualOf(const KvFormat& format) {
  return std::visit(
      []<typename F>(const F& family) -> int64_t {
        if constexpr (Residual<F>) return std::max<int64_t>(1, family.Residual());
        return 1;
      },
      format);
}

int64_t ClosedTokens(const KvFormat& format, int64_t tokens) {
  const int64_t residual = ResidualOf(format);
  return ResidualRolls(format) ? std::max<int64_t>(0, tokens - residual)
                               : tokens - tokens % residual;
}

int64_t StoredBytes(const KvFormat& format, int64_t head_dim, int64_t tokens, int64_t coded) {
  if (!HasResidual(format)) coded = tokens;
  const int64_t group = TokenGroupOf(format);
  const int64_t vector = head_dim * static_cast<int64_t>(SizeInBytes(RowDType(format)));
  const Planes planes = PlanesOf(format, group * head_dim);
  // Tokens that are coded by themselves have the plane of the residual, and nothing in it.
  const int64_t of_group =
      static_cast<int64_t>(planes.RowBytes()) - (ResidualRolls(format) ? vector : 0);
  int64_t stored = coded / group * of_group;
  // Of a group that is not whole, the codes of its tokens and what all of them share.
  if (const int64_t open = coded % group; open > 0) {
    stored += of_group - (group - open) * static_cast<int64_t>(planes[0].Bytes()) / group;
  }
  return stored + (tokens - coded) * vector;
}

int64_t StoredBytes(const KvFormat& format, int64_t head_dim, int64_t tokens) {
  return StoredBytes(format, head_dim, tokens, ClosedTokens(format, tokens));
}

bool CanReturnTo(const KvFormat& format, int64_t tokens, int64_t left) {
  const int64_t closed = ClosedTokens(format, left);
  return closed == ClosedTokens(format, tokens) || closed == left;
}

int64_t RoomBytes(const KvFormat& format, int64_t head_dim, int64_t tokens, int64_t coded) {
  if (!HasResidual(format)) return StoredBytes(format, head_dim, tokens);
  const int64_t group = TokenGroupOf(format);
  const int64_t whole = (coded + group - 1) / group * group;
  return StoredBytes(format, head_dim, whole, whole) +
         ResidualOf(format) * head_dim * static_cast<int64_t>(SizeInBytes(RowDType(format)));
}

int64_t RoomBytes(const KvFormat& format, int64_t head_dim, int64_t tokens) {
  return RoomBytes(format, head_dim, tokens, ClosedTokens(format, tokens));
}

bool KeepsGroups(const CacheLayout& layout, const KvFormat& format) {
  if (!CachesKeep(format)) return false;
  return !HasResidual(format) || (layout.kind == LayoutKind::kLinear && layout.window == 0);
}

}  // namespace kvcheck
