// Formats with a residual, as caches and what judges them see them: which tokens of a row are coded
// for good, how one token is shown, what a row takes. Groups along tokens are coded when they are
// whole (KIVI's keys); tokens coded by themselves when they leave the newest ones (KIVI's values).
// Of every other format a vector's codes are a function of it alone, and the answers are those of
// single vectors.

#ifndef REFERENCE_SPEC_TOKEN_GROUPS_H_
#define REFERENCE_SPEC_TOKEN_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/cache_layout.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {

// Tokens whose vectors are coded together, a stored row; 1: each by itself.
int64_t TokenGroupOf(const KvFormat& format);
inline bool GroupsTokens(const KvFormat& format) { return TokenGroupOf(format) > 1; }

// Whether caches store tokens in it. A format of pages (nvfp4:swizzled) is how an engine lays out
// in memory what caches keep as TokenFormatOf.
bool CachesKeep(const KvFormat& format);
// Those of AllKvFormats() in which they do, and FormatsOfCachesAlone().
std::vector<KvFormat> CacheFormats();
// Whether a cache keeps the newest tokens of a row as vectors, so that what it stores of a token is
// no function of its vector alone.
bool HasResidual(const KvFormat& format);
// Errors: kIllegalCase where they do not.
void CheckCachesKeep(const KvFormat& format, const std::string& context);

// The format in which the stored form of one token is shown and compared: itself, or that of a
// group of one token, or of a token in the residual or out of it.
KvFormat TokenFormatOf(const KvFormat& format);
// The format of a group that has come to `tokens` tokens; no text names it where these are no power
// of two. Itself where tokens are coded by themselves. Precondition: HasResidual.
KvFormat OpenGroupOf(const KvFormat& format, int64_t tokens);
// Its planes. Precondition: FitsTokens.
Planes TokenPlanesOf(const KvFormat& format, int64_t head_dim);
// Whether caches keep vectors of head_dim channels in it; CheckTokens throws as CheckHeadDim does.
bool FitsTokens(const KvFormat& format, int64_t head_dim);
void CheckTokens(const KvFormat& format, int64_t head_dim, const std::string& context);

// Room of a residual in tokens, a multiple of the group; 1: each token is coded as it comes, where
// there is none. Precondition here and below: CachesKeep.
int64_t ResidualOf(const KvFormat& format);
// Whether the oldest token of a full residual leaves it for each that comes, and is coded by
// itself; if not, a residual that is full is coded, all of it at once.
inline bool ResidualRolls(const KvFormat& format) { return IsOfCachesAlone(format); }
// How many of the first `tokens` tokens of a row are coded for good. The others are its residual.
int64_t ClosedTokens(const KvFormat& format, int64_t tokens);
// Bytes that these tokens of one head take, the first `coded` of them in groups, of which the last
// one need not be whole, and the others as vectors. Without `coded`: ClosedTokens.
int64_t StoredBytes(const KvFormat& format, int64_t head_dim, int64_t tokens, int64_t coded);
int64_t StoredBytes(const KvFormat& format, int64_t head_dim, int64_t tokens);

// Whether a row of `tokens` tokens that loses all but the first `left` is as if it had never had
// them: nothing that would be in its residual is coded.
bool CanReturnTo(const KvFormat& format, int64_t tokens, int64_t left);
// Bytes of one head's room for this many tokens: as StoredBytes, with a whole residual and whole
// groups.
int64_t RoomBytes(const KvFormat& format, int64_t head_dim, int64_t tokens, int64_t coded);
int64_t RoomBytes(const KvFormat& format, int64_t head_dim, int64_t tokens);

// Whether a cache of this layout can store the format: groups of tokens go whole or stay, a
// residual is of the newest tokens of all, and every layout but the linear one forgets tokens one
// by one.
bool KeepsGroups(const CacheLayout& layout, const KvFormat& format);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TOKEN_GROUPS_H_
