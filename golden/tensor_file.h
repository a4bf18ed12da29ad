// Files of tensors in any format that kvcheck reads, told apart by their first bytes and not by
// their names.

#ifndef GOLDEN_TENSOR_FILE_H_
#define GOLDEN_TENSOR_FILE_H_

#include <functional>
#include <memory>
#include <string>

#include "golden/file_index.h"

namespace kvcheck {

enum class TensorFileFormat { kHdf5, kSafetensors };

// Errors: kUnreadableFile: missing, empty, a folder, pipe or device, or of another format; files of
// formats that are often met (numpy, PyTorch, GGUF) are named, with what to do.
TensorFileFormat FormatOfFile(const std::string& path);

// How to open an HDF5 file: Hdf5File in this process, UntrustedFile (tools/process) in a child.
using Hdf5Opener = std::function<std::unique_ptr<TensorSource>(const std::string& path)>;

// A folder is read as the shards of one file (sharded_file.h).
// Errors: as FormatOfFile, but for folders; what SafetensorsFile, ShardedFile or the opener throw.
std::unique_ptr<TensorSource> OpenTensorFile(const std::string& path, const Hdf5Opener& open_hdf5,
                                             const ReadLimits& limits = {});

}  // namespace kvcheck

#endif  // GOLDEN_TENSOR_FILE_H_
