// Named plans of known kernels, with the reason for each. `base=NAME` in a plan text refers here, as
// does a bare NAME in its first place.

#ifndef REFERENCE_SPEC_KNOWN_PLANS_H_
#define REFERENCE_SPEC_KNOWN_PLANS_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/case.h"

namespace kvcheck {

// Where the values of some fields of a plan come from.
struct PlanSource {
  std::string_view fields;  // separated by spaces
  std::string_view source;
};

// The calls that a plan speaks of. A case outside of it is one that the page of the plan excludes:
// its bound is none for that kernel.
struct PlanScope {
  std::string_view types{};  // of q, separated by spaces; "": any
  int64_t least_queries = 0;
  int64_t most_queries = std::numeric_limits<int64_t>::max();
  std::string_view no_softcap{};  // why none may be asked; "": it may
  // Keys from which on a query's first visible key may not lie, because a tile of so many would be
  // wholly hidden by the window; 0: it may lie anywhere.
  int64_t first_tile = 0;
};

struct KnownPlan {
  std::string_view name;
  std::string_view kernel;  // of which it is the plan, in a line
  std::string_view text;    // a plan text without base= and name=
  std::string_view reason;  // where the numbers come from
  PlanScope scope{};
  std::span<const PlanSource> sources{};       // of its own fields
  std::span<const PlanSource> more_sources{};  // of fields that it shares with others
};

std::span<const KnownPlan> KnownPlans();
// nullptr when there is none of this name.
const KnownPlan* FindKnownPlan(std::string_view name);

// Where the value of a field comes from; "" where nothing is said of it.
std::string_view SourceOf(const KnownPlan& plan, std::string_view field);

// Keys of a plan's text, base and name among them.
std::vector<std::string> PlanKeys();

// What of the case the plan excludes, a sentence each ("softcap: its relative error ..."); empty
// where it holds.
std::vector<std::string> ExcludedBy(const KnownPlan& plan, const AttentionCase& c);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_KNOWN_PLANS_H_
