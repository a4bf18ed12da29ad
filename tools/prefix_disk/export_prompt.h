// A kept prompt as one file that mlx-lm's load_prompt_cache reads: a KVCache a layer, of all tokens
// that are kept of it.

#ifndef TOOLS_PREFIX_DISK_EXPORT_PROMPT_H_
#define TOOLS_PREFIX_DISK_EXPORT_PROMPT_H_

#include <cstdint>
#include <span>
#include <string>

#include "optimized/prefix/prefix_cache.h"

namespace kvcheck {

// Writes what the cache has of the prompt, dequantized where it is kept in codes, in the setup's
// type; the number of its tokens, from the first one on. 0: nothing is kept of it, and no file is
// written. setup: the cache's.
// Errors: kUnreadableFile: the file cannot be written.
int64_t ExportPrompt(optimized::PrefixCache* cache, const PrefixSetup& setup,
                     std::span<const int32_t> prompt, const PrefixIdentity& who,
                     const std::string& path);

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_EXPORT_PROMPT_H_
