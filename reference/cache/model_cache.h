// The model as an implementation of caches: the contract's rows with real bytes behind the tokens,
// slow and obvious. With one rule replaced it is a mutant; with another profile it is the model of
// a cache that states it. It evicts as late as the contract allows: at the next append.

#ifndef REFERENCE_CACHE_MODEL_CACHE_H_
#define REFERENCE_CACHE_MODEL_CACHE_H_

#include <memory>
#include <string>

#include "reference/cache/rules.h"
#include "reference/spec/cache_implementation.h"

namespace kvcheck {

struct ModelSpace;  // what the caches of one factory share

class ModelFactory : public CacheFactory {
 public:
  explicit ModelFactory(CacheRules rules = {}, std::string name = "model");
  ~ModelFactory() override;

  CacheCapabilities GetCapabilities() const override;
  OpResult Start(const CacheSetup& setup) override;
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> left_padding, std::unique_ptr<Cache>* out) override;
  OpResult Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) override;
  OpResult Load(const StateStore& store, std::string_view key,
                std::unique_ptr<Cache>* out) override;
  // How often the replaced rule made a difference.
  int64_t Hits() const;

 private:
  std::shared_ptr<ModelSpace> space_;
  std::string name_;
};

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_MODEL_CACHE_H_
