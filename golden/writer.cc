#include "golden/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "golden/content_hash.h"
#include "golden/hdf5_attribute.h"
#include "golden/hdf5_handle.h"
#include "golden/hdf5_types.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr size_t kContiguousUpToBytes = size_t{64} * 1024;
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

Hdf5Handle CreationProperties(const std::string& name, const Tensor& tensor,
                              const std::string& path) {
  const std::string what = fmt::format("{}: its storage cannot be set", name);
  Hdf5Handle creation = OwnHdf5(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what, path);
  CheckHdf5(H5Pset_obj_track_times(creation.get(), false), what, path);
  const bool is_mask = name == "mask" || name.ends_with("/mask");
  if (tensor.shape.axes.empty() || tensor.bytes.empty() ||
      (!is_mask && tensor.bytes.size() <= kContiguousUpToBytes)) {
    return creation;
  }
  const std::vector<hsize_t> chunk = ChunkExtents(tensor.shape, SizeInBytes(tensor.dtype));
  CheckHdf5(H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()), what, path);
  if (is_mask) CheckHdf5(H5Pset_deflate(creation.get(), 1), what, path);
  CheckHdf5(H5Pset_fletcher32(creation.get()), what, path);
  return creation;
}

}  // namespace

struct GoldenWriter::State {
  std::string path;
  std::string temporary;  // empty once renamed
  Hdf5Handle file;
  FileIndex index;
  std::map<std::string, Sha256Digest> digests;

  ~State() {
    file.Reset();
    if (!temporary.empty()) unlink(temporary.c_str());
  }

  void WriteGroup(const std::string& name, const ObjectRecord& record) {
    const std::string what = fmt::format("{}: the group cannot be written", name);
    const Hdf5Handle group =
        name == "/" ? OwnHdf5(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose, what, path)
                    : OwnHdf5(H5Gcreate2(file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT,
                                         H5P_DEFAULT),
                              H5Gclose, what, path);
    WriteAttributes(group.get(), record);
  }

  void WriteDataset(const std::string& name, const ObjectRecord& record, const Tensor& tensor) {
    const std::string what = fmt::format("{}: the dataset cannot be written", name);
    std::vector<hsize_t> extents;
    for (const Axis& axis : tensor.shape.axes) extents.push_back(static_cast<hsize_t>(axis.extent));
    const Hdf5Handle space = OwnHdf5(
        extents.empty() ? H5Screate(H5S_SCALAR)
                        : H5Screate_simple(static_cast<int>(extents.size()), extents.data(),
                                           nullptr),
        H5Sclose, what, path);
    const Hdf5Handle type = StorageType(tensor.dtype);
    const Hdf5Handle creation = CreationProperties(name, tensor, path);
    const Hdf5Handle dataset =
        OwnHdf5(H5Dcreate2(file.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT,
                           creation.get(), H5P_DEFAULT),
                H5Dclose, what, path);
    if (!tensor.bytes.empty()) {
      CheckHdf5(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                         tensor.bytes.data()),
                what, path);
    }
    WriteAttributes(dataset.get(), record);
    Sha256 hash;
    hash.Update(tensor.bytes.data(), tensor.bytes.size());
    digests[name] = hash.Finish();
  }

  void WriteAttributes(hid_t object, const ObjectRecord& record) {
    for (const auto& [name, value] : record.attributes) WriteAttribute(object, name, value, path);
  }
};

GoldenWriter::GoldenWriter(const std::string& path, const std::string& source,
                           const std::string& command)
    : state_(std::make_unique<State>()) {
  PrepareHdf5();
  state_->path = path;
  GoldenFile empty;
  empty.source = source;
  empty.command = command;
  state_->index = IndexOf(empty);
  std::string pattern = path + ".XXXXXX";
  const int descriptor = mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor < 0) ThrowSystemError("no file can be made beside it", path);
  state_->temporary = pattern;
  fchmod(descriptor, 0644);  // mkostemp makes it private
  close(descriptor);
  const Hdf5Handle access = OwnHdf5(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "HDF5 failed", path);
  H5Pset_file_locking(access.get(), false, true);
  // The oldest encodings that hold the schema: every HDF5 since 1.10 reads them.
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V110);
  state_->file = OwnHdf5(H5Fcreate(pattern.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()),
                         H5Fclose, "it cannot be created", path);
  for (const auto& [name, record] : state_->index.objects) state_->WriteGroup(name, record);
}

GoldenWriter::~GoldenWriter() = default;

void GoldenWriter::AddCase(const GoldenCase& golden_case) {
  const FileIndex added = IndexOfCase(golden_case);
  if (state_->index.objects.contains(CasePath(golden_case.name))) {
    throw Error(ErrorCode::kUsage, fmt::format("case '{}' is there already", golden_case.name),
                state_->path);
  }
  const std::map<std::string, const Tensor*> tensors = TensorsOf(golden_case);
  for (const auto& [name, record] : added.objects) {
    if (record.is_dataset) {
      state_->WriteDataset(name, record, *tensors.at(name));
    } else {
      state_->WriteGroup(name, record);
    }
    state_->index.objects.emplace(name, record);
  }
}

std::string GoldenWriter::Finish() {
  const std::string hash = ContentHash(state_->index, state_->digests);
  const std::string& path = state_->path;
  {
    const Hdf5Handle root = OwnHdf5(H5Gopen2(state_->file.get(), "/", H5P_DEFAULT), H5Gclose,
                                    "the root group cannot be opened", path);
    WriteAttribute(root.get(), "content_hash", hash, path);
  }
  CheckHdf5(state_->file.Reset(), "it cannot be written", path);
  SyncPath(state_->temporary, O_RDWR);
  if (rename(state_->temporary.c_str(), path.c_str()) != 0) {
    ThrowSystemError("it cannot be put in place", path);
  }
  state_->temporary.clear();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  SyncPath(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  return hash;
}

std::string WriteGoldenFile(const std::string& path, const GoldenFile& file) {
  if (file.schema != kGoldenSchema) {
    throw Error(ErrorCode::kUsage,
                fmt::format("schema {} cannot be written, only {}", file.schema, kGoldenSchema),
                path);
  }
  GoldenWriter writer(path, file.source, file.command);
  for (const GoldenCase& golden_case : file.cases) writer.AddCase(golden_case);
  return writer.Finish();
}

}  // namespace kvcheck
