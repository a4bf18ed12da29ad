#include "golden/hdf5_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "golden/hdf5_types.h"
#include "reference/spec/error.h"
#include "reference/spec/temporary_paths.h"

namespace kvcheck {
namespace {

constexpr hsize_t kChunkBytes = hsize_t{256} * 1024;

[[noreturn]] void ThrowSystemError(std::string_view what, const std::string& path) {
  throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: {}", what, std::strerror(errno)), path);
}

void SyncPath(const std::string& path, int flags) {
  const int descriptor = open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) ThrowSystemError("it cannot be synced", path);
  const int status = fsync(descriptor);
  close(descriptor);
  if (status != 0) ThrowSystemError("it cannot be synced", path);
}

// Whole trailing axes up to kChunkBytes, then a part of the next one.
std::vector<hsize_t> ChunkExtents(const Shape& shape, size_t element_bytes) {
  std::vector<hsize_t> chunk(shape.axes.size(), 1);
  hsize_t bytes = element_bytes;
  for (size_t i = chunk.size(); i-- > 0;) {
    const auto extent = static_cast<hsize_t>(shape.axes[i].extent);
    chunk[i] = std::max<hsize_t>(1, std::min(extent, kChunkBytes / bytes));
    bytes *= chunk[i];
    if (chunk[i] < extent) break;
  }
  return chunk;
}

}  // namespace

Hdf5Output::Hdf5Output(const std::string& path, hsize_t user_block_bytes) : path_(path) {
  PrepareHdf5();
  std::string pattern = path + ".XXXXXX";
  const int descriptor = mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor < 0) ThrowSystemError("no file can be made beside it", path);
  fchmod(descriptor, 0644);  // mkostemp makes it private
  close(descriptor);
  temporary_ = pattern;
  RememberTemporary(temporary_);
  try {
    const Hdf5Handle access = OwnHdf5(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "HDF5 failed", path);
    H5Pset_file_locking(access.get(), false, true);
    // The oldest encodings that hold what is written: every HDF5 since 1.10 reads them.
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V110);
    const Hdf5Handle creation = OwnHdf5(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "HDF5 failed", path);
    CheckHdf5(H5Pset_userblock(creation.get(), user_block_bytes), "HDF5 failed", path);
    file_ = OwnHdf5(H5Fcreate(pattern.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
                    H5Fclose, "it cannot be created", path);
  } catch (const Error&) {
    RemoveTemporary(temporary_);
    throw;
  }
}

Hdf5Output::~Hdf5Output() {
  file_.Reset();
  if (!temporary_.empty()) RemoveTemporary(temporary_);
}

void Hdf5Output::Commit(const std::function<void(const std::string& temporary)>& seal) {
  CheckHdf5(file_.Reset(), "it cannot be written", path_);
  if (seal) seal(temporary_);
  SyncPath(temporary_, O_RDWR);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    ThrowSystemError("it cannot be put in place", path_);
  }
  RemoveTemporary(temporary_);  // it has its name now
  temporary_.clear();
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  SyncPath(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
}

Hdf5Handle CreateDataset(const Hdf5Output& output, const std::string& name, DType dtype,
                         const Shape& shape, Hdf5Storage storage) {
  const std::string& path = output.path();
  const std::string what = fmt::format("{}: the dataset cannot be written", name);
  std::vector<hsize_t> extents;
  for (const Axis& axis : shape.axes) extents.push_back(static_cast<hsize_t>(axis.extent));
  const auto rank = static_cast<int>(extents.size());
  const Hdf5Handle space = OwnHdf5(
      extents.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, extents.data(), nullptr),
      H5Sclose, what, path);
  const Hdf5Handle creation = OwnHdf5(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what, path);
  CheckHdf5(H5Pset_obj_track_times(creation.get(), false), what, path);
  if (storage != Hdf5Storage::kContiguous && rank > 0 && shape.ElementCount() > 0) {
    const std::vector<hsize_t> chunk = ChunkExtents(shape, SizeInBytes(dtype));
    CheckHdf5(H5Pset_chunk(creation.get(), rank, chunk.data()), what, path);
    if (storage == Hdf5Storage::kDeflated) {
      CheckHdf5(H5Pset_deflate(creation.get(), 1), what, path);
    }
    CheckHdf5(H5Pset_fletcher32(creation.get()), what, path);
  }
  return OwnHdf5(H5Dcreate2(output.file(), name.c_str(), StorageType(dtype).get(), space.get(),
                            H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                 H5Dclose, what, path);
}

Hdf5Handle CreateGroup(const Hdf5Output& output, const std::string& name) {
  return OwnHdf5(H5Gcreate2(output.file(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                 H5Gclose, fmt::format("{}: the group cannot be written", name), output.path());
}

}  // namespace kvcheck
