#include "golden/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "golden/input_file.h"
#include "golden/numpy_array.h"
#include "golden/raw_file.h"
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
std::string OtherFormat(std::string_view start, const std::string& path) {
  struct Known {
    std::string_view signature;
    const char* text;
  };
  static constexpr std::array<Known, 2> kKnown = {
      {{"GGUF", "it is a GGUF model, which is not read"},
       {"CDF", "it is a classic netCDF file, which is not read"}}};
  if (start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) {
    return ConvertCommand(path);
  }
  std::string text = fmt::format("it starts with {}", QuotedName(start));
  for (const Known& known : kKnown) {
    if (start.starts_with(known.signature)) text = known.text;
  }
  return fmt::format(
      "{}. Formats that are read: HDF5, safetensors, numpy's .npy and .npz; raw elements with "
      "their "
      "type and shape behind the name: {}:bf16:2x8x128x64",
      text, std::filesystem::path(path).filename().string());
}

bool IsZip(std::string_view start) {
  return start.starts_with("PK\x03\x04") || start.starts_with("PK\x05\x06");
}

void RefuseType(const TensorPlace& place, const char* format) {
  if (!place.dtype) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("it is {}, whose tensors have types: leave ':{}' out", format,
                          ShortName(*place.dtype)),
              place.path);
}

}  // namespace

TensorFileFormat FormatOfFile(const std::string& path) {
  const InputFile file(path);
  if (file.size() == 0) throw Error(ErrorCode::kUnreadableFile, "it is empty", path);
  const std::string start = BytesAt(file, 0, 9);
  if (start.starts_with(kHdf5Signature)) return TensorFileFormat::kHdf5;
  if (start.starts_with(kNumpySignature)) return TensorFileFormat::kNumpy;
  if (IsZip(start)) return TensorFileFormat::kNumpyArchive;
  // Behind the length, whatever that says: SafetensorsFile knows what is wrong with it.
  if (start.size() == 9 && start[8] == '{') return TensorFileFormat::kSafetensors;
  if (HasHdf5Behind(file)) return TensorFileFormat::kHdf5;
  throw Error(ErrorCode::kUnreadableFile, OtherFormat(start.substr(0, 8), path), path);
}

std::unique_ptr<TensorSource> OpenArchive(const std::string& place) {
  const TensorPlace where = ParseTensorPlace(place);
  if (FormatOfFile(where.path) == TensorFileFormat::kNumpyArchive) {
    return std::make_unique<NumpyArchive>(where.path, where.dtype);
  }
  throw Error(ErrorCode::kUnsupported, "HDF5 is not read here: save it as safetensors or .npy",
              where.path);
}

std::unique_ptr<TensorSource> OpenTensorFile(const std::string& place,
                                             const LibraryOpener& open_by_library,
                                             const ReadLimits& limits) {
  const TensorPlace where = ParseTensorPlace(place);
  const std::string& path = where.path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    RefuseType(where, "a folder");
    return std::make_unique<ShardedFile>(path, limits);
  }
  if (where.shape) return std::make_unique<RawFile>(where, limits);
  switch (FormatOfFile(path)) {
    case TensorFileFormat::kHdf5:
      RefuseType(where, "HDF5");
      return open_by_library(place);
    case TensorFileFormat::kNumpyArchive:
      return open_by_library(place);
    case TensorFileFormat::kSafetensors:
      RefuseType(where, "safetensors");
      return std::make_unique<SafetensorsFile>(path, limits);
    case TensorFileFormat::kNumpy:
      break;
  }
  auto array = std::make_unique<NumpyFile>(path, where.dtype, limits);
  // The one tensor that it has: nothing else could be asked of it.
  for (const auto& [name, record] : array->index().objects) {
    if (!record.problem.empty()) throw Error(ErrorCode::kUnreadableFile, record.problem, path);
  }
  return array;
}

}  // namespace kvcheck
