// Which conventions a cache follows where libraries differ on purpose about numbers that describe
// it. Everything else of the contract (reference/cache/contract.md) has no choice. Stated by the
// implementation and printed with every verdict.
//
// Text: fields of `key=value`, separated by one space; a field left out has the first value:
//   size=tokens|columns|any       tokens of the longest row that its newest query sees; any number
//                                 from there to the columns held (padding counted); not judged
//   bytes=live|capacity|any       live bytes are those of retained tokens; of everything allocated;
//                                 not judged
//   empty=contract|any            whether `empty` is judged
//   trimmable=contract|any        whether `is_trimmable` is judged
//   trim=longest|shorter          trim gives back as many tokens as retained ones allow; or fewer,
//                                 as long as the answer is what happened
//   regroup=never|all|open        which codes of groups of tokens an append may change
//   (contract.md,
//                                 section 4.1): none; all, whenever the residual is full; those of
//                                 the group that is not full yet
//   reads=after|before            what queries of an append that codes see: what is stored when it
//                                 has ended; or what was, and the new vectors themselves

#ifndef REFERENCE_SPEC_CACHE_PROFILE_H_
#define REFERENCE_SPEC_CACHE_PROFILE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace kvcheck {

enum class SizeRule : uint8_t { kTokens, kColumns, kAny };
enum class BytesRule : uint8_t { kLive, kCapacity, kAny };
enum class TrimRule : uint8_t { kLongest, kShorter };
enum class RegroupRule : uint8_t { kNever, kAll, kOpen };

struct CacheProfile {
  SizeRule size = SizeRule::kTokens;
  BytesRule bytes = BytesRule::kLive;
  bool any_empty = false;
  bool any_trimmable = false;
  TrimRule trim = TrimRule::kLongest;
  RegroupRule regroup = RegroupRule::kNever;
  bool reads_before = false;
  bool operator==(const CacheProfile&) const = default;
};

// Only the fields that differ from the defaults; "" for the default profile.
std::string Print(const CacheProfile& profile);
// Errors: kParse with the column.
CacheProfile ParseCacheProfile(std::string_view text);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CACHE_PROFILE_H_
