// Memory of Python objects as arrays of kvcheck, without a copy: the buffer protocol alone. What
// other libraries hold (DLPack, types that numpy has not) is made such an object by
// kvcheck/_arrays.py.

#ifndef TOOLS_PYTHON_BUFFERS_H_
#define TOOLS_PYTHON_BUFFERS_H_

#include <nanobind/nanobind.h>

#include <deque>
#include <string>
#include <vector>

#include "tools/corridor/kvcheck.h"

namespace kvcheck {

// Arrays whose memory stays where it is as long as this lives. Made and destroyed with the GIL.
class HeldArrays {
 public:
  // arrays: {name: (object with a buffer, name of the type of its elements)}.
  // Errors: Error kMissingData for a pair that is none, a type that is not known, a buffer of
  // another size of elements; what the object itself raises.
  explicit HeldArrays(const nanobind::dict& arrays);
  ~HeldArrays();
  HeldArrays(const HeldArrays&) = delete;
  HeldArrays& operator=(const HeldArrays&) = delete;
  const Arrays& arrays() const { return arrays_; }

 private:
  void Add(const std::string& name, nanobind::handle pair);

  std::deque<Py_buffer> views_;
  Arrays arrays_;
};

// A tensor as Python takes it: (bytes as an array of u8, name of the type, shape).
nanobind::object PythonTensor(Tensor tensor);
nanobind::dict PythonTensors(TensorMap tensors);
// A numpy array of f64.
nanobind::object PythonNumbers(std::vector<double> numbers, const std::vector<int64_t>& extents);

}  // namespace kvcheck

#endif  // TOOLS_PYTHON_BUFFERS_H_
