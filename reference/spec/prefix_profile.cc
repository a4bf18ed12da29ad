#include "reference/spec/prefix_profile.h"

#include <fmt/format.h>

#include "reference/spec/enum_text.h"
#include "reference/spec/prefix_limits.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

constexpr EnumNames<HitGrain, 2> kGrains = {
    {{HitGrain::kBlock, "block"}, {HitGrain::kToken, "token"}}};
constexpr EnumNames<LastToken, 4> kLast = {{{LastToken::kAsked, "asked"},
                                            {LastToken::kAlways, "always"},
                                            {LastToken::kExact, "exact"},
                                            {LastToken::kNever, "never"}}};
constexpr EnumNames<PartialHit, 4> kPartial = {{{PartialHit::kCommon, "common"},
                                                {PartialHit::kLonger, "longer"},
                                                {PartialHit::kPrefix, "prefix"},
                                                {PartialHit::kLastBlock, "last_block"}}};
constexpr EnumNames<Persists, 3> kPersists = {
    {{Persists::kSettle, "settle"}, {Persists::kClose, "close"}, {Persists::kNever, "never"}}};

// Fields of two values, the default first.
struct Choice {
  std::string_view key;
  bool PrefixProfile::* member;
  EnumNames<bool, 2> values;
};
constexpr Choice kChoices[] = {
    {"tail", &PrefixProfile::tail_kept, {{{false, "dropped"}, {true, "kept"}}}},
    {"superseded", &PrefixProfile::superseded_dropped, {{{false, "kept"}, {true, "dropped"}}}},
    {"fetch", &PrefixProfile::fetch_takes, {{{false, "keeps"}, {true, "takes"}}}},
    {"shares", &PrefixProfile::shares_live, {{{false, "kept"}, {true, "live"}}}},
    {"publishes", &PrefixProfile::publishes_at_write, {{{false, "close"}, {true, "write"}}}},
    {"evict", &PrefixProfile::evicts_lru, {{{false, "any"}, {true, "lru"}}}},
    {"busy", &PrefixProfile::busy_refused, {{{false, "works"}, {true, "refused"}}}},
    {"flips", &PrefixProfile::flips_served, {{{false, "refused"}, {true, "served"}}}},
};

}  // namespace

std::string Print(const PrefixProfile& profile) {
  const PrefixProfile usual;
  std::string text;
  const auto add = [&text](std::string_view key, std::string_view value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  };
  if (profile.grain != usual.grain) add("grain", NameIn(kGrains, profile.grain));
  if (profile.last != usual.last) add("last", NameIn(kLast, profile.last));
  if (profile.partial != usual.partial) add("partial", NameIn(kPartial, profile.partial));
  if (profile.minimum_tokens != 0) add("minimum", fmt::format("{}", profile.minimum_tokens));
  if (profile.persists != usual.persists) add("persists", NameIn(kPersists, profile.persists));
  if (profile.slack != 0) add("slack", fmt::format("{}", profile.slack));
  for (const Choice& choice : kChoices) {
    if (profile.*choice.member) add(choice.key, NameIn(choice.values, true));
  }
  return text;
}

PrefixProfile ParsePrefixProfile(std::string_view text) {
  Fields fields(WholeLine(text),
                "grain, last, tail, partial, minimum, superseded, fetch, shares, publishes, evict, "
                "busy, persists, flips, slack");
  PrefixProfile profile;
  Piece value;
  if (fields.TakeIf("grain", &value)) profile.grain = ParseEnum(kGrains, value);
  if (fields.TakeIf("last", &value)) profile.last = ParseEnum(kLast, value);
  if (fields.TakeIf("partial", &value)) profile.partial = ParseEnum(kPartial, value);
  if (fields.TakeIf("minimum", &value)) {
    profile.minimum_tokens = ParseInt(value, 0, prefix_limits::kMaxTokens);
  }
  if (fields.TakeIf("persists", &value)) profile.persists = ParseEnum(kPersists, value);
  if (fields.TakeIf("slack", &value)) {
    profile.slack = ParseInt(value, 0, prefix_limits::kMaxTokens);
  }
  for (const Choice& choice : kChoices) {
    if (fields.TakeIf(choice.key, &value)) profile.*choice.member = ParseEnum(choice.values, value);
  }
  fields.Finish();
  return profile;
}

}  // namespace kvcheck
