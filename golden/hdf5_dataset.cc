#include "golden/hdf5_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "golden/element_boxes.h"
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
  Describer(hid_t dataset, const Hdf5Context& file, bool has_attributes, const std::string& where,
            ObjectRecord& record)
      : dataset_(dataset),
        file_(file),
        has_attributes_(has_attributes),
        where_(where),
        record_(record) {}

  void Describe() {
    ReadType();
    ReadExtents();
    NameAxes();
    CheckStorage();
  }

 private:
  [[noreturn]] void Refuse(std::string_view reason) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: {}", where_, reason), file_.path);
  }

  const std::string* Text(const std::string& name) const {
    const auto found = record_.attributes.find(name);
    return found == record_.attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  }

  void ReadType() {
    const Hdf5Handle type = OwnHdf5(H5Dget_type(dataset_), H5Tclose,
                                    fmt::format("{}: its type cannot be read", where_), file_.path);
    little_endian_ = IsLittleEndian(type.get());
    const std::string* declared = Text("kv_dtype");
    if (declared == nullptr) {
      if (file_.is_golden) Refuse("attribute 'kv_dtype' is missing");
      const std::optional<DType> dtype = DTypeOfFileType(type.get());
      if (!dtype) Refuse(fmt::format("its type is not one of kvcheck's: {}", TypeText(type.get())));
      record_.dtype = *dtype;
      return;
    }
    const std::optional<DType> dtype = ParseDType(*declared);
    if (!dtype || Name(*dtype) != *declared) {
      Refuse(fmt::format("kv_dtype '{}' is not a type", *declared));
    }
    const bool fits = file_.is_golden ? H5Tequal(type.get(), StorageType(*dtype).get()) > 0
                                      : MayHold(type.get(), *dtype);
    if (!fits) Refuse(fmt::format("the stored type cannot hold kv_dtype {}", *declared));
    record_.dtype = *dtype;
  }

  void ReadExtents() {
    const Hdf5Handle space =
        OwnHdf5(H5Dget_space(dataset_), H5Sclose,
                fmt::format("{}: its extents cannot be read", where_), file_.path);
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
        BoundedBytes(record_.shape, record_.dtype, file_.limits.max_tensor_bytes);
    if (!bytes) {
      Refuse(fmt::format("{} of {} exceed the limit of {} bytes", ToString(record_.shape),
                         Name(record_.dtype), file_.limits.max_tensor_bytes));
    }
    bytes_ = *bytes;
  }

  void NameAxes() {
    if (!file_.is_golden && !has_attributes_) return;
    const std::string* axes = Text("axes");
    const size_t rank = record_.shape.axes.size();
    std::vector<std::string> names;
    if (axes != nullptr) names = SplitAxes(*axes, rank);
    if (file_.is_golden) {
      if (axes == nullptr) Refuse("attribute 'axes' is missing");
      if (!AreGoldenAxes(names, rank)) {
        Refuse(fmt::format("axes '{}' do not name its {} axes", *axes, rank));
      }
    } else {
      if (names.size() != rank) names = DimensionLabels(dataset_, rank);
      names.resize(rank);
      DropStrangeLabels(names);
    }
    for (size_t i = 0; i < rank; ++i) record_.shape.axes[i].name = names[i];
  }

  static bool AreGoldenAxes(const std::vector<std::string>& names, size_t rank) {
    std::set<std::string> used;
    return names.size() == rank &&
           std::all_of(names.begin(), names.end(), [&used](const std::string& name) {
             return name.empty() || (IsAxisName(name) && used.insert(name).second);
           });
  }

  // A stranger's label that says nothing is no mistake: its axis stays unnamed.
  static void DropStrangeLabels(std::vector<std::string>& names) {
    std::map<std::string, int> uses;
    for (const std::string& name : names) ++uses[name];
    for (std::string& name : names) {
      if (!IsAxisLabel(name) || uses[name] > 1) name.clear();
    }
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
    // An address says: contiguous, in this file, unfiltered. The property list that says the same
    // costs a third of the listing of a file.
    const haddr_t offset = file_.is_golden ? HADDR_UNDEF : H5Dget_offset(dataset_);
    if (offset != HADDR_UNDEF) {
      CheckStoredBytes(H5Dget_storage_size(dataset_));
      return LocateData(offset);
    }
    const Hdf5Handle creation =
        OwnHdf5(H5Dget_create_plist(dataset_), H5Pclose,
                fmt::format("{}: its storage cannot be described", where_), file_.path);
    if (H5Pget_external_count(creation.get()) != 0) Refuse("its data lie in another file");
    CheckFilters(creation.get());
    const hsize_t stored = H5Dget_storage_size(dataset_);
    switch (H5Pget_layout(creation.get())) {
      case H5D_COMPACT:
        return CheckStoredBytes(stored);  // in the object's header: no address
      case H5D_CONTIGUOUS:
        CheckStoredBytes(stored);
        return LocateData(H5Dget_offset(dataset_));
      case H5D_CHUNKED:
        return CheckChunks(creation.get(), stored);
      default:
        Refuse("its storage is virtual or unknown");
    }
  }

  void CheckStoredBytes(hsize_t stored) const {
    if (stored != static_cast<hsize_t>(bytes_)) {
      Refuse(fmt::format("{} bytes are stored where {} are needed", stored, bytes_));
    }
  }

  void LocateData(haddr_t offset) {
    if (offset == HADDR_UNDEF || bytes_ == 0) return;
    if (bytes_ > file_.file_bytes || offset > static_cast<haddr_t>(file_.file_bytes - bytes_)) {
      Refuse("its data lie beyond the end of the file");
    }
    if (little_endian_) record_.data_offset = static_cast<int64_t>(offset);
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
    if (rank == 0 ||
        H5Pget_chunk(creation, static_cast<int>(rank), chunk.data()) != static_cast<int>(rank)) {
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
    const Hdf5Handle space = OwnHdf5(H5Dget_space(dataset_), H5Sclose, what, file_.path);
    CheckHdf5(H5Dget_num_chunks(dataset_, space.get(), &present), what, file_.path);
    if (present != chunks) Refuse(fmt::format("{} of {} chunks are there", present, chunks));
    const hsize_t needed = chunks * static_cast<hsize_t>(*chunk_bytes);
    if (!deflated_ && stored < needed) {
      Refuse(fmt::format("{} bytes are stored where {} are needed", stored, needed));
    }
  }

  hid_t dataset_;
  const Hdf5Context& file_;
  const bool has_attributes_;
  const std::string& where_;
  ObjectRecord& record_;
  int64_t bytes_ = 0;
  bool deflated_ = false;
  bool little_endian_ = false;
};

}  // namespace

hid_t DatasetAccess() {
  const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  if (access >= 0) H5Pset_chunk_cache(access, 1021, kChunkCacheBytes, 1.0);
  return access;
}

void DescribeDataset(hid_t dataset, const Hdf5Context& file, bool has_attributes,
                     const std::string& where, ObjectRecord& record) {
  Describer(dataset, file, has_attributes, where, record).Describe();
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
  ElementBoxes boxes(
      record.shape, [&](const std::vector<hsize_t>& start, const std::vector<hsize_t>& extents) {
        CheckHdf5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr,
                                      extents.data(), nullptr),
                  what, path);
        const Hdf5Handle memory =
            OwnHdf5(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                    H5Sclose, what, path);
        CheckHdf5(H5Dread(dataset, type.get(), memory.get(), space.get(), H5P_DEFAULT, out), what,
                  path);
        size_t bytes = SizeInBytes(record.dtype);
        for (hsize_t n : extents) bytes *= n;
        out += bytes;
      });
  boxes.Split(first, first + count);
}

}  // namespace kvcheck
