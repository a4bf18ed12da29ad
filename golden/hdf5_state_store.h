// A store of saved caches in a folder: one HDF5 file a key, which programs without kvcheck can
// open. Format 1:
//
//   512 bytes   "kvcheck state 1\nsha256 <64 hex digits>\nbytes <decimal>\n", then NULs: the hash
//               and the number of all bytes behind them
//   HDF5        /attributes uint8: name, NUL, value, NUL, ...;  /tensors/NAME, contiguous
//
// Any changed byte and any other length is found before HDF5 sees the file. That is against damage
// and not against forgery: a forged file meets the reader's own checks, and no tensor of a file
// is larger than the file.

#ifndef GOLDEN_HDF5_STATE_STORE_H_
#define GOLDEN_HDF5_STATE_STORE_H_

#include <string>
#include <string_view>

#include "golden/tensor_file.h"
#include "reference/spec/state_store.h"

namespace kvcheck {

inline constexpr int64_t kStateHeaderBytes = 512;

class Hdf5StateStore : public StateStore {
 public:
  // folder: is there. open: reads HDF5 files (empty: in this process); for files of unknown origin
  // the tools give one that reads in a child.
  explicit Hdf5StateStore(std::string folder, LibraryOpener open = {});

  // Writes the file under another name in the folder, syncs it, renames it over the old one and
  // syncs the folder. A process that dies meanwhile leaves its other name behind
  // (KEY.h5.XXXXXX), which no key means.
  // Errors: kUsage for a key or a name of a tensor that is none of [A-Za-z0-9_.-], and for what the
  // format cannot say (a NUL in an attribute; two axes of a tensor of one name); kUnreadableFile
  // when it cannot be written, and then the old file is still there.
  void Put(std::string_view key, const StateRecord& record) override;
  StoreStatus Get(std::string_view key, StateRecord* record) const override;

  // FOLDER/KEY.h5. Errors: kUsage, as Put.
  std::string PathOf(std::string_view key) const;

 private:
  std::string folder_;
  LibraryOpener open_;
};

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_STATE_STORE_H_
