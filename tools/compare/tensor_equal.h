// Whether a tensor of one file is, type, shape and bytes, one of another file.

#ifndef TOOLS_COMPARE_TENSOR_EQUAL_H_
#define TOOLS_COMPARE_TENSOR_EQUAL_H_

#include <functional>
#include <string>

#include "tools/compare/pairs.h"

namespace kvcheck {

// A few elements at the beginning, in the middle and at the end. False also for tensors that are
// absent or cannot be read, or have no elements.
// Errors: kUnreadableFile.
bool TensorsLookEqual(LockedFile& gold, const std::string& gold_path, LockedFile& got,
                      const std::string& got_path);

// All bytes, by blocks. between: called before each. Errors: kUnreadableFile.
bool TensorsAreEqual(LockedFile& gold, const std::string& gold_path, LockedFile& got,
                     const std::string& got_path, const std::function<void()>& between);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_TENSOR_EQUAL_H_
