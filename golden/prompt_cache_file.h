// Prompt caches as mlx-lm's save_prompt_cache writes them: safetensors with the K and V of every
// layer, plain or in affine codes.
//
//   mlx-lm   tensors of layer N                            metadata
//   0.32     N.0 keys, N.1 values, N.2 tokens; of codes    0.KEY the user's, 1.N class, 2.* scalars
//            N.0.0 to N.0.2 codes, scales, biases,
//            N.1.* of values, N.3 group size, N.4 bits
//   older    N.0, N.1 or N.0.*, N.1.*                      0.N state, 1.KEY the user's, 2.N class
//
// The older state of codes, 0.N.*, is (tokens, group size, bits), once with a number before it that
// means nothing any more; with K and V apart there are five: tokens, and group size and bits of K
// and V. Which is which follows from the numbers: bits are at most 8, groups at least 32, K comes
// before V.
// Source: mlx_lm/models/cache.py of 0.24.0, 0.31.3 and 0.32.2; mlx-lm pull request 1074.

#ifndef GOLDEN_PROMPT_CACHE_FILE_H_
#define GOLDEN_PROMPT_CACHE_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

struct PromptCacheLayer {
  int64_t tokens = 0;
  int64_t batch = 0;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  KvFormat k;
  KvFormat v;
  // By the names of an attention case: "k", or "k_codes", "k_scales" and "k_biases"; and of v. Each
  // (B, Hkv, T, ...), of the layer's tokens alone.
  TensorMap tensors;
};

struct PromptCache {
  std::map<std::string, std::string> about;  // what its user wrote
  std::vector<PromptCacheLayer> layers;
};

// Whether a file says that it is one.
bool IsPromptCache(const FileIndex& index);

// Errors: kUnsupported: a cache of another class than KVCache, ConcatenateKVCache and
// QuantizedKVCache (a ring does not hold a prompt), or one without tokens; kUnreadableFile: tensors
// or numbers that are missing, or do not fit each other.
// Precondition: IsPromptCache(source->index()).
PromptCache ReadPromptCache(TensorSource* source);

}  // namespace kvcheck

#endif  // GOLDEN_PROMPT_CACHE_FILE_H_
