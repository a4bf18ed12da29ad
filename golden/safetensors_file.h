// A safetensors file as a TensorSource, read in this process: the format is simple enough that all
// of it is checked here (safetensors_header.h), so that no library has to be trusted.

#ifndef GOLDEN_SAFETENSORS_FILE_H_
#define GOLDEN_SAFETENSORS_FILE_H_

#include <memory>
#include <string>

#include "golden/file_index.h"

namespace kvcheck {

// The tensor NAME has the path "/" + NAME, whatever bytes the name has; there are no groups. The
// entry KEY of __metadata__ is the attribute "metadata.KEY" of "/". Tensors of types that kvcheck
// does not have, or of more axes, are listed with a problem. Every other tensor has its
// data_offset.
//
// Thread-safe: several threads may read elements at once.
class SafetensorsFile : public TensorSource {
 public:
  // Reads and checks the header; no tensor data is read.
  // Errors: kUnreadableFile, for everything that the format does not allow.
  explicit SafetensorsFile(const std::string& path, const ReadLimits& limits = {});
  ~SafetensorsFile() override;

  const std::string& path() const override;
  const FileIndex& index() const override;
  // Errors: also when the file was changed since it was opened.
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvcheck

#endif  // GOLDEN_SAFETENSORS_FILE_H_
