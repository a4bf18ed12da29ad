// Tensors in files (golden/tensor_file.h) as inputs and as observed outputs of a case. Files are of
// unknown origin and are read as tools/process/untrusted_reader.h says; observed tensors are read
// by blocks, inputs whole.
//
// What a file's dataset means: the type that its attribute kv_dtype names; without the attribute,
// the stored type, except that an integer as wide as the type which the case declares holds that
// type's codes (HDF5 and numpy have no bfloat16 and no fp8), and that fp8 where the case declares
// uint8 holds codes.

#ifndef TOOLS_CORRIDOR_STORED_TENSORS_H_
#define TOOLS_CORRIDOR_STORED_TENSORS_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "golden/reader.h"
#include "reference/spec/case.h"
#include "reference/spec/tiles.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

// A tensor file; as a golden file, with its hash verified, when it says that it is one. Several
// threads may read tensors of it at once.
class StoredFile {
 public:
  // Errors: kUnreadableFile.
  explicit StoredFile(const std::string& path);
  // The tensors of one group of another file, which must outlive it: of paths that begin with
  // /GROUP/ or, as safetensors has them, /GROUP. ; it has no schema.
  // Errors: kSelection where there is no such group.
  StoredFile(const StoredFile& whole, const std::string& group);
  const std::string& path() const { return path_; }
  TensorSource& source() const;
  // Errors: kUnreadableFile when the file does not have the schema.
  const GoldenReader& golden() const;
  bool IsGolden() const { return golden_ != nullptr; }

 private:
  std::string path_;
  std::unique_ptr<GoldenReader> golden_;
  std::unique_ptr<TensorSource> plain_;
};

// The groups of a file, in order: what stands before the last part of a tensor's path, without the
// leading "/". Groups inside of others are left out, and tensors at the root are in none.
std::vector<std::string> GroupsOf(const FileIndex& index);

// Names of a case's tensors to datasets: "out" -> "/cases/gqa/observed/mlx/out".
using DatasetNames = std::map<std::string, std::string>;

// The outputs that one implementation left for a case.
struct StoredAnswer {
  std::string impl;  // "" where the file names none
  DatasetNames outputs;
  // Attributes beside them; "" when absent.
  std::string implementation;
  std::string version;
  std::string plan;
  std::string profile;
  std::string expect;
  std::string reason;
};

// What a file holds for a case, each an answer of its own: /cases/NAME/observed/*/OUTPUT,
// /NAME/OUTPUT, and /NAME, which is the one output of the case. Empty when there is nothing.
std::vector<StoredAnswer> FindAnswers(const FileIndex& index, const std::string& case_name,
                                      const Case& c);

// "not looked at in FILE: /a, /b, 3 more".
std::string NotLookedAt(const std::string& file, const std::set<std::string>& paths);

// Of a folder of shards: what lies in it and its index does not name.
std::optional<std::string> NotNamedByIndex(const StoredFile& file);

// "mlx.core 0.32.4", or the name of the group.
std::string ImplementationText(const StoredAnswer& answer);

// The datasets of a case's tensors in a file without the schema: those of `map`, else /NAME, else
// the only dataset of the file whose last name it is. Names without a dataset are left out.
DatasetNames FindByName(const FileIndex& index, const std::map<std::string, TensorSpec>& specs,
                        const DatasetNames& map);

// The type of a dataset's elements, as said above. declared: what the case says of it; may be null.
DType MeantType(const ObjectRecord& record, const TensorSpec* declared);

// Errors: kMissingData where the case names its data by content hash, and the file has another.
void CheckContentHash(const StoredFile& file, const Case& c);

// Observed tensors, read from the file as the judge asks for them.
class FileObserved : public ObservedSource {
 public:
  // file must outlive it. c: declares types where the file does not.
  // Errors: kUnsupported for a dataset that cannot be read.
  FileObserved(const StoredFile& file, const DatasetNames& outputs, const Case& c);
  const OutputInfo* Find(const std::string& name) const override;
  std::vector<std::string> Names() const override;
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override;

 private:
  TensorSource& source_;
  DatasetNames datasets_;
  std::map<std::string, OutputInfo> infos_;
  mutable std::mutex mutex_;
};

// The inputs of a case from datasets; names which the case does not need are ignored, but for those
// that it may have left out (spare_tensors.h).
// Errors: kMissingData when one is absent or not of the case's type and shape; kUnreadableFile.
TensorMap LoadInputs(const StoredFile& file, const Case& c, const DatasetNames& datasets);

// The inputs of a golden case: stored ones, or generated when the file has none and the case says
// how. Errors: kMissingData.
TensorMap GoldenInputs(const StoredFile& file, const GoldenCase& outline, const Case& c,
                       const Profile& profile);
// True when there is a way to have them.
bool HasInputs(const GoldenCase& outline, const Case& c);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_STORED_TENSORS_H_
