// The file of a saved store: safetensors of two tensors, `index`, a line a block in text, and
// `blocks`, their bytes one after the other. Metadata: layout, setup, epoch, and the SHA-256 of
// these and the data. The file stands alone: neither the index of the folder nor other files are
// needed to read it.

#ifndef TOOLS_PREFIX_DISK_SAVED_STORE_H_
#define TOOLS_PREFIX_DISK_SAVED_STORE_H_

#include <cstddef>
#include <span>
#include <string>

#include "optimized/prefix/block_tier.h"

namespace kvcheck {

// What precedes the blocks' bytes.
struct SavedStore {
  std::string header;
  std::string index;
};
SavedStore WriteSavedStore(const PrefixSetup& setup, const std::string& epoch,
                           const optimized::KeptStore& store);

// "" where the file is a store of this setup and epoch; else why it is not. path: for messages.
std::string ReadSavedStore(const PrefixSetup& setup, const std::string& epoch,
                           std::span<const std::byte> file, const std::string& path,
                           optimized::KeptStore* store);

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_SAVED_STORE_H_
