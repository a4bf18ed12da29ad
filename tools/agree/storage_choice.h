// Which caches are asked about, from the texts of a command line.

#ifndef TOOLS_AGREE_STORAGE_CHOICE_H_
#define TOOLS_AGREE_STORAGE_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/agree/path.h"

namespace kvcheck {

// Each text a format, a pattern of formats, or "K,V": a format of K and one of V. None: full
// precision and one format of every kind that engines deploy, with bf16 rows. layouts: "linear",
// "ring"; each format comes once per layout.
// Errors: as ChooseFormats (tools/measure); kUsage for another layout.
std::vector<PathStorage> ChooseStorages(const std::vector<std::string>& formats,
                                        const std::vector<std::string>& layouts, PathFault fault,
                                        int64_t head_dim);

// "q8_0", or "q8_0,q4_0" where K and V differ.
std::string PrintFormats(const PathStorage& storage);
std::string PrintLayout(const PathStorage& storage);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_STORAGE_CHOICE_H_
