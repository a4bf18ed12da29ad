#include "tools/prefix_disk/counted_vfs.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <string>

namespace kvcheck {

// A copy of the system's VFS, whose other functions read nothing beyond it.
struct CountedVfs::State : sqlite3_vfs {
  sqlite3_vfs* system = nullptr;
  FolderWrites* writes = nullptr;
  std::string text;
};

namespace {

// The system's file stands behind it.
struct CountedFile : sqlite3_file {
  FolderWrites* writes;
  sqlite3_file* system() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

CountedFile* Of(sqlite3_file* file) { return static_cast<CountedFile*>(file); }
sqlite3_file* SystemOf(sqlite3_file* file) { return Of(file)->system(); }
const sqlite3_io_methods* MethodsOf(sqlite3_file* file) { return SystemOf(file)->pMethods; }

int Close(sqlite3_file* file) { return MethodsOf(file)->xClose(SystemOf(file)); }
int Read(sqlite3_file* file, void* out, int count, sqlite3_int64 at) {
  return MethodsOf(file)->xRead(SystemOf(file), out, count, at);
}
int Write(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 at) {
  const FolderWrites::Fate fate = Of(file)->writes->Next();
  if (fate == FolderWrites::Fate::kNone) return SQLITE_IOERR_WRITE;
  const bool is_whole = fate == FolderWrites::Fate::kWhole;
  const int result =
      MethodsOf(file)->xWrite(SystemOf(file), bytes, is_whole ? count : count / 2, at);
  return is_whole ? result : SQLITE_IOERR_WRITE;
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (Of(file)->writes->Next() != FolderWrites::Fate::kWhole) return SQLITE_IOERR_TRUNCATE;
  return MethodsOf(file)->xTruncate(SystemOf(file), size);
}
int Sync(sqlite3_file* file, int flags) {
  if (Of(file)->writes->is_dead()) return SQLITE_IOERR_FSYNC;
  return MethodsOf(file)->xSync(SystemOf(file), flags);
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return MethodsOf(file)->xFileSize(SystemOf(file), size);
}
int Lock(sqlite3_file* file, int level) { return MethodsOf(file)->xLock(SystemOf(file), level); }
int Unlock(sqlite3_file* file, int level) {
  return MethodsOf(file)->xUnlock(SystemOf(file), level);
}
int CheckReservedLock(sqlite3_file* file, int* result) {
  return MethodsOf(file)->xCheckReservedLock(SystemOf(file), result);
}
int FileControl(sqlite3_file* file, int what, void* argument) {
  return MethodsOf(file)->xFileControl(SystemOf(file), what, argument);
}
int SectorSize(sqlite3_file* file) { return MethodsOf(file)->xSectorSize(SystemOf(file)); }
int DeviceCharacteristics(sqlite3_file* file) {
  return MethodsOf(file)->xDeviceCharacteristics(SystemOf(file));
}

// Version 1: no shared memory and no mapping, by which pages would be written past xWrite.
sqlite3_io_methods Methods() {
  sqlite3_io_methods methods{};
  methods.iVersion = 1;
  methods.xClose = Close;
  methods.xRead = Read;
  methods.xWrite = Write;
  methods.xTruncate = Truncate;
  methods.xSync = Sync;
  methods.xFileSize = FileSize;
  methods.xLock = Lock;
  methods.xUnlock = Unlock;
  methods.xCheckReservedLock = CheckReservedLock;
  methods.xFileControl = FileControl;
  methods.xSectorSize = SectorSize;
  methods.xDeviceCharacteristics = DeviceCharacteristics;
  return methods;
}
const sqlite3_io_methods kMethods = Methods();

}  // namespace

CountedVfs::CountedVfs(FolderWrites* writes) : state_(std::make_unique<State>()) {
  sqlite3_vfs* system = sqlite3_vfs_find(nullptr);
  static_cast<sqlite3_vfs&>(*state_) = *system;
  state_->system = system;
  state_->writes = writes;
  state_->text = fmt::format("kvcheck-{}", fmt::ptr(this));
  state_->zName = state_->text.c_str();
  state_->pNext = nullptr;
  state_->szOsFile = static_cast<int>(sizeof(CountedFile)) + system->szOsFile;
  state_->xOpen = [](sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
                     int* got) -> int {
    const auto* state = static_cast<State*>(vfs);
    CountedFile* counted = Of(file);
    counted->pMethods = nullptr;
    counted->writes = state->writes;
    const int result = state->system->xOpen(state->system, name, counted->system(), flags, got);
    // A file that could not be opened may have to be closed all the same.
    if (counted->system()->pMethods != nullptr) counted->pMethods = &kMethods;
    return result;
  };
  state_->xDelete = [](sqlite3_vfs* vfs, const char* name, int sync) -> int {
    const auto* state = static_cast<State*>(vfs);
    if (state->writes->Next() != FolderWrites::Fate::kWhole) return SQLITE_IOERR_DELETE;
    return state->system->xDelete(state->system, name, sync);
  };
  sqlite3_vfs_register(state_.get(), /*makeDflt=*/0);
}

CountedVfs::~CountedVfs() { sqlite3_vfs_unregister(state_.get()); }

const char* CountedVfs::name() const { return state_->zName; }

}  // namespace kvcheck
