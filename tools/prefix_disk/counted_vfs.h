// SQLite's own writes as changes of the folder (folder_writes.h): a VFS that passes everything on
// to the system's, until the process has ended. Source: https://sqlite.org/vfs.html;
// test_vfstrace.c of SQLite is built likewise.

#ifndef TOOLS_PREFIX_DISK_COUNTED_VFS_H_
#define TOOLS_PREFIX_DISK_COUNTED_VFS_H_

#include <memory>

#include "tools/prefix_disk/folder_writes.h"

namespace kvcheck {

class CountedVfs {
 public:
  // writes: beyond this object's life.
  explicit CountedVfs(FolderWrites* writes);
  // Precondition: no connection uses it any more.
  ~CountedVfs();
  CountedVfs(const CountedVfs&) = delete;
  CountedVfs& operator=(const CountedVfs&) = delete;

  const char* name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvcheck

#endif  // TOOLS_PREFIX_DISK_COUNTED_VFS_H_
