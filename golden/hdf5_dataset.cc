#include "golden/hdf5_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "golden/hdf5_attribute.h"
#include "golden/hdf5_handle.h"
#include "golden/hdf5_types.h"
#include "golden/schema.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{1} << 28;
constexpr size_t kChunkCacheBytes = size_t{1} << 26;

class Describer {
 public:
  Describer(hid_t dataset, bool is_golden, const ReadLimits& limits, const std::string& where,
            const std::string& path, ObjectRecord& record)
      : dataset_(dataset),
        is_golden_(is_golden),
        limits_(limits),
        where_(where),
        path_(path),
        record_(record) {}

  void Describe() {
    ReadType();
    ReadExtents();
    NameAxes();
    CheckStorage();
  }

 private:
  [[noreturn]] void Refuse(std::string_view reason) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: {}", where_, reason), path_);
  }

  const std::string* Text(const std::string& name) const {
    const auto found = record_.attributes.find(name);
    return found == record_.attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  }

  void ReadType() {
    const Hdf5Handle type = OwnHdf5(H5Dget_type(dataset_), H5Tclose,
                                    fmt::format("{}: its type cannot be read", where_), path_);
    const std::string* declared = Text("kv_dtype");
    if (declared == nullptr) {
      if (is_golden_) Refuse("attribute 'kv_dtype' is missing");
      const std::optional<DType> dtype = DTypeOfFileType(type.get());
      if (!dtype) Refuse("its type is not one of kvcheck's");
      record_.dtype = *dtype;
      return;
    }
    const std::optional<DType> dtype = ParseDType(*declared);
    if (!dtype || Name(*dtype) != *declared) {
      Refuse(fmt::format("kv_dtype '{}' is not a type", *declared));
    }
    const bool fits = is_golden_ ? H5Tequal(type.get(), StorageType(*dtype).get()) > 0
                                 : MayHold(type.get(), *dtype);
    if (!fits) Refuse(fmt::format("the stored type cannot hold kv_dtype {}", *declared));
    record_.dtype = *dtype;
  }

  void ReadExtents() {
    const Hdf5Handle space = OwnHdf5(H5Dget_space(dataset_), H5Sclose,
                                     fmt::format("{}: its extents cannot be read", where_), path_);
    const H5S_class_t space_class = H5Sget_simple_extent_type(space.get());
    if (space_class != H5S_SCALAR && space_class != H5S_SIMPLE) Refuse("it has no extents");
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0 || rank > kMaxTensorRank) {
      Refuse(fmt::format("rank {}, at most {} is read", rank, kMaxTensorRank));
    }
    std::vector<hsize_t> extents(static_cast<size_t>(rank));
    if (rank > 0 && H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) != rank) {
      Refuse("its extents cannot be read");
    }
    record_.shape.axes.clear();
    for (hsize_t extent : extents) {
      if (extent > hsize_t{1} << 62) Refuse("an extent is beyond any memory");
      record_.shape.axes.push_back({"", static_cast<int64_t>(extent)});
    }
    const std::optional<int64_t> bytes =
        BoundedBytes(record_.shape, record_.dtype, limits_.max_tensor_bytes);
    if (!bytes) {
      Refuse(fmt::format("{} of {} exceed the limit of {} bytes", ToString(record_.shape),
                         Name(record_.dtype), limits_.max_tensor_bytes));
    }
    bytes_ = *bytes;
  }

  void NameAxes() {
    const std::string* axes = Text("axes");
    const size_t rank = record_.shape.axes.size();
    std::vector<std::string> names;
    if (axes != nullptr) {
      names = SplitAxes(*axes, rank);
    } else if (is_golden_) {
      Refuse("attribute 'axes' is missing");
    } else {
      names = DimensionLabels(dataset_, rank);
    }
    std::set<std::string> used;
    bool meaningful = names.size() == rank;
    for (const std::string& name : names) {
      meaningful = meaningful && (name.empty() || (IsAxisName(name) && used.insert(name).second));
    }
    if (!meaningful) {
      if (is_golden_) Refuse(fmt::format("axes '{}' do not name its {} axes", *axes, rank));
      return;  // a stranger's labels are no mistake: the axes stay unnamed
    }
    for (size_t i = 0; i < rank; ++i) record_.shape.axes[i].name = names[i];
  }

  static std::vector<std::string> SplitAxes(const std::string& text, size_t rank) {
    if (text.empty() && rank == 0) return {};
    std::vector<std::string> names(1);
    for (char c : text) {
      if (c == ',') {
        names.emplace_back();
      } else {
        names.back() += c;
      }
    }
    return names;
  }

  void CheckStorage() {
    const Hdf5Handle creation =
        OwnHdf5(H5Dget_create_plist(dataset_), H5Pclose,
                fmt::format("{}: its storage cannot be described", where_), path_);
    if (H5Pget_external_count(creation.get()) != 0) Refuse("its data lie in another file");
    CheckFilters(creation.get());
    const hsize_t stored = H5Dget_storage_size(dataset_);
    switch (H5Pget_layout(creation.get())) {
      case H5D_COMPACT:
      case H5D_CONTIGUOUS:
        if (stored != static_cast<hsize_t>(bytes_)) {
          Refuse(fmt::format("{} bytes are stored where {} are needed", stored, bytes_));
        }
        return;
      case H5D_CHUNKED: return CheckChunks(creation.get(), stored);
      default: Refuse("its storage is virtual or unknown");
    }
  }

  void CheckFilters(hid_t creation) {
    const int count = H5Pget_nfilters(creation);
    if (count < 0 || count > 3) Refuse("it has unknown filters");
    for (int i = 0; i < count; ++i) {
      unsigned flags = 0;
      size_t values = 0;
      const H5Z_filter_t filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags,
                                                 &values, nullptr, 0, nullptr, nullptr);
      if (filter != H5Z_FILTER_FLETCHER32 && filter != H5Z_FILTER_DEFLATE &&
          filter != H5Z_FILTER_SHUFFLE) {
        Refuse(fmt::format("filter {}: only Fletcher32, deflate and shuffle are read",
                           static_cast<int>(filter)));
      }
      deflated_ = deflated_ || filter == H5Z_FILTER_DEFLATE;
    }
  }

  // All chunks are there (an absent one would read as fill values), and of a plausible size.
  void CheckChunks(hid_t creation, hsize_t stored) {
    const size_t rank = record_.shape.axes.size();
    std::vector<hsize_t> chunk(rank);
    if (rank == 0 || H5Pget_chunk(creation, static_cast<int>(rank), chunk.data()) !=
                         static_cast<int>(rank)) {
      Refuse("its chunks cannot be described");
    }
    hsize_t chunks = 1;
    Shape chunk_shape;
    for (size_t i = 0; i < rank; ++i) {
      if (chunk[i] == 0 || chunk[i] > hsize_t{1} << 32) Refuse("a chunk has no sensible extent");
      const auto extent = static_cast<hsize_t>(record_.shape.axes[i].extent);
      chunks *= (extent + chunk[i] - 1) / chunk[i];  // at most the element count: no overflow
      chunk_shape.axes.push_back({"", static_cast<int64_t>(chunk[i])});
    }
    const std::optional<int64_t> chunk_bytes =
        BoundedBytes(chunk_shape, record_.dtype, kMaxChunkBytes);
    if (!chunk_bytes) Refuse(fmt::format("a chunk exceeds {} bytes", kMaxChunkBytes));
    hsize_t present = 0;
    const std::string what = fmt::format("{}: its chunks cannot be counted", where_);
    // HDF5 1.10 wants a real dataspace here, not H5S_ALL.
    const Hdf5Handle space = OwnHdf5(H5Dget_space(dataset_), H5Sclose, what, path_);
    CheckHdf5(H5Dget_num_chunks(dataset_, space.get(), &present), what, path_);
    if (present != chunks) Refuse(fmt::format("{} of {} chunks are there", present, chunks));
    const hsize_t needed = chunks * static_cast<hsize_t>(*chunk_bytes);
    if (!deflated_ && stored < needed) {
      Refuse(fmt::format("{} bytes are stored where {} are needed", stored, needed));
    }
  }

  hid_t dataset_;
  bool is_golden_;
  const ReadLimits& limits_;
  const std::string& where_;
  const std::string& path_;
  ObjectRecord& record_;
  int64_t bytes_ = 0;
  bool deflated_ = false;
};

// Splits elements [first, last), in row-major order, into boxes in that order, and calls
// box(start, count) for each: single indices on the leading axes, a range on one, whole axes behind.
class ElementBoxes {
 public:
  using Box = std::function<void(const std::vector<hsize_t>&, const std::vector<hsize_t>&)>;

  // Precondition: at least one axis, no extent of 0.
  ElementBoxes(const Shape& shape, Box box)
      : shape_(shape),
        box_(std::move(box)),
        start_(shape.axes.size()),
        count_(shape.axes.size()),
        below_(shape.axes.size(), 1) {
    for (size_t i = below_.size() - 1; i-- > 0;) {
      below_[i] = below_[i + 1] * shape.axes[i + 1].extent;
    }
  }

  void Split(int64_t first, int64_t last) { Split(0, first, last); }

 private:
  void Split(size_t axis, int64_t first, int64_t last) {
    if (first >= last) return;
    const int64_t below = below_[axis];  // elements of one index of this axis: 1 for the last
    const int64_t head = first / below;
    const int64_t whole_from = (first + below - 1) / below;
    const int64_t whole_to = last / below;
    if (whole_from > whole_to) return Part(axis, head, first, last);  // inside one index
    if (first < whole_from * below) Part(axis, head, first, whole_from * below);
    if (whole_from < whole_to) Emit(axis, whole_from, whole_to - whole_from);
    if (whole_to * below < last) Part(axis, whole_to, whole_to * below, last);
  }

  void Part(size_t axis, int64_t index, int64_t first, int64_t last) {
    start_[axis] = static_cast<hsize_t>(index);
    count_[axis] = 1;
    Split(axis + 1, first - index * below_[axis], last - index * below_[axis]);
  }

  void Emit(size_t axis, int64_t from, int64_t count) {
    start_[axis] = static_cast<hsize_t>(from);
    count_[axis] = static_cast<hsize_t>(count);
    for (size_t i = axis + 1; i < start_.size(); ++i) {
      start_[i] = 0;
      count_[i] = static_cast<hsize_t>(shape_.axes[i].extent);
    }
    box_(start_, count_);
  }

  const Shape& shape_;
  Box box_;
  std::vector<hsize_t> start_, count_;
  std::vector<int64_t> below_;
};

}  // namespace

hid_t DatasetAccess() {
  const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  if (access >= 0) H5Pset_chunk_cache(access, 1021, kChunkCacheBytes, 1.0);
  return access;
}

void DescribeDataset(hid_t dataset, bool is_golden, const ReadLimits& limits,
                     const std::string& where, const std::string& path, ObjectRecord& record) {
  Describer(dataset, is_golden, limits, where, path, record).Describe();
}

void ReadDatasetElements(hid_t dataset, const ObjectRecord& record, int64_t first, int64_t count,
                         const std::string& where, const std::string& path, std::byte* out) {
  const std::string what = fmt::format("{}: its data cannot be read", where);
  const Hdf5Handle file_type = OwnHdf5(H5Dget_type(dataset), H5Tclose, what, path);
  const Hdf5Handle type = MemoryType(file_type.get());
  if (!type.valid()) ThrowHdf5Error(what, path);
  if (record.shape.axes.empty()) {
    CheckHdf5(H5Dread(dataset, type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out), what, path);
    return;
  }
  const Hdf5Handle space = OwnHdf5(H5Dget_space(dataset), H5Sclose, what, path);
  ElementBoxes boxes(record.shape, [&](const std::vector<hsize_t>& start,
                                       const std::vector<hsize_t>& extents) {
    CheckHdf5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr,
                                  extents.data(), nullptr),
              what, path);
    const Hdf5Handle memory = OwnHdf5(
        H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose,
        what, path);
    CheckHdf5(H5Dread(dataset, type.get(), memory.get(), space.get(), H5P_DEFAULT, out), what,
              path);
    size_t bytes = SizeInBytes(record.dtype);
    for (hsize_t n : extents) bytes *= n;
    out += bytes;
  });
  boxes.Split(first, first + count);
}

}  // namespace kvcheck
