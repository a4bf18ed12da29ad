// Drives optimized caches by rows with labels, and writes down what attention would use: the token
// at a position of a labelled row has the same vectors in whatever cache and at whatever time it is
// appended, so that what two caches show of a row can be compared.

#ifndef TESTS_OPTIMIZED_CACHE_ROW_PROBE_H_
#define TESTS_OPTIMIZED_CACHE_ROW_PROBE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "optimized/cache/cache_factory.h"
#include "reference/spec/cache_implementation.h"

namespace kvcheck {

// What a row gets of an append: padding, then the tokens of its label from `position` on, then
// padding again.
struct RowFeed {
  int64_t label = 0;
  int64_t position = 0;
  int64_t padding = 0;
  int64_t tokens = 0;
};

// Tokens as their stored bytes, K and V of all heads.
using TokenSet = std::multiset<std::string>;

struct RowState {
  int64_t offset = 0;
  int64_t unfed_padding = 0;
  TokenSet retained;
  bool operator==(const RowState&) const = default;
};

// Of the tokens that one append gave to a row: what each sees, and attention's output.
struct RowStep {
  std::vector<TokenSet> visible;
  std::vector<std::string> attention;
  bool operator==(const RowStep&) const = default;
};

class RowProbe {
 public:
  explicit RowProbe(const CacheSetup& setup);

  std::unique_ptr<Cache> New(int64_t rows, const std::vector<int64_t>& padding = {});
  std::unique_ptr<Cache> Merge(const std::vector<const Cache*>& caches);
  std::unique_ptr<Cache> Copy(const Cache& cache);
  std::unique_ptr<Cache> Extract(const Cache& cache, int64_t row);
  std::unique_ptr<Cache> SaveAndLoad(const Cache& cache);
  // Appends without asking about the step, as while a prefill is pending.
  void Feed(Cache* cache, const std::vector<RowFeed>& rows, int64_t columns);
  std::vector<RowStep> Append(Cache* cache, const std::vector<RowFeed>& rows, int64_t columns);
  // Tokens [from, to) of one label to a cache of one row, in one append.
  RowStep AppendRow(Cache* cache, int64_t label, int64_t from, int64_t to);
  std::vector<RowState> States(Cache* cache);
  const CacheSetup& setup() const { return setup_; }

 private:
  CacheSetup setup_;
  std::vector<std::byte> q_;  // of the last append: (rows, query_heads, columns, k_dim)
  optimized::OptimizedCacheFactory factory_;
};

// A refused call fails the test.
void CheckOk(const OpResult& result);

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_CACHE_ROW_PROBE_H_
