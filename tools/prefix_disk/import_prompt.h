// A prompt cache that mlx-lm has saved (golden/prompt_cache_file.h), kept as if a request had
// computed it: ExportPrompt the other way.

#ifndef TOOLS_PREFIX_DISK_IMPORT_PROMPT_H_
#define TOOLS_PREFIX_DISK_IMPORT_PROMPT_H_

#include <cstdint>
#include <span>
#include <string>

#include "optimized/prefix/prefix_cache.h"

namespace kvcheck {

// Keeps the prompt's K and V of the file; how many of its tokens hit from then on. prompt: the
// tokens that the file is of, which mlx-lm does not save. Codes are read as MLX reads them
// (decode=two_roundings), and encoded again where the setup keeps codes. 0: there is no room.
// setup: the cache's.
// Errors: those of ReadPromptCache and SafetensorsFile; kUsage: it is no prompt cache, or its
// layers, heads, channels, types or tokens are others than those of the setup and the prompt.
int64_t ImportPrompt(const std::string& path, optimized::PrefixCache* cache,
                     const PrefixSetup& setup, std::span<const int32_t> prompt,
                     const PrefixIdentity& who);

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_IMPORT_PROMPT_H_
