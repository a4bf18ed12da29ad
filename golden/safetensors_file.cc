#include "golden/safetensors_file.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "golden/input_file.h"
#include "golden/safetensors_header.h"
#include "golden/schema.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kLengthBytes = 8;

std::optional<DType> DTypeOf(std::string_view dtype) {
  struct Entry {
    std::string_view name;
    DType dtype;
  };
  static constexpr std::array<Entry, 16> kEntries = {{{"F64", DType::kFloat64},
                                                      {"F32", DType::kFloat32},
                                                      {"F16", DType::kFloat16},
                                                      {"BF16", DType::kBFloat16},
                                                      {"F8_E4M3", DType::kFloat8E4M3FN},
                                                      {"F8_E5M2", DType::kFloat8E5M2},
                                                      {"F8_E8M0", DType::kFloat8E8M0FNU},
                                                      {"I8", DType::kInt8},
                                                      {"I16", DType::kInt16},
                                                      {"I32", DType::kInt32},
                                                      {"I64", DType::kInt64},
                                                      {"U8", DType::kUInt8},
                                                      {"U16", DType::kUInt16},
                                                      {"U32", DType::kUInt32},
                                                      {"U64", DType::kUInt64},
                                                      {"BOOL", DType::kBool}}};
  for (const Entry& entry : kEntries) {
    if (entry.name == dtype) return entry.dtype;
  }
  return std::nullopt;
}

ObjectRecord RecordOf(const SafetensorsTensor& tensor, int64_t data_start,
                      const ReadLimits& limits) {
  const auto unreadable = [](std::string problem) {
    ObjectRecord record;
    record.problem = std::move(problem);
    return record;
  };
  ObjectRecord record;
  record.is_dataset = true;
  const std::optional<DType> dtype = DTypeOf(tensor.dtype);
  if (!dtype) {
    return unreadable(fmt::format("its type {} is not one of kvcheck's", QuotedName(tensor.dtype)));
  }
  if (tensor.shape.size() > static_cast<size_t>(kMaxTensorRank)) {
    return unreadable(
        fmt::format("rank {}, at most {} is read", tensor.shape.size(), kMaxTensorRank));
  }
  record.dtype = *dtype;
  for (uint64_t extent : tensor.shape) {
    if (extent > uint64_t{1} << 62) return unreadable("an extent is beyond any memory");
    record.shape.axes.push_back({"", static_cast<int64_t>(extent)});
  }
  if (!BoundedBytes(record.shape, record.dtype, limits.max_tensor_bytes)) {
    return unreadable(fmt::format("{} of {} exceed the limit of {} bytes", ToString(record.shape),
                                  Name(record.dtype), limits.max_tensor_bytes));
  }
  record.data_offset = data_start + static_cast<int64_t>(tensor.begin);
  return record;
}

}  // namespace

struct SafetensorsFile::State {
  State(const std::string& path, const ReadLimits& limits) : file(path) {
    const int64_t header_bytes = HeaderBytes();
    std::string json(static_cast<size_t>(header_bytes), '\0');
    file.ReadAt(kLengthBytes, json.data(), json.size());
    const int64_t data_start = kLengthBytes + header_bytes;
    const int64_t data_bytes = file.size() - data_start;
    if (data_bytes > limits.max_total_bytes) {
      Refuse(fmt::format("its data of {} bytes exceed the limit of {}", data_bytes,
                         limits.max_total_bytes));
    }
    const SafetensorsHeader header =
        ParseSafetensorsHeader(json, static_cast<uint64_t>(data_bytes), limits.max_objects, path);
    file.ThrowIfChanged();
    ObjectRecord root;
    for (const auto& [key, value] : header.metadata) root.attributes["metadata." + key] = value;
    index.objects.emplace("/", std::move(root));
    for (const SafetensorsTensor& tensor : header.tensors) {
      index.objects.emplace("/" + tensor.name, RecordOf(tensor, data_start, limits));
    }
  }

  [[noreturn]] void Refuse(const std::string& reason) const {
    throw Error(ErrorCode::kUnreadableFile, reason, file.path());
  }

  int64_t HeaderBytes() const {
    if (file.size() < kLengthBytes) {
      Refuse(fmt::format("its {} bytes are too few for a safetensors file", file.size()));
    }
    std::array<unsigned char, kLengthBytes> bytes{};
    file.ReadAt(0, bytes.data(), bytes.size());
    uint64_t length = 0;
    for (size_t i = bytes.size(); i-- > 0;) length = length << 8 | bytes[i];
    if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
      Refuse(
          fmt::format("its first 8 bytes announce a header of {} bytes, more than the {} that "
                      "safetensors allows: it is no safetensors file, or damaged",
                      length, kMaxSafetensorsHeaderBytes));
    }
    const auto header_bytes = static_cast<int64_t>(length);
    if (header_bytes > file.size() - kLengthBytes) {
      Refuse(
          fmt::format("its first 8 bytes announce a header of {} bytes and {} follow: it is cut "
                      "off, or no safetensors file",
                      header_bytes, file.size() - kLengthBytes));
    }
    return header_bytes;
  }

  InputFile file;
  FileIndex index;
};

SafetensorsFile::SafetensorsFile(const std::string& path, const ReadLimits& limits)
    : state_(std::make_unique<State>(path, limits)) {}

SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const { return state_->file.path(); }
const FileIndex& SafetensorsFile::index() const { return state_->index; }

void SafetensorsFile::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                                   std::byte* out) {
  const ObjectRecord& record = DatasetRecord(*this, dataset);
  KVCHECK_CHECK(first >= 0 && count >= 0 && first <= record.shape.ElementCount() - count,
                "elements outside of the tensor");
  const auto width = static_cast<int64_t>(SizeInBytes(record.dtype));
  state_->file.ReadAt(*record.data_offset + first * width, out, static_cast<size_t>(count * width));
  state_->file.ThrowIfChanged();
}

}  // namespace kvcheck
