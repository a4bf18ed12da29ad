#include "golden/writer.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "golden/content_hash.h"
#include "golden/hdf5_attribute.h"
#include "golden/hdf5_handle.h"
#include "golden/hdf5_output.h"
#include "golden/hdf5_types.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr size_t kContiguousUpToBytes = size_t{64} * 1024;

Hdf5Storage StorageOf(const std::string& name, const Tensor& tensor) {
  if (name == "mask" || name.ends_with("/mask")) return Hdf5Storage::kDeflated;
  return tensor.bytes.size() <= kContiguousUpToBytes ? Hdf5Storage::kContiguous
                                                     : Hdf5Storage::kChunked;
}

}  // namespace

struct GoldenWriter::State {
  explicit State(const std::string& path) : output(path) {}

  Hdf5Output output;
  FileIndex index;
  std::map<std::string, Sha256Digest> digests;

  const std::string& path() const { return output.path(); }

  void WriteGroup(const std::string& name, const ObjectRecord& record) {
    const Hdf5Handle group = name == "/" ? OpenRoot() : CreateGroup(output, name);
    WriteAttributes(group.get(), record);
  }

  Hdf5Handle OpenRoot() const {
    return OwnHdf5(H5Gopen2(output.file(), "/", H5P_DEFAULT), H5Gclose,
                   "the root group cannot be opened", path());
  }

  void WriteDataset(const std::string& name, const ObjectRecord& record, const Tensor& tensor) {
    const Hdf5Handle dataset =
        CreateDataset(output, name, tensor.dtype, tensor.shape, StorageOf(name, tensor));
    if (!tensor.bytes.empty()) {
      CheckHdf5(H5Dwrite(dataset.get(), StorageType(tensor.dtype).get(), H5S_ALL, H5S_ALL,
                         H5P_DEFAULT, tensor.bytes.data()),
                fmt::format("{}: the dataset cannot be written", name), path());
    }
    WriteAttributes(dataset.get(), record);
    Sha256 hash;
    hash.Update(tensor.bytes.data(), tensor.bytes.size());
    digests[name] = hash.Finish();
  }

  void WriteAttributes(hid_t object, const ObjectRecord& record) {
    for (const auto& [name, value] : record.attributes) {
      WriteAttribute(object, name, value, path());
    }
  }
};

GoldenWriter::GoldenWriter(const std::string& path, const std::string& source,
                           const std::string& command) {
  GoldenFile empty;
  empty.source = source;
  empty.command = command;
  FileIndex index = IndexOf(empty);  // refuses texts before anything is on disk
  state_ = std::make_unique<State>(path);
  state_->index = std::move(index);
  for (const auto& [name, record] : state_->index.objects) state_->WriteGroup(name, record);
}

GoldenWriter::~GoldenWriter() = default;

void GoldenWriter::AddCase(const GoldenCase& golden_case) {
  const FileIndex added = IndexOfCase(golden_case);
  if (state_->index.objects.contains(CasePath(golden_case.name))) {
    throw Error(ErrorCode::kUsage, fmt::format("case '{}' is there already", golden_case.name),
                state_->path());
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
  WriteAttribute(state_->OpenRoot().get(), "content_hash", hash, state_->path());
  state_->output.Commit();
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
