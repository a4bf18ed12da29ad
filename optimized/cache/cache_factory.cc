#include "optimized/cache/cache_factory.h"

#include "optimized/cache/optimized_cache.h"

namespace kvcheck::optimized {

CacheCapabilities OptimizedCacheFactory::GetCapabilities() const {
  return {"optimized", "1", {}, {}, {}};  // every answer states its plan
}

OpResult OptimizedCacheFactory::Start(const CacheSetup& setup) {
  if (setup.growth_tokens < 1) return OpResult::Refuse("a growth step holds at least 1 token");
  // In place: caches that are reused as `out` see the new setup.
  *setup_ = setup;
  return {};
}

OpResult OptimizedCacheFactory::New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v,
                                    int64_t rows, std::span<const int64_t> left_padding,
                                    std::unique_ptr<Cache>* out) {
  if (!IsLegal(layout)) {
    return OpResult::Refuse("the layout needs W and C of at least 1 and K below W");
  }
  if (const auto why = WhyNotFormats(*setup_, layout, k, v); !why.empty()) {
    return OpResult::Refuse(why);
  }
  if (rows < 0) return OpResult::Refuse("a batch has no negative number of rows");
  if (!left_padding.empty() && static_cast<int64_t>(left_padding.size()) != rows) {
    return OpResult::Refuse("left padding names another number of rows");
  }
  for (const int64_t padding : left_padding) {
    if (padding < 0) return OpResult::Refuse("left padding is negative");
  }
  OptimizedCache::Fresh(setup_, out)->Reset(layout, k, v, rows, left_padding);
  return {};
}

OpResult OptimizedCacheFactory::Merge(std::span<const Cache* const> caches,
                                      std::unique_ptr<Cache>* out) {
  if (caches.empty()) return OpResult::Refuse("nothing to merge");
  const auto* first = static_cast<const OptimizedCache*>(caches[0]);
  for (const Cache* cache : caches) {
    const auto* operand = static_cast<const OptimizedCache*>(cache);
    if (operand->row_count() != 1) return OpResult::Refuse("merge takes caches of one row");
    if (operand->pending()) {
      return OpResult::Refuse("a prepared prefill is pending: append or finalize first");
    }
    if (!(operand->layout() == first->layout())) return OpResult::Refuse("layouts differ");
    if (!(operand->k_format() == first->k_format()) ||
        !(operand->v_format() == first->v_format())) {
      return OpResult::Refuse("formats differ");
    }
  }
  OptimizedCache::Fresh(setup_, out)->MergeFrom(caches);
  return {};
}

}  // namespace kvcheck::optimized
