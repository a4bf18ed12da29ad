#include "tools/report/tool_version.h"

namespace kvcheck {

std::string ToolVersion() { return "kvcheck " KVCHECK_VERSION; }

}  // namespace kvcheck
