// Prompts whose K and V follow from tokens and identity, for tests of caches and of what keeps
// them.

#ifndef TESTS_OPTIMIZED_PREFIX_PROMPT_ROWS_H_
#define TESTS_OPTIMIZED_PREFIX_PROMPT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optimized/prefix/prefix_cache.h"
#include "reference/prefix/content.h"

namespace kvcheck::optimized {

inline PrefixSetup SetupOf(const std::string& text) {
  return ParsePrefixCase("prefix " + text + " data=tokens:1").setup;
}

// Dense K and V of the tokens of an identity, from the token `first` on.
struct Rows {
  std::vector<std::byte> k, v;
  PrefixVectors vectors;

  Rows(const PrefixSetup& setup, const PrefixIdentity& who, std::span<const int32_t> tokens,
       size_t first = 0, int64_t epoch = 0) {
    const RowLayout layout(setup);
    const auto count = static_cast<int64_t>(tokens.size() - first);
    const auto all = static_cast<size_t>(count * layout.layers * layout.heads);
    k.resize(all * static_cast<size_t>(layout.k_bytes));
    v.resize(all * static_cast<size_t>(layout.v_bytes));
    vectors = DenseVectors(setup, count, k.data(), v.data());
    uint64_t digest = EmptyDigest(1, epoch, IdentityHash(who));
    for (size_t i = 0; i < tokens.size(); ++i) {
      digest = NextDigest(digest, tokens[i]);
      if (i < first) continue;
      const auto token = static_cast<int64_t>(i - first);
      for (int64_t layer = 0; layer < layout.layers; ++layer) {
        for (int64_t head = 0; head < layout.heads; ++head) {
          FillContent(SignsOf(digest, layer, head, TokenPart::kKey), setup.x, setup.k_dim,
                      k.data() + (vectors.K(layer, head, token) - vectors.k));
          FillContent(SignsOf(digest, layer, head, TokenPart::kValue), setup.x, setup.v_dim,
                      v.data() + (vectors.V(layer, head, token) - vectors.v));
        }
      }
    }
  }
  bool operator==(const Rows& other) const { return k == other.k && v == other.v; }
};

// What the request has.
inline Rows ReadOf(PrefixCache* cache, const PrefixSetup& setup,
                   const PrefixCache::Request& request) {
  const std::vector<int32_t> none(static_cast<size_t>(request.tokens()));
  Rows rows(setup, {}, none);
  cache->Read(request, {rows.k.data(), rows.v.data(), request.tokens()});
  return rows;
}

}  // namespace kvcheck::optimized

#endif  // TESTS_OPTIMIZED_PREFIX_PROMPT_ROWS_H_
