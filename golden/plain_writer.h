// Writing HDF5 files without the schema: tensors of any names, block by block, so that memory does
// not grow with them; under a temporary name until everything is on disk. What kvcheck reads back
// is what was written: types that HDF5 cannot say get `kv_dtype`, named axes get `axes`.

#ifndef GOLDEN_PLAIN_WRITER_H_
#define GOLDEN_PLAIN_WRITER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "golden/file_index.h"

namespace kvcheck {

class PlainWriter {
 public:
  enum class Storage {
    kContiguous,  // can be mapped when it is read
    kChecked,     // in chunks, each with a Fletcher32 checksum
  };

  // user_block_bytes: room before the HDF5 file for what `seal` writes; 0, or a power of two from
  // 512. Errors: kUnreadableFile when the folder cannot be written.
  explicit PlainWriter(const std::string& path, Storage storage = Storage::kContiguous,
                       int64_t user_block_bytes = 0);
  // Without Finish: nothing appears under the path.
  ~PlainWriter();
  PlainWriter(const PlainWriter&) = delete;
  PlainWriter& operator=(const PlainWriter&) = delete;

  // Starts a tensor; groups on the way are made. `path` is absolute ("/layers/0/keys").
  // Errors: kUsage for a path that HDF5 cannot say (an empty part, ".", a NUL), that is there
  // already, or that leads through a tensor; kUnreadableFile. Precondition: the tensor begun before
  // is complete.
  void Begin(const std::string& path, DType dtype, const Shape& shape);
  // Its next elements, row-major. Precondition: whole elements, and no more than are missing.
  // Errors: kUnreadableFile.
  void Append(std::span<const std::byte> elements);

  // A whole tensor of a file, in blocks, under `path`. Errors: as Begin and ReadElements.
  void Copy(TensorSource& source, const std::string& dataset, const std::string& path);

  // An attribute of "/" or of a tensor or group that is there.
  // Errors: kUsage when there is no such object or the value is no text of the schema
  // (IsGoldenText); kUnreadableFile.
  void SetAttribute(const std::string& object, const std::string& name,
                    const AttributeValue& value);

  // Closes the file, calls `seal` with the name that it still has, syncs and renames into place.
  // Precondition: the last tensor is complete. Errors: kUnreadableFile, and what seal throws.
  void Finish(const std::function<void(const std::string& temporary)>& seal = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvcheck

#endif  // GOLDEN_PLAIN_WRITER_H_
