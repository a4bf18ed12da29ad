// Arrays in a caller's memory as tensors: inputs are copied to row-major ones, outputs are read
// where they lie.

#ifndef TOOLS_CORRIDOR_ARRAY_TENSORS_H_
#define TOOLS_CORRIDOR_ARRAY_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"
#include "tools/corridor/kvcheck.h"

namespace kvcheck {

// One stride per axis, those of a row-major array where it names none. Errors: kMissingData for an
// extent below 0, strides of another number than axes, a null pointer to elements.
std::vector<int64_t> StridesOf(const std::string& name, const Array& array);

// Errors: as StridesOf; kUnsupported where it does not fit the memory.
Tensor ToTensor(const std::string& name, const Array& array);
TensorMap ToTensors(const Arrays& arrays);

// Outputs in the caller's memory, of which the judge reads the rows that it asks for. A bool or
// e2m1fn array is read like any other: a byte that is no code is a fault of who wrote it.
class ArrayObserved : public ObservedSource {
 public:
  // The arrays' memory must outlive it. Errors: as StridesOf.
  explicit ArrayObserved(const Arrays& arrays);
  const OutputInfo* Find(const std::string& name) const override;
  std::vector<std::string> Names() const override;
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override;

 private:
  Arrays arrays_;
  std::map<std::string, OutputInfo> infos_;
};

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_ARRAY_TENSORS_H_
