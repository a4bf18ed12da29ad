// The disk tier of optimized/prefix: an index (block_index.h) and a file a block (block_file.h) in
// one folder, and saved stores (saved_store.h) beside them.
//
// A block is there when the index says so, and is served when its file equals, byte by byte, what
// the key says it has to begin with, and has the hash that the index has. Files are written before
// the index names them and removed after it has forgotten them, so that the end of a process leaves
// at most files that nobody names; they go when the folder is opened.

#ifndef TOOLS_PREFIX_DISK_PREFIX_DISK_H_
#define TOOLS_PREFIX_DISK_PREFIX_DISK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optimized/prefix/block_tier.h"
#include "tools/prefix_disk/block_file.h"
#include "tools/prefix_disk/block_index.h"
#include "tools/prefix_disk/folder_writes.h"

namespace kvcheck {

struct PrefixDiskOptions {
  bool sync = true;          // as FolderWrites
  int64_t budget_bytes = 0;  // of the blocks' files; the least recently used go. 0: any number
};

// One thread at a time calls it: as a tier under the lock of its cache.
class PrefixDisk : public optimized::PrefixStorage {
 public:
  // Opens the folder, which is made where it is missing. Blocks of other setups stay there.
  // Errors: as FolderWrites and BlockIndex. Of every call: PrefixKilled, where KillAtWrite was
  // asked for.
  PrefixDisk(const PrefixSetup& setup, const std::string& folder,
             const PrefixDiskOptions& options = {});

  void Store(const optimized::TierKey& key, optimized::BlockState state,
             std::span<const std::byte> bytes) override;
  void Commit() override;
  bool Load(const optimized::TierKey& key, optimized::BlockState* state,
            std::vector<std::byte>* bytes) override;
  void Clear() override { Forget(/*next_epoch=*/false); }
  void Epoch() override { Forget(/*next_epoch=*/true); }
  void Settle() override { Commit(); }
  OpResult Save(int key, const optimized::KeptStore& store) override;
  OpResult Load(int key, optimized::KeptStore* store) override;
  std::string Unwritten() const override { return writes_.trouble(); }
  bool KillAtWrite(int64_t write) override;

  int64_t bytes() { return index_.TotalBytes(); }  // of the blocks' files
  // Whether the index that was there was damaged, and everything is forgotten.
  bool was_damaged() const { return index_.was_replaced(); }

 private:
  // What the file under the key is of. Prefixes that the prompt of the last call shares are not
  // hashed again.
  BlockFacts FactsOf(const optimized::TierKey& key, optimized::BlockState state);
  void Forget(bool next_epoch);
  void KeepToBudget();
  void RemoveFiles(std::span<const int64_t> numbers);
  void Sweep();

  const PrefixSetup setup_;
  const PrefixDiskOptions options_;
  FolderWrites writes_;
  BlockIndex index_;
  int64_t next_number_ = 1;
  int64_t next_used_ = 1;
  std::vector<IndexedBlock> stored_;  // since the last Commit
  std::vector<int64_t> used_;         // numbers of files, likewise
  // The last prompt, and the keys of its blocks.
  bool has_prompt_ = false;
  PrefixIdentity who_;
  std::vector<int32_t> prompt_;
  std::vector<Sha256Digest> keys_;
  std::string message_;
};

// Of kvcheck's own implementation (OptimizedPrefix::StorageMaker): without synchronization, which
// the end of a process does not need.
std::unique_ptr<optimized::PrefixStorage> MakePrefixDisk(const PrefixSetup& setup,
                                                         const std::string& folder);

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_PREFIX_DISK_H_
