// The command-line tool.

#include "tools/kvcheck/tool_main.h"

int main(int argc, char** argv) { return kvcheck::ToolMain(argc, argv); }
