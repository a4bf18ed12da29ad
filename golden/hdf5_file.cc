#include "golden/hdf5_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "golden/hdf5_attribute.h"
#include "golden/hdf5_dataset.h"
#include "golden/hdf5_handle.h"
#include "golden/input_file.h"
#include "golden/schema.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr size_t kMaxDepth = 32;
// Of a library that would keep all headers it has read, up to 32 MiB: a listing meets each once.
constexpr size_t kMetadataCacheBytes = size_t{256} << 10;

struct Link {
  std::string name;
  H5L_type_t type;
};

// The metadata cache keeps its size; HDF5's own makes room for whatever a listing reads.
void LimitMetadataCache(hid_t access) {
  H5AC_cache_config_t config{};
  config.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  if (H5Pget_mdc_config(access, &config) < 0) return;
  config.set_initial_size = true;
  config.initial_size = kMetadataCacheBytes;
  config.min_size = kMetadataCacheBytes;
  config.max_size = kMetadataCacheBytes;
  H5Pset_mdc_config(access, &config);
}

Hdf5Handle OpenFile(const std::string& path) {
  PrepareHdf5();
  const Hdf5Handle access = OwnHdf5(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "HDF5 failed", path);
  // Reading takes no lock: a file on a read-only or network file system stays readable.
  H5Pset_file_locking(access.get(), false, true);
  LimitMetadataCache(access.get());
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  // The library shares one state between all opens of a file, also with those that a forked child
  // inherited, whose descriptors are closed there. Files of different drivers are never shared.
  if (InheritedHdf5()) H5Pset_fapl_stdio(access.get());
  return OwnHdf5(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose,
                 "it cannot be opened as an HDF5 file", path);
}

// All attributes of a golden file, what a stranger's says about a tensor.
std::map<std::string, AttributeValue> AttributesOf(hid_t object, bool is_golden,
                                                   const std::string& where,
                                                   const std::string& path) {
  if (is_golden) return ReadAttributes(object, where, path);
  std::map<std::string, AttributeValue> attributes;
  for (const char* name : {"kv_dtype", "axes", "kv_format"}) {
    std::optional<AttributeValue> value = TryReadAttribute(object, name);
    if (value && std::holds_alternative<std::string>(*value)) attributes[name] = std::move(*value);
  }
  return attributes;
}

// Lists all objects of a file, each once.
class Walker {
 public:
  Walker(hid_t file, const std::string& path, int64_t file_bytes, const ReadLimits& limits,
         FileIndex& index, const Hdf5File::Listener& listener)
      : file_(file),
        path_(path),
        file_bytes_(file_bytes),
        limits_(limits),
        index_(index),
        listener_(listener) {}

  void Walk() {
    const Hdf5Handle root = OwnHdf5(H5Oopen(file_, "/", H5P_DEFAULT), H5Oclose,
                                    "the root group cannot be opened", path_);
    // A golden file in which one of the two names was damaged is still held to the schema.
    index_.is_golden =
        HasAttribute(root.get(), "kvcheck_schema") || HasAttribute(root.get(), "content_hash");
    VisitObject(root.get(), "/", 0);
  }

 private:
  [[noreturn]] void Refuse(const std::string& where, std::string_view reason) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: {}", where, reason), path_);
  }

  // What cannot be read makes a golden file unreadable, and is listed in any other.
  void Problem(const std::string& where, std::string_view reason) {
    if (index_.is_golden) Refuse(where, reason);
    ObjectRecord record;
    record.problem = reason;
    Add(where, std::move(record));
  }

  // Groups of a stranger's file say nothing: the paths of what is in them do.
  void AddGroup(const std::string& where, ObjectRecord record) {
    if (index_.is_golden) return Add(where, std::move(record));
    Count(where);
  }

  void Add(const std::string& where, ObjectRecord record) {
    if (listener_) {
      listener_(where, record);
    } else if (!index_.objects.emplace(where, std::move(record)).second) {
      Refuse(where, "it is there twice");
    }
    Count(where);
  }

  void Count(const std::string& where) {
    if (++objects_ > limits_.max_objects) {
      Refuse(where, fmt::format("more than {} objects", limits_.max_objects));
    }
    if (limits_.progress) limits_.progress();
  }

  void VisitObject(hid_t object, const std::string& where, size_t depth) {
    H5O_info_t info;
    CheckHdf5(H5Oget_info2(object, &info, H5O_INFO_BASIC | H5O_INFO_NUM_ATTRS),
              fmt::format("{}: the object cannot be described", where), path_);
    // A stranger may give one tensor two names (tied weights); groups must not recur.
    const bool may_recur = !index_.is_golden && info.type == H5O_TYPE_DATASET;
    if (!may_recur && !seen_.insert(info.addr).second) {
      return Problem(where, "a second name of another object, or a cycle");
    }
    ObjectRecord record;
    switch (info.type) {
      case H5O_TYPE_GROUP:
        if (depth > kMaxDepth) Refuse(where, "groups are nested too deeply");
        if (info.num_attrs > 0)
          record.attributes = AttributesOf(object, index_.is_golden, where, path_);
        AddGroup(where, std::move(record));
        return VisitMembers(object, where, depth);
      case H5O_TYPE_DATASET:
        record.is_dataset = true;
        if (info.num_attrs > 0)
          record.attributes = AttributesOf(object, index_.is_golden, where, path_);
        try {
          DescribeDataset(object, {path_, limits_, file_bytes_, index_.is_golden},
                          info.num_attrs > 0, where, record);
          CountBytes(where, record);
        } catch (const Error& error) {
          if (index_.is_golden) throw;
          // The message without the object's path, which the listing has already.
          return Problem(where, error.message().substr(where.size() + 2));
        }
        return Add(where, std::move(record));
      default:
        return Problem(where, "neither a group nor a dataset");
    }
  }

  void CountBytes(const std::string& where, const ObjectRecord& record) {
    total_bytes_ += record.shape.ElementCount() * static_cast<int64_t>(SizeInBytes(record.dtype));
    if (total_bytes_ > limits_.max_total_bytes) {
      Refuse(where, fmt::format("the tensors exceed the limit of {} bytes together",
                                limits_.max_total_bytes));
    }
  }

  std::vector<Link> LinksOf(hid_t group, const std::string& where) const {
    struct Found {
      std::vector<Link> links;
      size_t limit;
    } found{{}, static_cast<size_t>(limits_.max_objects)};
    hsize_t position = 0;
    const herr_t status = H5Literate(
        group, H5_INDEX_NAME, H5_ITER_INC, &position,
        [](hid_t, const char* name, const H5L_info_t* info, void* out) -> herr_t {
          auto* f = static_cast<Found*>(out);
          f->links.push_back({name, info->type});
          return f->links.size() > f->limit ? -1 : 0;
        },
        &found);
    CheckHdf5(status, fmt::format("{}: its members cannot be listed", where), path_);
    return std::move(found.links);
  }

  void VisitMembers(hid_t group, const std::string& where, size_t depth) {
    for (const Link& link : LinksOf(group, where)) {
      const std::string member = (where == "/" ? "" : where) + "/" + link.name;
      if (link.name.empty() || link.name.find('/') != std::string::npos || link.name == ".") {
        Refuse(member, "a name that no path can say");
      }
      if (link.type != H5L_TYPE_HARD) {
        Problem(member, "a soft, external or unknown link; links are not followed");
        continue;
      }
      const Hdf5Handle object(H5Oopen(group, link.name.c_str(), H5P_DEFAULT), H5Oclose);
      if (!object.valid()) {
        ThrowHdf5Error(fmt::format("{}: it cannot be opened", member), path_);
      }
      VisitObject(object.get(), member, depth + 1);
    }
  }

  hid_t file_;
  const std::string& path_;
  const int64_t file_bytes_;
  const ReadLimits& limits_;
  FileIndex& index_;
  const Hdf5File::Listener& listener_;
  std::set<haddr_t> seen_;
  int64_t objects_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace

struct Hdf5File::State {
  std::string path;
  ReadLimits limits;
  Hdf5Handle file;
  FileIndex index;
  int64_t file_bytes = 0;
  bool has_index = true;
  // The dataset read last stays open: its chunk cache serves the next block of rows.
  std::string open_name;
  Hdf5Handle open_dataset;
  ObjectRecord open_record;  // without an index

  void Open(const std::string& dataset) {
    if (open_name == dataset) return;
    const Hdf5Handle access(DatasetAccess(), H5Pclose);
    open_name.clear();
    open_dataset = OwnHdf5(H5Dopen2(file.get(), dataset.c_str(), access.get()), H5Dclose,
                           fmt::format("{}: it cannot be opened", dataset), path);
    if (!has_index) DescribeOpen(dataset);
    open_name = dataset;
  }

  // What the listing told about it once more: it told it to somebody else.
  void DescribeOpen(const std::string& dataset) {
    H5O_info_t info;
    CheckHdf5(H5Oget_info2(open_dataset.get(), &info, H5O_INFO_NUM_ATTRS),
              fmt::format("{}: it cannot be described", dataset), path);
    open_record = {};
    open_record.is_dataset = true;
    if (info.num_attrs > 0) {
      open_record.attributes = AttributesOf(open_dataset.get(), index.is_golden, dataset, path);
    }
    DescribeDataset(open_dataset.get(), {path, limits, file_bytes, index.is_golden},
                    info.num_attrs > 0, dataset, open_record);
  }
};

Hdf5File::Hdf5File(const std::string& path, const ReadLimits& limits)
    : Hdf5File(path, limits, Listener()) {}

Hdf5File::Hdf5File(const std::string& path, const ReadLimits& limits, const Listener& listener)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->limits = limits;
  // First: HDF5's own message for a folder is a page of internals, and it would wait for a pipe.
  state_->file_bytes = InputFile(path).size();
  state_->has_index = !listener;
  state_->file = OpenFile(path);
  Walker(state_->file.get(), state_->path, state_->file_bytes, state_->limits, state_->index,
         listener)
      .Walk();
}

Hdf5File::~Hdf5File() = default;

const std::string& Hdf5File::path() const { return state_->path; }
const FileIndex& Hdf5File::index() const { return state_->index; }

const ObjectRecord& Hdf5File::Describe(const std::string& dataset) {
  if (state_->has_index) return DatasetRecord(*this, dataset);
  state_->Open(dataset);
  return state_->open_record;
}

void Hdf5File::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                            std::byte* out) {
  const ObjectRecord& record = Describe(dataset);
  KVCHECK_CHECK(first >= 0 && count >= 0 && first <= record.shape.ElementCount() - count,
                "elements outside of the tensor");
  if (count == 0) return;
  state_->Open(dataset);
  ReadDatasetElements(state_->open_dataset.get(), record, first, count, dataset, state_->path, out);
  if (state_->index.is_golden) {
    CheckStoredValues(record, out, static_cast<size_t>(count) * SizeInBytes(record.dtype), dataset,
                      state_->path);
  }
  if (state_->limits.progress) state_->limits.progress();
}

}  // namespace kvcheck
