// Files of tensors in any format that kvcheck reads, told apart by their first bytes and not by
// their names.

#ifndef GOLDEN_TENSOR_FILE_H_
#define GOLDEN_TENSOR_FILE_H_

#include <functional>
#include <memory>
#include <string>

#include "golden/file_index.h"

namespace kvcheck {

enum class TensorFileFormat { kHdf5, kSafetensors, kNumpy, kNumpyArchive };

// Errors: kUnreadableFile: missing, empty, a folder, pipe or device, or of another format; files of
// formats that are often met (PyTorch, GGUF) are named, with what to do.
TensorFileFormat FormatOfFile(const std::string& path);

// How to open a file that a library takes part in reading, HDF5 or an .npz archive: in this
// process, or in a child (UntrustedFile, tools/process).
using LibraryOpener = std::function<std::unique_ptr<TensorSource>(const std::string& place)>;

// place: as raw_file.h has it. A folder is read as the shards of one file (sharded_file.h).
// Errors: as FormatOfFile, but for folders; what the readers and the opener throw; an array of
// numpy that cannot be read is one.
std::unique_ptr<TensorSource> OpenTensorFile(const std::string& place,
                                             const LibraryOpener& open_by_library,
                                             const ReadLimits& limits = {});

// An opener for programs that read numpy's archives in their own process, and no HDF5.
// Errors: kUnsupported for HDF5.
std::unique_ptr<TensorSource> OpenArchive(const std::string& place);

}  // namespace kvcheck

#endif  // GOLDEN_TENSOR_FILE_H_
