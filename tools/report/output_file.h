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

// Whether files could be written into the folder, which need not be there yet: so that hours of work
// do not end with an error. context: the option that names it.
// Errors: kUsage when it is no folder, or may not be written.
void CheckOutputFolder(const std::string& folder, const std::string& context);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_OUTPUT_FILE_H_
