#include "reference/spec/token_groups.h"

#include <fmt/format.h>

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
// Whose groups a cache closes as tokens come.
template <typename F>
concept HasResidual = TokenGrouped<F> && requires(F family) {
  family.Residual();
  family.group = 1;
};

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
        if constexpr (TokenGrouped<F> && !HasResidual<F>) return family.TokenGroup() == 1;
        return true;
      },
      format);
}

std::vector<KvFormat> CacheFormats() {
  std::vector<KvFormat> formats = AllKvFormats();
  std::erase_if(formats, [](const KvFormat& format) { return !CachesKeep(format); });
  return formats;
}

void CheckCachesKeep(const KvFormat& format, const std::string& context) {
  if (CachesKeep(format)) return;
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
        if constexpr (HasResidual<F>) family.group = tokens;
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
        if constexpr (HasResidual<F>) return family.Residual();
        return 1;
      },
      format);
}

int64_t ClosedTokens(const KvFormat& format, int64_t tokens) {
  return tokens - tokens % ResidualOf(format);
}

int64_t StoredBytes(const KvFormat& format, int64_t head_dim, int64_t tokens, int64_t coded) {
  if (!GroupsTokens(format)) coded = tokens;
  const int64_t group = TokenGroupOf(format);
  const Planes planes = PlanesOf(format, group * head_dim);
  const auto of_group = static_cast<int64_t>(planes.RowBytes());
  int64_t stored = coded / group * of_group;
  // Of a group that is not whole, the codes of its tokens and what all of them share.
  if (const int64_t open = coded % group; open > 0) {
    stored += of_group - (group - open) * static_cast<int64_t>(planes[0].Bytes()) / group;
  }
  return stored + (tokens - coded) * head_dim * static_cast<int64_t>(SizeInBytes(RowDType(format)));
}

int64_t StoredBytes(const KvFormat& format, int64_t head_dim, int64_t tokens) {
  return StoredBytes(format, head_dim, tokens, ClosedTokens(format, tokens));
}

bool CanReturnTo(const KvFormat& format, int64_t tokens, int64_t left) {
  return left >= ClosedTokens(format, tokens) || left == ClosedTokens(format, left);
}

int64_t RoomBytes(const KvFormat& format, int64_t head_dim, int64_t tokens, int64_t coded) {
  if (!GroupsTokens(format)) return StoredBytes(format, head_dim, tokens);
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
  return !GroupsTokens(format) || (layout.kind == LayoutKind::kLinear && layout.window == 0);
}

}  // namespace kvcheck
