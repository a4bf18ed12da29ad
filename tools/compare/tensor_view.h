// One stored tensor as an ObservedSource of one name, which the adaptors of this room (slices,
// casts) are made of and the judge reads from.

#ifndef TOOLS_COMPARE_TENSOR_VIEW_H_
#define TOOLS_COMPARE_TENSOR_VIEW_H_

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// The name under which a pair of tensors is judged.
inline constexpr const char* kTensorName = "tensor";

// A source of kTensorName alone.
class TensorView : public ObservedSource {
 public:
  const OutputInfo* Find(const std::string& name) const override {
    return name == kTensorName ? &info_ : nullptr;
  }
  std::vector<std::string> Names() const override { return {kTensorName}; }
  const OutputInfo& info() const { return info_; }

 protected:
  TensorView(DType dtype, Shape shape);

  OutputInfo info_;
};

// A dataset of a file. Any range of elements may be read, and out may hold any number of them.
class FileTensor : public TensorView {
 public:
  // file and mutex, which guards it, must outlive this. shape: the dataset's, with the names that
  // its axes shall have. Errors: as DatasetRecord.
  FileTensor(TensorSource& file, const std::string& path, Shape shape, std::mutex& mutex);
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override;

 private:
  TensorSource& file_;
  std::string path_;
  std::mutex& mutex_;
};

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_TENSOR_VIEW_H_
