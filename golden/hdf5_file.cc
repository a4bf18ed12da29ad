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

struct Link {
  std::string name;
  H5L_type_t type;
};

Hdf5Handle OpenFile(const std::string& path) {
  PrepareHdf5();
  const Hdf5Handle access = OwnHdf5(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "HDF5 failed", path);
  // Reading takes no lock: a file on a read-only or network file system stays readable.
  H5Pset_file_locking(access.get(), false, true);
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  // The library shares one state between all opens of a file, also with those that a forked child
  // inherited, whose descriptors are closed there. Files of different drivers are never shared.
  if (InheritedHdf5()) H5Pset_fapl_stdio(access.get());
  return OwnHdf5(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose,
                 "it cannot be opened as an HDF5 file", path);
}

// Lists all objects of a file, each once.
class Walker {
 public:
  Walker(hid_t file, const std::string& path, int64_t file_bytes, const ReadLimits& limits,
         FileIndex& index)
      : file_(file), path_(path), file_bytes_(file_bytes), limits_(limits), index_(index) {}

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

  void Add(const std::string& where, ObjectRecord record) {
    if (!index_.objects.emplace(where, std::move(record)).second)
      Refuse(where, "it is there twice");
    if (static_cast<int64_t>(index_.objects.size()) > limits_.max_objects) {
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
    if (!seen_.insert(info.addr).second && !may_recur) {
      return Problem(where, "a second name of another object, or a cycle");
    }
    ObjectRecord record;
    switch (info.type) {
      case H5O_TYPE_GROUP:
        if (depth > kMaxDepth) Refuse(where, "groups are nested too deeply");
        if (info.num_attrs > 0) ReadAttributesOf(object, where, record);
        Add(where, std::move(record));
        return VisitMembers(object, where, depth);
      case H5O_TYPE_DATASET:
        record.is_dataset = true;
        if (info.num_attrs > 0) ReadAttributesOf(object, where, record);
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

  void ReadAttributesOf(hid_t object, const std::string& where, ObjectRecord& record) const {
    if (index_.is_golden) {
      record.attributes = ReadAttributes(object, where, path_);
      return;
    }
    for (const char* name : {"kv_dtype", "axes", "kv_format"}) {
      std::optional<AttributeValue> value = TryReadAttribute(object, name);
      if (value && std::holds_alternative<std::string>(*value)) {
        record.attributes[name] = std::move(*value);
      }
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
  std::set<haddr_t> seen_;
  int64_t total_bytes_ = 0;
};

}  // namespace

struct Hdf5File::State {
  std::string path;
  ReadLimits limits;
  Hdf5Handle file;
  FileIndex index;
  // The dataset read last stays open: its chunk cache serves the next block of rows.
  std::string open_name;
  Hdf5Handle open_dataset;
};

Hdf5File::Hdf5File(const std::string& path, const ReadLimits& limits)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->limits = limits;
  // First: HDF5's own message for a folder is a page of internals, and it would wait for a pipe.
  const int64_t file_bytes = InputFile(path).size();
  state_->file = OpenFile(path);
  Walker(state_->file.get(), state_->path, file_bytes, state_->limits, state_->index).Walk();
}

Hdf5File::~Hdf5File() = default;

const std::string& Hdf5File::path() const { return state_->path; }
const FileIndex& Hdf5File::index() const { return state_->index; }

void Hdf5File::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                            std::byte* out) {
  const ObjectRecord& record = DatasetRecord(*this, dataset);
  KVCHECK_CHECK(first >= 0 && count >= 0 && first <= record.shape.ElementCount() - count,
                "elements outside of the tensor");
  if (count == 0) return;
  if (state_->open_name != dataset) {
    const Hdf5Handle access(DatasetAccess(), H5Pclose);
    state_->open_name.clear();
    state_->open_dataset =
        OwnHdf5(H5Dopen2(state_->file.get(), dataset.c_str(), access.get()), H5Dclose,
                fmt::format("{}: it cannot be opened", dataset), state_->path);
    state_->open_name = dataset;
  }
  ReadDatasetElements(state_->open_dataset.get(), record, first, count, dataset, state_->path, out);
  if (state_->index.is_golden) {
    CheckStoredValues(record, out, static_cast<size_t>(count) * SizeInBytes(record.dtype), dataset,
                      state_->path);
  }
  if (state_->limits.progress) state_->limits.progress();
}

}  // namespace kvcheck
