// Traces that save to real files: an HDF5 store in a folder of its own, whose files are damaged
// byte by byte and read in a supervised child.

#ifndef TOOLS_CORRIDOR_FILE_TRACE_STORE_H_
#define TOOLS_CORRIDOR_FILE_TRACE_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "golden/hdf5_state_store.h"
#include "reference/trace/trace_store.h"
#include "tools/report/own_folder.h"

namespace kvcheck {

class FileTraceStore : public TraceStore {
 public:
  // Errors: as OwnFolder.
  FileTraceStore();

  void Put(std::string_view key, const StateRecord& record) override;
  StoreStatus Get(std::string_view key, StateRecord* record) const override;
  void Clear() override;
  // truncate: the last byte of the file goes; flip: a bit of byte `at`, modulo the file's size;
  // foreign, version: a whole file whose record is another's.
  OpResult Damage(std::string_view key, const CacheOp& op) override;
  bool IsAsPut(std::string_view key) const override;

 private:
  OwnFolder folder_;
  Hdf5StateStore store_;
  std::map<std::string, std::string, std::less<>> originals_;  // files, of what has been damaged
};

inline constexpr const char* kMemoryStore = "memory";

// kMemoryStore (null: the runner's own) or "hdf5". Errors: kUsage; as FileTraceStore.
std::unique_ptr<TraceStore> MakeTraceStore(const std::string& name);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_FILE_TRACE_STORE_H_
