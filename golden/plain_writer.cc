#include "golden/plain_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/element_boxes.h"
#include "golden/hdf5_attribute.h"
#include "golden/hdf5_handle.h"
#include "golden/hdf5_output.h"
#include "golden/hdf5_types.h"
#include "golden/safetensors_header.h"
#include "golden/schema.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// HDF5 stores the type, and a reader without the attribute finds it again.
bool SaysItself(DType dtype) {
  const std::optional<DType> read = DTypeOfFileType(StorageType(dtype).get());
  return read == dtype;
}

// "/a/b/c" as "/a", "/a/b", "/a/b/c"; empty when HDF5 would take the path for another.
std::vector<std::string> Prefixes(const std::string& path) {
  if (path.find('\0') != std::string::npos || !path.starts_with('/')) return {};
  std::vector<std::string> prefixes;
  for (size_t from = 1; from <= path.size();) {
    const size_t to = std::min(path.find('/', from), path.size());
    const std::string_view part = std::string_view(path).substr(from, to - from);
    if (part.empty() || part == ".") return {};
    prefixes.push_back(path.substr(0, to));
    from = to + 1;
  }
  return path.ends_with('/') ? std::vector<std::string>() : prefixes;
}

}  // namespace

struct PlainWriter::State {
  State(const std::string& path, Storage kind, int64_t user_block_bytes)
      : output(path, static_cast<hsize_t>(user_block_bytes)), storage(kind) {}

  [[noreturn]] void Refuse(const std::string& object, std::string_view reason) const {
    throw Error(ErrorCode::kUsage, fmt::format("{} {}", QuotedName(object), reason), output.path());
  }

  void MakeGroups(const std::vector<std::string>& prefixes) {
    for (size_t i = 0; i + 1 < prefixes.size(); ++i) {
      const auto [found, added] = is_dataset.emplace(prefixes[i], false);
      if (found->second) Refuse(prefixes.back(), "lies in what is a tensor itself");
      if (added) CreateGroup(output, prefixes[i]);
    }
  }

  Hdf5Output output;
  const Storage storage;
  std::map<std::string, bool> is_dataset = {{"/", false}};  // what is there, by path
  // The tensor begun last.
  Hdf5Handle dataset;
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  int64_t written = 0;
  int64_t elements = 0;
};

PlainWriter::PlainWriter(const std::string& path, Storage storage, int64_t user_block_bytes)
    : state_(std::make_unique<State>(path, storage, user_block_bytes)) {}

PlainWriter::~PlainWriter() = default;

void PlainWriter::Begin(const std::string& path, DType dtype, const Shape& shape) {
  State& s = *state_;
  KVCHECK_CHECK(s.written == s.elements, "the tensor before is not complete");
  const std::vector<std::string> prefixes = Prefixes(path);
  if (prefixes.empty()) s.Refuse(path, "is no path that HDF5 can say");
  s.MakeGroups(prefixes);
  if (!s.is_dataset.emplace(path, true).second) s.Refuse(path, "is there already");
  s.dataset = CreateDataset(
      s.output, path, dtype, shape,
      s.storage == Storage::kChecked ? Hdf5Storage::kChunked : Hdf5Storage::kContiguous);
  s.name = path;
  s.dtype = dtype;
  s.shape = shape;
  s.written = 0;
  s.elements = shape.ElementCount();
  if (!SaysItself(dtype)) SetAttribute(path, "kv_dtype", std::string(Name(dtype)));
  const bool named = std::any_of(shape.axes.begin(), shape.axes.end(),
                                 [](const Axis& axis) { return !axis.name.empty(); });
  if (named) SetAttribute(path, "axes", AxesText(shape));
}

void PlainWriter::Append(std::span<const std::byte> elements) {
  State& s = *state_;
  const size_t width = SizeInBytes(s.dtype);
  const auto count = static_cast<int64_t>(elements.size() / width);
  KVCHECK_CHECK(elements.size() % width == 0 && count <= s.elements - s.written,
                "not the next elements of the tensor");
  if (count == 0) return;
  const std::string what = fmt::format("{}: its data cannot be written", s.name);
  const std::string& path = s.output.path();
  const Hdf5Handle type = StorageType(s.dtype);
  const std::byte* from = elements.data();
  if (s.shape.axes.empty()) {
    CheckHdf5(H5Dwrite(s.dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, from), what,
              path);
  } else {
    const Hdf5Handle space = OwnHdf5(H5Dget_space(s.dataset.get()), H5Sclose, what, path);
    ElementBoxes boxes(s.shape, [&](const std::vector<hsize_t>& start,
                                    const std::vector<hsize_t>& extents) {
      CheckHdf5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr,
                                    extents.data(), nullptr),
                what, path);
      const Hdf5Handle memory =
          OwnHdf5(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                  H5Sclose, what, path);
      CheckHdf5(H5Dwrite(s.dataset.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, from),
                what, path);
      size_t bytes = width;
      for (hsize_t n : extents) bytes *= n;
      from += bytes;
    });
    boxes.Split(s.written, s.written + count);
  }
  s.written += count;
}

void PlainWriter::Copy(TensorSource& source, const std::string& dataset, const std::string& path) {
  const ObjectRecord& record = DatasetRecord(source, dataset);
  Begin(path, record.dtype, record.shape);
  const int64_t elements = record.shape.ElementCount();
  const int64_t step = BlockElements(record.dtype);
  std::vector<std::byte> block;
  for (int64_t first = 0; first < elements; first += step) {
    const int64_t count = std::min(step, elements - first);
    block.resize(static_cast<size_t>(count) * SizeInBytes(record.dtype));
    source.ReadElements(dataset, first, count, block.data());
    Append(block);
  }
}

void PlainWriter::SetAttribute(const std::string& object, const std::string& name,
                               const AttributeValue& value) {
  State& s = *state_;
  if (!s.is_dataset.contains(object)) s.Refuse(object, "is not there to have an attribute");
  const auto* text = std::get_if<std::string>(&value);
  if (text != nullptr && !IsGoldenText(*text)) {
    s.Refuse(name, fmt::format("of {} is no text in UTF-8 of at most {} bytes", QuotedName(object),
                               kMaxTextBytes));
  }
  const Hdf5Handle handle =
      OwnHdf5(H5Oopen(s.output.file(), object.c_str(), H5P_DEFAULT), H5Oclose,
              fmt::format("{}: it cannot be opened", object), s.output.path());
  WriteAttribute(handle.get(), name, value, s.output.path());
}

void PlainWriter::Finish(const std::function<void(const std::string& temporary)>& seal) {
  State& s = *state_;
  KVCHECK_CHECK(s.written == s.elements, "the last tensor is not complete");
  s.dataset.Reset();
  s.output.Commit(seal);
}

}  // namespace kvcheck
