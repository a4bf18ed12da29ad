// Tensor files of unknown origin, read in a supervised child: a damaged file can make the library
// that reads it (HDF5's; zlib of .npz archives) loop for ever or read outside of its buffers, and
// neither may reach the caller. The child opens and checks the file (golden/hdf5_file.h,
// golden/numpy_array.h) and then serves blocks of elements; what it sends
// is checked here once more, since its memory may be damaged too.

#ifndef TOOLS_PROCESS_UNTRUSTED_READER_H_
#define TOOLS_PROCESS_UNTRUSTED_READER_H_

#include <memory>
#include <string>

#include "golden/file_index.h"
#include "golden/reader.h"
#include "golden/schema.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {

struct UntrustedOptions {
  UntrustedOptions() {
    child.since_progress = std::chrono::milliseconds(10'000);
    child.address_space_bytes = int64_t{4} << 30;
  }

  ChildLimits child;
  // limits.progress is not used.
  ReadLimits limits;
};

// The child lives as long as the object, and holds the file open; it ends with the thread that made
// it, too. Thread-safe: several threads may read elements, which they do in turns.
class UntrustedFile : public TensorSource {
 public:
  // place: a file, or an .npz archive with the type of its codes behind it (golden/raw_file.h).
  // Errors: kUnreadableFile; a crash or hang of the library is one.
  explicit UntrustedFile(const std::string& place, const UntrustedOptions& options = {});
  ~UntrustedFile() override;

  const std::string& path() const override;
  const FileIndex& index() const override;
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A file of tensors in any format (golden/tensor_file.h): HDF5 and .npz archives in a child, what
// kvcheck's own readers read (safetensors, .npy, raw elements) in this process.
// Errors: as OpenTensorFile and UntrustedFile.
std::unique_ptr<TensorSource> OpenUntrustedTensors(const std::string& place,
                                                   const UntrustedOptions& options = {});

// A golden file, its content hash verified. Errors: as GoldenReader and UntrustedFile.
GoldenReader OpenUntrustedGolden(const std::string& path, const UntrustedOptions& options = {});
// The same, whole, with all tensors in memory; options.limits.max_total_bytes bounds them.
GoldenFile ReadUntrustedGolden(const std::string& path, const UntrustedOptions& options = {});

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_UNTRUSTED_READER_H_
