#include "tools/corridor/left_open.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvcheck {
namespace {

// Adds a phrase where the profile has the value.
struct Phrases {
  std::vector<std::string> list;
  void Add(bool is_open, std::string phrase) {
    if (is_open) list.push_back(std::move(phrase));
  }
};

template <typename Space, typename Has>
bool NoneOf(const std::vector<Space>& spaces, Has has) {
  return !spaces.empty() && std::none_of(spaces.begin(), spaces.end(), has);
}

template <typename Kind, typename Space>
void AddOperations(const std::vector<Space>& spaces, int kinds, Phrases* phrases) {
  for (int i = 0; i < kinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    phrases->Add(NoneOf(spaces, [&](const Space& space) { return space.Has(kind); }),
                 std::string(Name(kind)));
  }
}

}  // namespace

std::vector<std::string> LeftOpen(const PrefixProfile& profile) {
  Phrases phrases;
  phrases.Add(!profile.evicts_lru,
              "which kept tokens an eviction leaves (evict=lru is not stated)");
  phrases.Add(profile.partial == PartialHit::kLonger,
              "prompts that leave a kept one before its end (partial=longer)");
  phrases.Add(profile.partial == PartialHit::kPrefix,
              "prompts that leave a kept one before its end, or end inside it (partial=prefix)");
  phrases.Add(
      profile.partial == PartialHit::kLastBlock,
      "where there is a window, prompts that leave a kept one before its last block, or end "
      "there (partial=last_block)");
  phrases.Add(
      profile.minimum_tokens > 1,
      fmt::format("prompts of fewer tokens than {0} (minimum={0})", profile.minimum_tokens));
  phrases.Add(profile.superseded_dropped,
              "kept prompts that a longer one begins with (superseded=dropped)");
  phrases.Add(profile.fetch_takes, "what is there after a hit (fetch=takes)");
  phrases.Add(profile.busy_refused, "clear, epoch and load while requests are open (busy=refused)");
  phrases.Add(profile.flips_served, "rows of files with a changed bit (flips=served)");
  phrases.Add(profile.slack > 0,
              fmt::format("budgets that are passed by {0} or less (slack={0})", profile.slack));
  return phrases.list;
}

std::vector<std::string> LeftOpen(const CacheProfile& profile) {
  Phrases phrases;
  phrases.Add(profile.trim == TrimRule::kShorter,
              "whether trim gives back all that it could (trim=shorter)");
  phrases.Add(profile.size == SizeRule::kAny, "size (size=any)");
  phrases.Add(profile.bytes == BytesRule::kAny, "bytes (bytes=any)");
  phrases.Add(profile.any_empty, "empty (empty=any)");
  phrases.Add(profile.any_trimmable, "is_trimmable (trimmable=any)");
  return phrases.list;
}

std::vector<std::string> NotAsked(const std::vector<PrefixSpace>& spaces) {
  Phrases phrases;
  AddOperations<PrefixOpKind>(spaces, kPrefixOpKinds, &phrases);
  constexpr std::pair<bool PrefixSpace::*, const char*> kParts[] = {
      {&PrefixSpace::all, "hits of the last token"},
      {&PrefixSpace::quantizes, "storage in codes"},
      {&PrefixSpace::windows, "windows"},
      {&PrefixSpace::entries, "limits of entries"},
      {&PrefixSpace::disk, "disk"},
      {&PrefixSpace::tiers, "tiers"},
  };
  for (const auto& [member, name] : kParts) {
    phrases.Add(NoneOf(spaces, [&](const PrefixSpace& space) { return space.*member; }), name);
  }
  return phrases.list;
}

std::vector<std::string> NotAsked(const std::vector<CacheSpace>& spaces) {
  Phrases phrases;
  AddOperations<CacheOpKind>(spaces, kCacheOpKinds, &phrases);
  phrases.Add(NoneOf(spaces, [](const CacheSpace& s) { return s.rows != SpaceRows::kSingle; }),
              "batches");
  phrases.Add(NoneOf(spaces, [](const CacheSpace& s) { return s.padding; }), "padding");
  return phrases.list;
}

}  // namespace kvcheck
