#include "tools/prefix_disk/import_prompt.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "golden/prompt_cache_file.h"
#include "golden/safetensors_file.h"
#include "optimized/formats/row_codec.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// "k" or "v" of a layer, in the type of its rows. Shape: out (heads, tokens, dim).
void DecodeRows(const PromptCacheLayer& layer, const std::string& name, const KvFormat& format,
                int64_t dim, std::byte* out) {
  if (IsPlain(format)) {
    const std::vector<std::byte>& bytes = layer.tensors.at(name).bytes;
    std::memcpy(out, bytes.data(), bytes.size());
    return;
  }
  optimized::RowCodec codec;
  codec.Start(format, RowDType(format), dim);
  const optimized::RowBytes bytes = codec.bytes();
  const optimized::StoredRowsView rows = {layer.tensors.at(name + "_codes").bytes.data(),
                                          layer.tensors.at(name + "_scales").bytes.data(),
                                          layer.tensors.at(name + "_biases").bytes.data(),
                                          bytes.codes, bytes.scales};
  codec.DecodeToRowType(rows, layer.kv_heads * layer.tokens, out);
}

void CheckLayer(const PromptCacheLayer& layer, size_t number, const PrefixSetup& setup,
                int64_t tokens, const std::string& path) {
  if (layer.batch == 1 && layer.kv_heads == setup.kv_heads && layer.k_dim == setup.k_dim &&
      layer.v_dim == setup.v_dim && layer.tokens == tokens && RowDType(layer.k) == setup.x &&
      RowDType(layer.v) == setup.x) {
    return;
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("layer {} has {} x {} heads of {} and {} channels in {} for {} tokens; "
                          "asked for are 1 x {} of {} and {} in {} for {}",
                          number, layer.batch, layer.kv_heads, layer.k_dim, layer.v_dim,
                          ShortName(RowDType(layer.k)), layer.tokens, setup.kv_heads, setup.k_dim,
                          setup.v_dim, ShortName(setup.x), tokens),
              path);
}

}  // namespace

int64_t ImportPrompt(const std::string& path, optimized::PrefixCache* cache,
                     const PrefixSetup& setup, std::span<const int32_t> prompt,
                     const PrefixIdentity& who) {
  SafetensorsFile file(path);
  if (!IsPromptCache(file.index())) {
    throw Error(ErrorCode::kUsage, "no prompt cache of mlx-lm", path);
  }
  const PromptCache saved = ReadPromptCache(&file);
  const auto tokens = static_cast<int64_t>(prompt.size());
  if (std::ssize(saved.layers) != setup.layers) {
    throw Error(ErrorCode::kUsage,
                fmt::format("it has {} layers, not {}", saved.layers.size(), setup.layers), path);
  }
  PrefixVectors vectors = DenseVectors(setup, tokens, nullptr, nullptr);
  std::vector<std::byte> k(static_cast<size_t>(setup.layers * vectors.k_strides.layer));
  std::vector<std::byte> v(static_cast<size_t>(setup.layers * vectors.v_strides.layer));
  for (size_t i = 0; i < saved.layers.size(); ++i) {
    const PromptCacheLayer& layer = saved.layers[i];
    CheckLayer(layer, i, setup, tokens, path);
    DecodeRows(layer, "k", layer.k, setup.k_dim,
               k.data() + i * static_cast<size_t>(vectors.k_strides.layer));
    DecodeRows(layer, "v", layer.v, setup.v_dim,
               v.data() + i * static_cast<size_t>(vectors.v_strides.layer));
  }
  std::unique_ptr<optimized::PrefixCache::Request> request = cache->Open(prompt, who, true);
  const int64_t hit = request->tokens();
  vectors.tokens = tokens - hit;
  vectors.k = k.data() + hit * vectors.k_strides.token;
  vectors.v = v.data() + hit * vectors.v_strides.token;
  const bool fits = hit == tokens ||
                    cache->Append(request.get(), prompt.subspan(static_cast<size_t>(hit)), vectors);
  cache->Close(std::move(request), /*keep=*/fits);
  return fits ? tokens - tokens % setup.block_tokens : 0;
}

}  // namespace kvcheck
