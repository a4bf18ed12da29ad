// The tool as a function, for main and for programs that add implementations of their own.

#ifndef TOOLS_KVCHECK_TOOL_MAIN_H_
#define TOOLS_KVCHECK_TOOL_MAIN_H_

namespace kvcheck {

// Runs one command line and gives the exit code (tools/report/summary.h). The single place where a
// typed error becomes a message on standard error and an exit code.
int ToolMain(int argc, char** argv);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_TOOL_MAIN_H_
