// Reports on disk: whole or not at all.

#ifndef TOOLS_REPORT_OUTPUT_FILE_H_
#define TOOLS_REPORT_OUTPUT_FILE_H_

#include <string>
#include <string_view>

namespace kvcheck {

// Writes to a temporary name beside the file, syncs and renames, so that a reader sees the old file
// or the new one and never a part. "-" is standard output; an existing path that is no regular file
// (a pipe, /dev/null) is written directly.
// Errors: kUnreadableFile with the system's reason.
void WriteOutput(const std::string& path, std::string_view text);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_OUTPUT_FILE_H_
