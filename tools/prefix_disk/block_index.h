// Which blocks a folder has, in which files, and under which weights they were computed: a table of
// SQLite. It is no witness of what a file holds: whoever reads one compares it with its hash and
// its key. An index that is damaged is replaced by an empty one, and what it named is forgotten.
//
// A change is one transaction, in a rollback journal: after the end of a process at any write the
// index is what it was before or after.

#ifndef TOOLS_PREFIX_DISK_BLOCK_INDEX_H_
#define TOOLS_PREFIX_DISK_BLOCK_INDEX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "golden/content_hash.h"
#include "optimized/prefix/block_tier.h"
#include "tools/prefix_disk/counted_vfs.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kvcheck {

struct IndexedBlock {
  Sha256Digest key;     // of all tokens up to its end (block_file.h)
  Sha256Digest before;  // that of the block before it
  int64_t number = 0;   // of its file
  int64_t bytes = 0;    // of its file
  optimized::BlockState state = optimized::BlockState::kPlain;
  Sha256Digest sha256;  // of its file
};

class BlockIndex {
 public:
  // Opens that of the folder, or makes one. writes: beyond this object's life.
  // Errors: kUnreadableFile: neither is possible. Of every call: PrefixKilled.
  explicit BlockIndex(FolderWrites* writes);
  ~BlockIndex();
  BlockIndex(const BlockIndex&) = delete;
  BlockIndex& operator=(const BlockIndex&) = delete;

  // Hexadecimal digits that no other folder and no earlier weights have.
  const std::string& epoch() const { return epoch_; }
  // Whether the one that was there was damaged.
  bool was_replaced() const { return was_replaced_; }

  bool Find(const Sha256Digest& key, IndexedBlock* block);
  // In place of what is there under their keys: *replaced gets the numbers of their files. used: of
  // recency, the same for all. False: they could not be written, and nothing has changed.
  bool Put(std::span<const IndexedBlock> blocks, int64_t used, std::vector<int64_t>* replaced);
  // They were used. False: as Put.
  bool Touch(std::span<const int64_t> numbers, int64_t used);
  // Of every block; f does not call this object.
  void ForEach(const std::function<void(const IndexedBlock&)>& f);
  int64_t TotalBytes();
  int64_t LastUsed();
  int64_t LastNumber();
  // Takes out the least recently used blocks that no other one stands behind, until at most so many
  // bytes are left; the numbers of their files.
  std::vector<int64_t> DropOldest(int64_t most_bytes);
  // No block is there. next_epoch: and other weights.
  void Clear(bool next_epoch);

 private:
  class Statement;

  bool Open();  // false: it is damaged
  void Close();
  void Replace();
  bool Execute(const char* sql);
  void Note(int result);
  void NoteRoom(int result);
  // Runs f in a transaction. False: nothing has changed.
  template <typename F>
  bool Transact(F f);
  bool ReadEpoch();
  bool WriteEpoch(const std::string& epoch);

  FolderWrites* const writes_;
  CountedVfs vfs_;
  sqlite3* db_ = nullptr;  // null: it could not be made anew, and nothing is stored
  std::string epoch_;
  bool was_replaced_ = false;
  bool is_damaged_ = false;  // seen by the last statement
};

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_BLOCK_INDEX_H_
