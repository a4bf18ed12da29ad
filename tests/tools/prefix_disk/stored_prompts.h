// Prompts stored in a folder and read from it, as a server would.

#ifndef TESTS_TOOLS_PREFIX_DISK_STORED_PROMPTS_H_
#define TESTS_TOOLS_PREFIX_DISK_STORED_PROMPTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/optimized/prefix/prompt_rows.h"
#include "tools/prefix_disk/prefix_disk.h"

namespace kvcheck {

using Tokens = std::vector<int32_t>;

// Files that no crash has to survive: none is synced.
inline constexpr PrefixDiskOptions kQuick = {.sync = false, .budget_bytes = 0};

// One process on a folder.
struct Store {
  PrefixSetup setup;
  PrefixDisk disk;
  optimized::PrefixCache cache;
  int64_t epoch = 0;  // of the rows that it computes

  Store(const PrefixSetup& of, const std::string& folder, const PrefixDiskOptions& options = {},
        int64_t weights = 0)
      : setup(of), disk(of, folder, options), cache(of, &disk), epoch(weights) {}

  // False: there was no room.
  bool Put(const Tokens& prompt, const PrefixIdentity& who = {}) {
    auto request = cache.Open(prompt, who, true);
    const auto hit = static_cast<size_t>(request->tokens());
    bool fits = true;
    if (hit < prompt.size()) {
      const optimized::Rows rows(setup, who, prompt, hit, epoch);
      fits = cache.Append(request.get(), std::span(prompt).subspan(hit), rows.vectors);
    }
    cache.Close(std::move(request), fits);
    return fits;
  }
  // Tokens that hit; -1: rows of them are wrong. Plain formats alone.
  int64_t Hit(const Tokens& prompt, const PrefixIdentity& who = {}, bool* from_disk = nullptr) {
    auto request = cache.Open(prompt, who, true);
    const int64_t tokens = request->tokens();
    if (from_disk != nullptr) *from_disk = request->is_from_tier();
    const optimized::Rows want(setup, who, std::span(prompt).first(static_cast<size_t>(tokens)), 0,
                               epoch);
    const bool is_right = optimized::ReadOf(&cache, setup, *request) == want;
    cache.Close(std::move(request), false);
    return is_right ? tokens : -1;
  }
};

}  // namespace kvcheck

#endif  // TESTS_TOOLS_PREFIX_DISK_STORED_PROMPTS_H_
