// What reports and files say that they were made by.

#ifndef TOOLS_REPORT_TOOL_VERSION_H_
#define TOOLS_REPORT_TOOL_VERSION_H_

#include <string>

namespace kvcheck {

// "kvcheck 0.2.0".
std::string ToolVersion();

}  // namespace kvcheck

#endif  // TOOLS_REPORT_TOOL_VERSION_H_
