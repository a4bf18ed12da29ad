// Every change of a folder goes through here: whole files under temporary names until they are
// complete, and what SQLite writes (counted_vfs.h). Changes are counted, so that the process can be
// ended at any of them: that one is half done, and none follows.

#ifndef TOOLS_PREFIX_DISK_FOLDER_WRITES_H_
#define TOOLS_PREFIX_DISK_FOLDER_WRITES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvcheck {

// The parts of a file, one after the other.
using FileParts = std::span<const std::span<const std::byte>>;

// The file is these bytes and on disk, or what it was. False: it could not be written.
bool WriteWholeFile(const std::string& path, FileParts parts);

class FolderWrites {
 public:
  // Locks the folder, which is made where it is missing, for this object alone. sync: whether
  // changes reach the disk before they count as done; without it a crash of the machine may lose
  // them, the end of a process does not.
  // Errors: kUnreadableFile: it cannot be made or read, or another process has it.
  FolderWrites(std::string folder, bool sync);
  ~FolderWrites();
  FolderWrites(const FolderWrites&) = delete;
  FolderWrites& operator=(const FolderWrites&) = delete;

  bool sync() const { return sync_; }
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  enum class Fate { kWhole, kHalf, kNone };
  // Of the next change.
  Fate Next();
  // The process ends at this change, the next one being 1; 0: it goes on.
  void KillAt(int64_t change) { kill_at_ = change; }
  bool is_dead() const { return dead_; }
  // Errors: PrefixKilled, where the process has ended.
  void ThrowIfDead() const;

  // The file is these bytes, or what it was. False: it could not be written.
  // Errors: PrefixKilled.
  bool Write(const std::string& name, FileParts parts);
  // Why a change failed first, other than by KillAt; "": none did.
  const std::string& trouble() const { return trouble_; }
  void NoteTrouble(const std::string& reason);
  // Nothing where there is no such file. Errors: PrefixKilled.
  void Remove(const std::string& name);
  // What was renamed and removed so far stays so.
  void SyncFolder() const;
  // Names of its regular files.
  std::vector<std::string> Files() const;
  // False: it cannot be read.
  bool Read(const std::string& name, std::vector<std::byte>* bytes) const;

 private:
  const std::string folder_;
  const bool sync_;
  int lock_ = -1;  // of the folder itself: no file of it has to stay
  int64_t kill_at_ = 0;
  bool dead_ = false;
  std::string trouble_;
};

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_FOLDER_WRITES_H_
