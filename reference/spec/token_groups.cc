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
concept HasResidual = TokenGrouped<F> && requires(const F& family) { family.Residual(); };

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

int64_t StoredBytes(const KvFormat& format, int64_t head_dim, int64_t tokens) {
  const int64_t group = TokenGroupOf(format);
  const int64_t closed = ClosedTokens(format, tokens);
  return closed / group * static_cast<int64_t>(PlanesOf(format, group * head_dim).RowBytes()) +
         (tokens - closed) * head_dim * static_cast<int64_t>(SizeInBytes(RowDType(format)));
}

bool CanReturnTo(const KvFormat& format, int64_t tokens, int64_t left) {
  return left >= ClosedTokens(format, tokens) || left == ClosedTokens(format, left);
}

int64_t RoomBytes(const KvFormat& format, int64_t head_dim, int64_t tokens) {
  const int64_t closed = ClosedTokens(format, tokens);
  if (!GroupsTokens(format)) return StoredBytes(format, head_dim, closed);
  return StoredBytes(format, head_dim, closed) +
         ResidualOf(format) * head_dim * static_cast<int64_t>(SizeInBytes(RowDType(format)));
}

bool KeepsGroups(const CacheLayout& layout, const KvFormat& format) {
  if (!CachesKeep(format)) return false;
  return !GroupsTokens(format) || (layout.kind == LayoutKind::kLinear && layout.window == 0);
}

}  // namespace kvcheck
