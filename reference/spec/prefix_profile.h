// Which conventions a prefix cache follows where libraries differ on purpose. Everything else of
// the contract (reference/prefix/contract.md) has no choice. Stated by the implementation and
// printed with every verdict.
//
// Text: fields of `key=value`, separated by one space; a field left out has the first value:
//   grain=block|token            a hit ends at a multiple of the block; at any token
//   last=asked|always|exact|never
//                                whether the last token of a prompt may hit: where `open` says all;
//                                in any case; in any, and has to where that very prompt was
//                                kept; in none
//   tail=dropped|kept            of what is kept, tokens behind the last whole block
//   partial=common|longer|prefix|last_block
//                                what is found: the longest common prefix with anything kept; a
//                                kept prompt that is a prefix of it or that it is a prefix of; the
//                                former alone; in a case with a window, of a kept prompt the hits
//                                that need no rows but those that a hit at the start of its last
//                                block, or behind it, needs, elsewhere as `common`
//   minimum=N                    prompts of fewer tokens are not kept (0)
//   superseded=kept|dropped      a kept prompt goes when a longer one that it is a prefix of comes
//   fetch=keeps|takes            a hit leaves what was kept; or takes it out
//   shares=kept|live             what may hit: what was kept; what open requests hold, too
//   publishes=close|write        kept rows may hit from the close on that keeps them; a row may hit
//                                from its write on, and stays when its request is not kept
//   evict=any|lru                which of what nobody holds goes first
//   busy=works|refused           clear, epoch and load while requests are open
//   persists=settle|close|never  from when on a kept row survives a restart, where there is a disk;
//                                `never`: nothing does
//   flips=refused|served         a row of a file of which a bit has changed
//   slack=N                      entries, and blocks, by which a budget may be passed (0)

#ifndef REFERENCE_SPEC_PREFIX_PROFILE_H_
#define REFERENCE_SPEC_PREFIX_PROFILE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace kvcheck {

enum class HitGrain : uint8_t { kBlock, kToken };
enum class LastToken : uint8_t { kAsked, kAlways, kExact, kNever };
enum class PartialHit : uint8_t { kCommon, kLonger, kPrefix, kLastBlock };
enum class Persists : uint8_t { kSettle, kClose, kNever };

struct PrefixProfile {
  HitGrain grain = HitGrain::kBlock;
  LastToken last = LastToken::kAsked;
  bool tail_kept = false;
  PartialHit partial = PartialHit::kCommon;
  int64_t minimum_tokens = 0;
  bool superseded_dropped = false;
  bool fetch_takes = false;
  bool shares_live = false;
  bool publishes_at_write = false;
  bool evicts_lru = false;
  bool busy_refused = false;
  Persists persists = Persists::kSettle;
  bool flips_served = false;
  int64_t slack = 0;
  bool operator==(const PrefixProfile&) const = default;
};

// Only the fields that differ from the defaults; "" for the default profile.
std::string Print(const PrefixProfile& profile);
// Errors: kParse with the column.
PrefixProfile ParsePrefixProfile(std::string_view text);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PREFIX_PROFILE_H_
