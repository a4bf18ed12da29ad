// The file of one block of kept tokens: safetensors that mlx-lm's load_prompt_cache reads, where
// its caches have the format. Data are the block's bytes as optimized/prefix/block_bytes.h lays
// them out; everything before them follows from the key, so that a file is right where it equals
// what would be written.
//
// Tensors of a layer L, as KVCache and QuantizedKVCache of mlx-lm 0.32.2 have their states:
//   plain       L.0 (1, kv_heads, tokens, k_dim), L.1 likewise of V, L.2 the tokens (i32)
//   affine, K and V alike   L.0.{0,1,2} codes, scales, biases of K, L.1.{0,1,2} of V; L.2 tokens,
//   L.3
//               group size, L.4 bits (i32)
//   other       L.k.PLANE and L.v.PLANE; mlx-lm has no cache for them
// Metadata: 0.* is kvcheck's (layout, setup, who, tokens, position, before, key, epoch, state), 1.L
// the class of the layer's cache, 2.* its scalars.
// Source: mlx_lm/models/cache.py, save_prompt_cache.

#ifndef TOOLS_PREFIX_DISK_BLOCK_FILE_H_
#define TOOLS_PREFIX_DISK_BLOCK_FILE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "golden/content_hash.h"
#include "optimized/prefix/block_tier.h"

namespace kvcheck {

std::string HexOf(const Sha256Digest& digest);
// What of the setup says how bytes are to be read.
std::string SetupText(const PrefixSetup& setup);

// The key of no token: of a setup and an identity.
Sha256Digest RootKey(const PrefixSetup& setup, const PrefixIdentity& who);
// That of a block behind the one with the key `before`.
Sha256Digest NextKey(const Sha256Digest& before, std::span<const int32_t> tokens);

struct BlockFacts {
  const PrefixSetup* setup = nullptr;
  PrefixIdentity who;
  std::span<const int32_t> tokens;  // the block's own
  int64_t position = 0;             // of the first of them
  Sha256Digest before{};
  Sha256Digest key{};
  std::string epoch;
  optimized::BlockState state = optimized::BlockState::kPlain;
};
// Everything before the block's bytes.
std::string BlockFileHeader(const BlockFacts& facts);

// A header of safetensors for caches of so many tokens, and the scalars that precede the data.
// state: kCoded: in the formats of the setup.
std::string CacheHeader(const PrefixSetup& setup, optimized::BlockState state, int64_t tokens,
                        const std::map<std::string, std::string>& metadata);
// Bytes of the tensors that follow.
int64_t CacheBytes(const PrefixSetup& setup, optimized::BlockState state, int64_t tokens);

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_BLOCK_FILE_H_
