// Files and folders that are removed by their makers, or by the process where it ends before that.

#ifndef REFERENCE_SPEC_TEMPORARY_PATHS_H_
#define REFERENCE_SPEC_TEMPORARY_PATHS_H_

#include <string>

namespace kvcheck {

// Thread-safe. The file or folder is there, and this process made it.
void RememberTemporary(const std::string& path);
// Removes it, if it is there, with what is in it, and forgets it.
void RemoveTemporary(const std::string& path);
// All that are remembered, also folders into which a thread still writes. For a process that ends
// at once.
void RemoveTemporaries();

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TEMPORARY_PATHS_H_
