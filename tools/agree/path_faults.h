// Paths that are right but for one replaced rule, to show that `kvcheck agree` finds it and names
// the layer: mistakes that engines have made between a model and its cache.

#ifndef TOOLS_AGREE_PATH_FAULTS_H_
#define TOOLS_AGREE_PATH_FAULTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/cache_implementation.h"

namespace kvcheck {

enum class PathFault : uint8_t {
  kNone,
  kLeftPadding,  // the mask of left padding also hides the first token
  kKScale,       // K of head 1 is stored 1 + 1/8 times as large
  kSwappedV,     // V of the last two tokens of an append change places
  kRopeOffset,   // positions go on after a trim as if nothing had been trimmed
  kLastKey,      // the query's own key is not seen
};

struct PathFaultRow {
  PathFault fault;
  std::string_view name;  // after "fault:"
  std::string_view help;
};
std::span<const PathFaultRow> PathFaults();
// "optimized", or "fault:NAME". Errors: kUsage, with the names that there are.
PathFault ParsePath(const std::string& text);
std::string PrintPath(PathFault fault);

// The layer whose cache has the fault: the third, or the last of fewer.
int64_t FaultyLayer(int64_t layers);
// A cache with a fault of caches, made as the factory's New makes one.
OpResult NewFaultyCache(PathFault fault, CacheFactory* factory, const CacheLayout& layout,
                        const KvFormat& k, const KvFormat& v,
                        const std::vector<int64_t>& left_padding, std::unique_ptr<Cache>* out);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_PATH_FAULTS_H_
