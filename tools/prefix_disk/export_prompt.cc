#include "tools/prefix_disk/export_prompt.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "tools/prefix_disk/block_file.h"
#include "tools/prefix_disk/folder_writes.h"

namespace kvcheck {

int64_t ExportPrompt(optimized::PrefixCache* cache, const PrefixSetup& setup,
                     std::span<const int32_t> prompt, const PrefixIdentity& who,
                     const std::string& path) {
  std::unique_ptr<optimized::PrefixCache::Request> request = cache->Open(prompt, who, true);
  const int64_t tokens = request->tokens();
  const auto layer_bytes = [&](int64_t dim) {
    return static_cast<size_t>(setup.kv_heads * tokens * dim) * SizeInBytes(setup.x);
  };
  const size_t k_bytes = layer_bytes(setup.k_dim);
  const size_t v_bytes = layer_bytes(setup.v_dim);
  const auto layers = static_cast<size_t>(setup.layers);
  std::vector<std::byte> k(layers * k_bytes);
  std::vector<std::byte> v(layers * v_bytes);
  cache->Read(*request, {k.data(), v.data(), tokens});
  cache->Close(std::move(request), /*keep=*/false);
  if (tokens == 0) return 0;
  const std::string header = CacheHeader(setup, optimized::BlockState::kPlain, tokens,
                                         {{"layout", "kvcheck prompt 1"}, {"who", Print(who)}});
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(header))};
  for (size_t layer = 0; layer < layers; ++layer) {
    parts.emplace_back(k.data() + layer * k_bytes, k_bytes);
    parts.emplace_back(v.data() + layer * v_bytes, v_bytes);
  }
  if (!WriteWholeFile(path, parts)) {
    throw Error(ErrorCode::kUnreadableFile, "the prompt cannot be written", path);
  }
  return tokens;
}

}  // namespace kvcheck
