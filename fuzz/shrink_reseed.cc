// The step of shrinking for failures that depend on the data: a shorter trace rarely holds the data
// that show them, but often does with another seed, or with more columns in an append.

#include <utility>

#include "fuzz/shrink_steps.h"

namespace kvcheck {
namespace {

// Enough vectors for what one in some hundred of them shows.
constexpr int64_t kManyColumns = 64;

// Every append that takes tokens has many columns.
CacheCase WithMany(const CacheCase& c) {
  CacheCase more = c;
  for (CacheOp& op : more.ops) {
    if (op.kind == CacheOpKind::kAppend && op.wrong == WrongColumns::kNothing) {
      op.count = kManyColumns;
    }
  }
  return more;
}

}  // namespace

CacheCase WithSeed(const CacheCase& c, uint64_t seed) {
  CacheCase other = c;
  other.setup.data.seed = seed;
  return other;
}

bool RemoveReseeded(const CacheCase& c, const Offer& offer) {
  const Offer with_data = [&](const CacheCase& candidate) {
    if (offer(candidate)) return true;
    for (const uint64_t seed : kSeeds) {
      if (offer(WithSeed(candidate, seed)) || offer(WithSeed(WithMany(candidate), seed))) {
        return true;
      }
    }
    return false;
  };
  return RemoveChunks(c, with_data) || FuseOperations(c, with_data) || BypassCopies(c, with_data) ||
         RebuildStates(c, with_data);
}

}  // namespace kvcheck
