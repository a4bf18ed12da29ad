// Two HDF5 files without the schema, and the tool's comparison of them.

#ifndef TESTS_TOOLS_KVCHECK_STORED_FILES_H_
#define TESTS_TOOLS_KVCHECK_STORED_FILES_H_

#include <limits>
#include <string>
#include <vector>

#include "golden/plain_writer.h"
#include "reference/numerics/convert.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Tensor Values(DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor tensor(dtype, shape);
  EncodeFrom(values, dtype, tensor.bytes.data());
  return tensor;
}

inline Tensor F64(const std::vector<double>& values) {
  return Values(DType::kFloat64, Shape::Unnamed({static_cast<int64_t>(values.size())}), values);
}

// Element i is i + first.
inline Tensor Counting(const Shape& shape, double first, DType dtype = DType::kFloat32) {
  std::vector<double> values(static_cast<size_t>(shape.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i);
  return Values(dtype, shape, values);
}

class CompareStored : public ToolTest {
 protected:
  void Write(const std::string& name, const TensorMap& tensors) const {
    PlainWriter writer(Path(name));
    for (const auto& [path, tensor] : tensors) {
      writer.Begin(path, tensor.dtype, tensor.shape);
      writer.Append(tensor.bytes);
    }
    writer.Finish();
  }
  // compare gold.h5 got.h5 of these tensors.
  ToolRun Compare(const TensorMap& gold, const TensorMap& got,
                  const std::vector<std::string>& arguments = {}) const {
    Write("gold.h5", gold);
    Write("got.h5", got);
    return Again(arguments);
  }
  ToolRun Again(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {"compare", "gold.h5", "got.h5"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return Tool(words);
  }
  // compare of one tensor /x each.
  int Exit(const Tensor& gold, const Tensor& got,
           const std::vector<std::string>& arguments = {}) const {
    return Compare({{"/x", gold}}, {{"/x", got}}, arguments).exit_code;
  }
};

// Layers of keys and values whose contents all differ.
inline TensorMap CacheTensors(int layers) {
  TensorMap tensors;
  for (int i = 0; i < layers; ++i) {
    const Shape shape = {{"B", 1}, {"Hkv", 2}, {"T", 5}, {"Dk", 4}};
    tensors["/layers/" + std::to_string(i) + "/keys"] = Counting(shape, 1000 * i);
    tensors["/layers/" + std::to_string(i) + "/values"] = Counting(shape, 1000 * i + 500);
  }
  return tensors;
}

inline void Change(TensorMap* tensors, const std::string& path, int64_t element, float by) {
  tensors->at(path).As<float>()[element] += by;
}

}  // namespace kvcheck

#endif  // TESTS_TOOLS_KVCHECK_STORED_FILES_H_
