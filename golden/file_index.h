// What a tensor file holds, without its bytes: every object by path, with its attributes, storage
// type and shape. Plain data, so that it crosses to another process, and so that the rules of the
// schema (schema.h) and the content hash (content_hash.h) are written without HDF5.

#ifndef GOLDEN_FILE_INDEX_H_
#define GOLDEN_FILE_INDEX_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/shape.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

using AttributeValue = std::variant<std::string, int64_t>;

struct ObjectRecord {
  bool is_dataset = false;
  std::map<std::string, AttributeValue> attributes;
  // Of datasets. dtype is what kv_dtype says, or the stored type where a file has no such
  // attribute.
  DType dtype = DType::kFloat32;
  Shape shape;
  // Where the file has the elements, row-major, little endian, each as wide as dtype, one behind
  // the other: the byte of the first. nullopt when they lie otherwise (chunks, big endian), or
  // nothing is stored.
  std::optional<int64_t> data_offset;
  // Why the object cannot be read ("a soft link"); empty when it can. Only in files without the
  // schema: in a golden file such an object makes the file unreadable.
  std::string problem;

  bool operator==(const ObjectRecord&) const = default;
};

struct FileIndex {
  // The root carries kvcheck_schema or content_hash: everything in the file has to obey the schema.
  bool is_golden = false;
  // By absolute path; "/" is the root. std::map orders paths by their bytes, as the hash does.
  // Groups of HDF5 files without the schema are left out: nothing is read of them.
  std::map<std::string, ObjectRecord> objects;

  bool operator==(const FileIndex&) const = default;
};

// A dataset, or an object that cannot be read as one, for listings and for matching by path.
struct ListedTensor {
  std::string path;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::string kv_format;  // empty when none is said
  std::string problem;    // why it cannot be read; then dtype and shape mean nothing
};

// In order of their paths; groups are left out.
std::vector<ListedTensor> ListTensors(const FileIndex& index);

// What a reader of a file may use. Exceeding a limit is Error{kUnreadableFile}.
struct ReadLimits {
  int64_t max_objects = 1'000'000;
  int64_t max_tensor_bytes = int64_t{1} << 40;  // of one tensor
  int64_t max_total_bytes = int64_t{1} << 44;   // of all tensors of the file
  // Called between steps that each end in bounded time, so that a supervisor sees progress.
  std::function<void()> progress;
};

// Where a tensor comes from: two of the same are one and the same.
struct TensorOrigin {
  std::string file;    // a path of the file system
  std::string tensor;  // its path in there; "" where the file has no other

  bool operator==(const TensorOrigin&) const = default;
};

// A file whose tensors are read by blocks of elements, which are numbered in row-major order.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // For messages.
  virtual const std::string& path() const = 0;
  virtual const FileIndex& index() const = 0;
  // Precondition: the index has the dataset.
  virtual TensorOrigin OriginOf(const std::string& dataset) const { return {path(), dataset}; }
  // Elements [first, first + count) of a dataset into `out`, which has room for exactly them.
  // Precondition: the index has the dataset, without a problem, and the range is inside it.
  // Errors: kUnreadableFile.
  virtual void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                            std::byte* out) = 0;
};

// The record of a dataset that can be read.
// Errors: kMissingData when absent or a group; kUnsupported when it has a problem.
const ObjectRecord& DatasetRecord(const TensorSource& source, const std::string& dataset);

// The whole tensor, in blocks. Errors: as DatasetRecord, and kUnreadableFile.
Tensor ReadTensor(TensorSource& source, const std::string& dataset);
// Some rows: a row is the last axis. Shape: two unnamed axes (row_count, row length).
// Errors: as ReadTensor; kMissingData also when there are no such rows.
Tensor ReadRows(TensorSource& source, const std::string& dataset, int64_t first_row,
                int64_t row_count);

// The bytes of a tensor with these extents; nullopt when an extent is negative, or the size or any
// product on the way to it exceeds `limit`.
std::optional<int64_t> BoundedBytes(const Shape& shape, DType dtype, int64_t limit);

// What a file without the schema may call an axis: 1 to 32 printable ASCII characters. Golden files
// have the letters of reference/spec/shape.h alone.
bool IsAxisLabel(std::string_view label);

// Elements of a block of 1 MiB, in which large tensors are read.
int64_t BlockElements(DType dtype);

}  // namespace kvcheck

#endif  // GOLDEN_FILE_INDEX_H_
