// Faults of formats with a residual: when what it holds is coded, with what, and what a row that
// loses tokens may forget of it.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/token_groups.h"
#include "tools/faults/cache_fault_rules.h"

namespace kvcheck::cache_fault {

// One token later than the residual is full.
CacheRules GroupsCloseLate() {
  CacheRules rules;
  rules.groups.closed = [hits = rules.hits](const KvFormat& format, int64_t tokens,
                                            int64_t* closed) {
    const int64_t late = ClosedTokens(format, std::max<int64_t>(0, tokens - 1));
    if (late == *closed) return;
    *closed = late;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules GroupsNeverClose() {
  CacheRules rules;
  rules.groups.groups = [hits = rules.hits](const KvFormat&, int64_t,
                                            std::vector<int64_t>* groups) {
    if (groups->empty()) return;
    groups->clear();
    hits->fetch_add(1);
  };
  return rules;
}

// All that is closed, from what it reads as, whenever a group is coded.
CacheRules ClosedGroupsCodedAgain() {
  CacheRules rules;
  rules.groups.groups = [hits = rules.hits](const KvFormat& format, int64_t,
                                            std::vector<int64_t>* groups) {
    if (groups->empty() || groups->front() == 0) return;
    std::vector<int64_t> all;
    for (int64_t first = 0; first < groups->front(); first += TokenGroupOf(format)) {
      all.push_back(first);
    }
    groups->insert(groups->begin(), all.begin(), all.end());
    hits->fetch_add(1);
  };
  return rules;
}

// Under a profile that codes all again when the residual is full: at every append.
CacheRules RegroupsBeforeTheResidualIsFull() {
  CacheRules rules;
  rules.profile.regroup = RegroupRule::kAll;
  rules.groups.groups = [hits = rules.hits](const KvFormat& format, int64_t tokens,
                                            std::vector<int64_t>* groups) {
    const int64_t group = TokenGroupOf(format);
    if (!groups->empty() || tokens < group) return;
    for (int64_t first = 0; first + group <= tokens; first += group) groups->push_back(first);
    hits->fetch_add(1);
  };
  return rules;
}

// Under a profile that codes again only the group that is not full yet: the one before it too.
CacheRules RegroupsAFullGroup() {
  CacheRules rules;
  rules.profile.regroup = RegroupRule::kOpen;
  rules.groups.groups = [hits = rules.hits](const KvFormat& format, int64_t,
                                            std::vector<int64_t>* groups) {
    if (groups->empty() || groups->front() == 0) return;
    groups->insert(groups->begin(), groups->front() - TokenGroupOf(format));
    hits->fetch_add(1);
  };
  return rules;
}

// What follows the codes of a vector, its scales and zeros, of the group before.
CacheRules GroupScalesOfTheLast() {
  CacheRules rules;
  rules.groups.coded = [hits = rules.hits](const KvFormat& format,
                                           std::span<const std::byte* const> before,
                                           std::span<std::byte* const> group, size_t vector_bytes) {
    if (before.empty()) return;
    // Bytes of all planes are to those of the codes as of any number of channels.
    const Planes planes = TokenPlanesOf(format, BlockOf(TokenFormatOf(format)));
    const size_t codes = vector_bytes * planes[0].Bytes() / planes.RowBytes();
    for (size_t t = 0; t < group.size(); ++t) {
      const bool same = std::memcmp(group[t] + codes, before[t] + codes, vector_bytes - codes) == 0;
      std::memcpy(group[t] + codes, before[t] + codes, vector_bytes - codes);
      if (!same) hits->fetch_add(1);
    }
  };
  return rules;
}

namespace {

// Of a residual that gives up one token for each that comes, how many tokens have left it.
CacheRules Leaving(int64_t (*left)(int64_t residual, int64_t tokens)) {
  CacheRules rules;
  rules.groups.closed = [left, hits = rules.hits](const KvFormat& format, int64_t tokens,
                                                  int64_t* closed) {
    if (!ResidualRolls(format)) return;
    const int64_t other = left(ResidualOf(format), tokens);
    if (other == *closed) return;
    *closed = other;
    hits->fetch_add(1);
  };
  return rules;
}

}  // namespace

CacheRules ResidualOneShort() {
  return Leaving(
      [](int64_t residual, int64_t tokens) { return std::max<int64_t>(0, tokens - residual + 1); });
}

// As that of keys: all of it as soon as it is full.
CacheRules ResidualFlushedWhole() {
  return Leaving([](int64_t residual, int64_t tokens) { return tokens - tokens % residual; });
}

// Of what leaves such a residual, coded as KIVI writes it: 2^bits levels in place of 2^bits - 1.
CacheRules ValuesStepOfOneLevelMore() {
  CacheRules rules;
  rules.groups.coded = [hits = rules.hits](const KvFormat& format,
                                           std::span<const std::byte* const>,
                                           std::span<std::byte* const> group, size_t vector_bytes) {
    if (!ResidualRolls(format)) return;
    // Of one block of channels; all heads have as many.
    const int64_t block = BlockOf(format);
    const Planes planes = TokenPlanesOf(format, block);
    const size_t blocks = vector_bytes / planes.RowBytes();
    const double levels =
        std::exp2(static_cast<double>(planes[0].Bytes()) * 8 / static_cast<double>(block));
    std::vector<double> scales(blocks);
    for (std::byte* token : group) {
      std::byte* at = token + blocks * planes[0].Bytes();
      const std::vector<std::byte> before(at, at + blocks * planes[1].Bytes());
      DecodeBytes(at, planes[1].dtype, scales);
      for (double& scale : scales) scale = RoundTo(planes[1].dtype, scale * (levels - 1) / levels);
      EncodeFrom(scales, planes[1].dtype, at);
      if (!std::equal(before.begin(), before.end(), at)) hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules TrimIntoClosedGroup() {
  CacheRules rules;
  rules.trim_reach = [hits = rules.hits](const ModelState& state, int64_t count, int64_t* reach) {
    if (!HasResidual(state.k) && !HasResidual(state.v)) return;
    int64_t most = state.rows.size() == 0 ? 0 : count;
    for (const ModelRow& row : state.rows) most = std::min(most, row.offset);
    if (most <= *reach) return;
    *reach = most;
    hits->fetch_add(1);
  };
  return rules;
}

}  // namespace kvcheck::cache_fault
