// What comes with kvcheck beside its program.

#ifndef TOOLS_CORRIDOR_INSTALLED_DATA_H_
#define TOOLS_CORRIDOR_INSTALLED_DATA_H_

#include <string>
#include <vector>

namespace kvcheck {

// Folders share/kvcheck/NAME that there are, where the program is installed or built.
std::vector<std::string> InstalledFolders(const std::string& name);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_INSTALLED_DATA_H_
