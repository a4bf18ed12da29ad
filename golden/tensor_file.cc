#include "golden/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "golden/input_file.h"
#include "golden/safetensors_file.h"
#include "golden/safetensors_header.h"
#include "golden/sharded_file.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

std::string BytesAt(const InputFile& file, int64_t offset, size_t bytes) {
  const int64_t left = std::max<int64_t>(0, file.size() - offset);
  std::string text(std::min(bytes, static_cast<size_t>(left)), '\0');
  file.ReadAt(offset, text.data(), text.size());
  return text;
}

// HDF5 may start behind a block of the user's, of 512 bytes times a power of two.
bool HasHdf5Behind(const InputFile& file) {
  for (int64_t offset = 512; offset < file.size(); offset *= 2) {
    if (BytesAt(file, offset, kHdf5Signature.size()) == kHdf5Signature) return true;
  }
  return false;
}

// What else it may be, by its first bytes.
std::string OtherFormat(std::string_view start) {
  struct Known {
    std::string_view signature;
    const char* text;
  };
  static constexpr std::array<Known, 5> kKnown = {
      {{"PK\x03\x04", "a ZIP archive, as torch.save and numpy's savez write"},
       {"\x93NUMPY", "a numpy array, as numpy.save writes"},
       {"GGUF", "a GGUF model"},
       {"\x80\x02", "a Python pickle, as old versions of torch.save write"},
       {"CDF", "a classic netCDF file"}}};
  for (const Known& known : kKnown) {
    if (start.starts_with(known.signature)) return fmt::format("it is {}", known.text);
  }
  return fmt::format("it starts with {}", QuotedName(start));
}

}  // namespace

TensorFileFormat FormatOfFile(const std::string& path) {
  const InputFile file(path);
  if (file.size() == 0) throw Error(ErrorCode::kUnreadableFile, "it is empty", path);
  const std::string start = BytesAt(file, 0, 9);
  if (start.starts_with(kHdf5Signature)) return TensorFileFormat::kHdf5;
  // Behind the length, whatever that says: SafetensorsFile knows what is wrong with it.
  if (start.size() == 9 && start[8] == '{') return TensorFileFormat::kSafetensors;
  if (HasHdf5Behind(file)) return TensorFileFormat::kHdf5;
  throw Error(ErrorCode::kUnreadableFile,
              fmt::format("it is neither HDF5 nor safetensors, the formats that are read: {}; "
                          "save the tensors with h5py or the safetensors package",
                          OtherFormat(start.substr(0, 8))),
              path);
}

std::unique_ptr<TensorSource> OpenTensorFile(const std::string& path, const Hdf5Opener& open_hdf5,
                                             const ReadLimits& limits) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return std::make_unique<ShardedFile>(path, limits);
  }
  if (FormatOfFile(path) == TensorFileFormat::kHdf5) return open_hdf5(path);
  return std::make_unique<SafetensorsFile>(path, limits);
}

}  // namespace kvcheck
