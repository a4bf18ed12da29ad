#include "reference/spec/token_groups.h"

#include <variant>

#include "reference/spec/dtype.h"

namespace kvcheck {
namespace {

template <typename F>
concept TokenGrouped = requires(const F& family) {
  family.TokenGroup();
  family.Residual();
  family.OfToken();
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
  return FitsHeadDim(TokenFormatOf(format), head_dim);
}

void CheckTokens(const KvFormat& format, int64_t head_dim, const std::string& context) {
  // A group that does not exist is named as it was written.
  CheckHeadDim(Exists(format) ? TokenFormatOf(format) : format, head_dim, context);
}

int64_t ResidualOf(const KvFormat& format) {
  return std::visit(
      []<typename F>(const F& family) -> int64_t {
        if constexpr (TokenGrouped<F>) return family.Residual();
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
  return !GroupsTokens(format) || (layout.kind == LayoutKind::kLinear && layout.window == 0);
}

}  // namespace kvcheck
