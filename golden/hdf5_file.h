// An HDF5 file as a TensorSource, read in this process. Nothing in the file is trusted: types,
// ranks, extents, storage, links and filters are checked before any byte of data is read. The
// library itself is not proof against damage (it can loop for ever or read outside its buffers on a
// damaged file), so a file of unknown origin is opened through tools/process/untrusted_reader.h,
// which runs this class in a supervised child.

#ifndef GOLDEN_HDF5_FILE_H_
#define GOLDEN_HDF5_FILE_H_

#include <functional>
#include <memory>
#include <string>

#include "golden/file_index.h"

namespace kvcheck {

class Hdf5File : public TensorSource {
 public:
  // Opens, checks and lists; no tensor data is read. In a file with the schema's root attributes
  // everything must be as the schema has it; in others, objects that cannot be read are listed with
  // their problem, and axes come from `axes` or from dimension labels.
  // Errors: kUnreadableFile.
  explicit Hdf5File(const std::string& path, const ReadLimits& limits = {});

  // Takes the objects in the order in which they are met. The index stays without them, and a
  // tensor that is asked for is described again: a reader of many tensors for somebody else need
  // not keep their list.
  using Listener = std::function<void(const std::string& path, const ObjectRecord& record)>;
  Hdf5File(const std::string& path, const ReadLimits& limits, const Listener& listener);
  ~Hdf5File() override;

  const std::string& path() const override;
  const FileIndex& index() const override;
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;
  // The record of a dataset, also of one that the index lacks.
  // Errors: as DatasetRecord, and kUnreadableFile.
  const ObjectRecord& Describe(const std::string& dataset);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_FILE_H_
