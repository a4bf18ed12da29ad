// What an implementation of caches leaves open by its profile and its spaces: words that it states,
// or leaves out, and what is therefore not judged. A campaign that found nothing says so, because
// an adapter's author may not know the words.

#ifndef TOOLS_CORRIDOR_LEFT_OPEN_H_
#define TOOLS_CORRIDOR_LEFT_OPEN_H_

#include <string>
#include <vector>

#include "reference/spec/cache_profile.h"
#include "reference/spec/cache_space.h"
#include "reference/spec/prefix_profile.h"
#include "reference/spec/prefix_space.h"

namespace kvcheck {

// Each entry is a phrase with the word of the profile that takes it out: "which kept tokens an
// eviction leaves (evict=lru is not stated)". Empty: the profile takes out nothing.
std::vector<std::string> LeftOpen(const PrefixProfile& profile);
std::vector<std::string> LeftOpen(const CacheProfile& profile);

// What none of the spaces has and cases could ask for: operations, then "disk", "windows", ...
// Empty: everything is asked, as where no space is stated.
std::vector<std::string> NotAsked(const std::vector<PrefixSpace>& spaces);
std::vector<std::string> NotAsked(const std::vector<CacheSpace>& spaces);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_LEFT_OPEN_H_
