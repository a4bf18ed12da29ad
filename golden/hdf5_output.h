// Writing HDF5 files: a file that appears under its name when all of it is on disk, and the storage
// of its datasets.

#ifndef GOLDEN_HDF5_OUTPUT_H_
#define GOLDEN_HDF5_OUTPUT_H_

#include <hdf5.h>

#include <functional>
#include <string>

#include "golden/hdf5_handle.h"
#include "reference/spec/dtype.h"
#include "reference/spec/shape.h"

namespace kvcheck {

// A file under a temporary name in the folder of its path, until Commit.
class Hdf5Output {
 public:
  // user_block_bytes: before the HDF5 file, which the library leaves alone; 0, or a power of two
  // from 512. Errors: kUnreadableFile when the folder cannot be written.
  explicit Hdf5Output(const std::string& path, hsize_t user_block_bytes = 0);
  // Without Commit: nothing appears under the path.
  ~Hdf5Output();
  Hdf5Output(const Hdf5Output&) = delete;
  Hdf5Output& operator=(const Hdf5Output&) = delete;

  const std::string& path() const { return path_; }
  hid_t file() const { return file_.get(); }

  // Closes, calls `seal` with the name that the file still has, syncs, renames into place.
  // Errors: kUnreadableFile, and what seal throws.
  void Commit(const std::function<void(const std::string& temporary)>& seal = {});

 private:
  std::string path_;
  std::string temporary_;  // empty once renamed
  Hdf5Handle file_;
};

enum class Hdf5Storage {
  kContiguous,
  kChunked,   // with Fletcher32, in chunks of at most 256 KiB
  kDeflated,  // chunked and compressed
};

// A new dataset in the storage type of the dtype; scalars and tensors without elements are
// contiguous. The group that holds it is there. Errors: kUnreadableFile.
Hdf5Handle CreateDataset(const Hdf5Output& output, const std::string& name, DType dtype,
                         const Shape& shape, Hdf5Storage storage);

// Errors: kUnreadableFile.
Hdf5Handle CreateGroup(const Hdf5Output& output, const std::string& name);

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_OUTPUT_H_
