// Makes optimized caches (optimized_cache.h): every layout, every format of K and of V, single and
// batched, all operations.

#ifndef OPTIMIZED_CACHE_CACHE_FACTORY_H_
#define OPTIMIZED_CACHE_CACHE_FACTORY_H_

#include <memory>

#include "reference/spec/cache_implementation.h"

namespace kvcheck::optimized {

class OptimizedCacheFactory : public CacheFactory {
 public:
  CacheCapabilities GetCapabilities() const override;
  OpResult Start(const CacheSetup& setup) override;
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> left_padding, std::unique_ptr<Cache>* out) override;
  OpResult Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) override;
  OpResult Load(const StateStore& store, std::string_view key,
                std::unique_ptr<Cache>* out) override;

 private:
  // What the caches of this factory share.
  std::shared_ptr<CacheSetup> setup_ = std::make_shared<CacheSetup>();
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_CACHE_FACTORY_H_
