#include "golden/hdf5_state_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "golden/content_hash.h"
#include "golden/hdf5_file.h"
#include "golden/input_file.h"
#include "golden/plain_writer.h"
#include "golden/schema.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr const char* kAttributes = "/attributes";
constexpr std::string_view kTensors = "/tensors/";
constexpr size_t kBlockBytes = size_t{1} << 20;

std::string Hex(const Sha256Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

// The only header that a file with these bytes behind it has.
std::string Header(const InputFile& file) {
  Sha256 hash;
  std::vector<std::byte> block(
      std::min(kBlockBytes, static_cast<size_t>(file.size() - kStateHeaderBytes)));
  for (int64_t at = kStateHeaderBytes; at < file.size();) {
    const auto bytes = std::min(static_cast<int64_t>(block.size()), file.size() - at);
    file.ReadAt(at, block.data(), static_cast<size_t>(bytes));
    hash.Update(block.data(), static_cast<size_t>(bytes));
    at += bytes;
  }
  std::string header = fmt::format("kvcheck state 1\nsha256 {}\nbytes {}\n", Hex(hash.Finish()),
                                   file.size() - kStateHeaderBytes);
  header.resize(static_cast<size_t>(kStateHeaderBytes), '\0');
  return header;
}

void WriteHeader(const std::string& path) {
  const std::string header = Header(InputFile(path));
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const ssize_t written = descriptor < 0 ? -1 : pwrite(descriptor, header.data(), header.size(), 0);
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (written != static_cast<ssize_t>(header.size())) {
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("its header cannot be written: {}", std::strerror(error)), path);
  }
}

bool HasItsHeader(const std::string& path) {
  const InputFile file(path);
  if (file.size() <= kStateHeaderBytes) return false;
  std::string found(static_cast<size_t>(kStateHeaderBytes), '\0');
  file.ReadAt(0, found.data(), found.size());
  const bool same = found == Header(file);
  file.ThrowIfChanged();
  return same;
}

[[noreturn]] void RefuseToPut(std::string_view what, const std::string& context) {
  throw Error(ErrorCode::kUsage, std::string(what), context);
}

std::vector<std::byte> AttributeBytes(const StateRecord& record) {
  std::vector<std::byte> bytes;
  const auto add = [&](const std::string& text) {
    if (text.find('\0') != std::string::npos) RefuseToPut("an attribute has a NUL", text.c_str());
    const auto part = std::as_bytes(std::span(text.c_str(), text.size() + 1));
    bytes.insert(bytes.end(), part.begin(), part.end());
  };
  for (const auto& [name, value] : record.attributes) {
    add(name);
    add(value);
  }
  return bytes;
}

// False when the bytes are no texts, each with its NUL, in pairs of which no name comes twice.
bool ReadAttributes(const Tensor& tensor, StateRecord* record) {
  std::string_view text(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  const auto take = [&](std::string* out) {
    const size_t end = text.find('\0');
    if (end == std::string_view::npos) return false;
    *out = text.substr(0, end);
    text.remove_prefix(end + 1);
    return true;
  };
  while (!text.empty()) {
    std::string name;
    std::string value;
    if (!take(&name) || !take(&value)) return false;
    if (!record->attributes.emplace(std::move(name), std::move(value)).second) return false;
  }
  return true;
}

void CheckTensor(const std::string& name, const Tensor& tensor) {
  if (!IsGoldenName(name)) RefuseToPut("a tensor's name is not of [A-Za-z0-9_.-]", name);
  std::set<std::string> named;
  for (const Axis& axis : tensor.shape.axes) {
    if (axis.name.empty()) continue;
    if (!IsAxisLabel(axis.name) || axis.name.find(',') != std::string::npos ||
        !named.insert(axis.name).second) {
      RefuseToPut("an axis has a name that a file cannot say", name);
    }
  }
  if (tensor.bytes.size() !=
      static_cast<size_t>(tensor.ElementCount()) * SizeInBytes(tensor.dtype)) {
    RefuseToPut("a tensor does not have the bytes of its shape", name);
  }
}

// Errors: kUnreadableFile and what else a reader throws.
bool ReadRecord(TensorSource& source, int64_t file_bytes, StateRecord* record) {
  // Nothing is compressed: what is larger than the file is not in it.
  int64_t left = file_bytes;
  for (const auto& [path, object] : source.index().objects) {
    if (!object.problem.empty()) return false;
    if (!object.is_dataset) {
      if (path != "/" && path != "/tensors") return false;
      continue;
    }
    const bool is_tensor = path.starts_with(kTensors) && IsGoldenName(path.substr(kTensors.size()));
    if (path != kAttributes && !is_tensor) return false;
    const std::optional<int64_t> bytes = BoundedBytes(object.shape, object.dtype, left);
    if (!bytes) return false;
    left -= *bytes;
  }
  const auto attributes = source.index().objects.find(kAttributes);
  if (attributes == source.index().objects.end() || attributes->second.dtype != DType::kUInt8) {
    return false;
  }
  if (!ReadAttributes(ReadTensor(source, kAttributes), record)) return false;
  for (const auto& [path, object] : source.index().objects) {
    if (!object.is_dataset || path == kAttributes) continue;
    record->tensors[path.substr(kTensors.size())] = ReadTensor(source, path);
  }
  return true;
}

}  // namespace

Hdf5StateStore::Hdf5StateStore(std::string folder, LibraryOpener open)
    : folder_(std::move(folder)), open_(std::move(open)) {
  if (open_) return;
  open_ = [](const std::string& path) -> std::unique_ptr<TensorSource> {
    return std::make_unique<Hdf5File>(path);
  };
}

std::string Hdf5StateStore::PathOf(std::string_view key) const {
  if (!IsGoldenName(key)) RefuseToPut("a key is not of [A-Za-z0-9_.-]", std::string(key));
  return fmt::format("{}/{}.h5", folder_, key);
}

void Hdf5StateStore::Put(std::string_view key, const StateRecord& record) {
  const std::string path = PathOf(key);
  const std::vector<std::byte> attributes = AttributeBytes(record);
  for (const auto& [name, tensor] : record.tensors) CheckTensor(name, tensor);
  PlainWriter writer(path, PlainWriter::Storage::kContiguous, kStateHeaderBytes);
  writer.Begin(kAttributes, DType::kUInt8,
               Shape::Unnamed({static_cast<int64_t>(attributes.size())}));
  writer.Append(attributes);
  for (const auto& [name, tensor] : record.tensors) {
    writer.Begin(std::string(kTensors) + name, tensor.dtype, tensor.shape);
    writer.Append(tensor.bytes);
  }
  writer.Finish(WriteHeader);
}

StoreStatus Hdf5StateStore::Get(std::string_view key, StateRecord* record) const {
  const std::string path = PathOf(key);
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0 && errno == ENOENT) return StoreStatus::kMissing;
  *record = {};
  try {
    if (!HasItsHeader(path)) return StoreStatus::kDamaged;
    const std::unique_ptr<TensorSource> source = open_(path);
    if (!ReadRecord(*source, InputFile(path).size(), record)) return StoreStatus::kDamaged;
  } catch (const Error&) {
    return StoreStatus::kDamaged;
  }
  return StoreStatus::kOk;
}

}  // namespace kvcheck
