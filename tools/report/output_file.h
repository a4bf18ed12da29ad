// Reports on disk: whole or not at all.

#ifndef TOOLS_REPORT_OUTPUT_FILE_H_
#define TOOLS_REPORT_OUTPUT_FILE_H_

#include <memory>
#include <string>
#include <string_view>

namespace kvcheck {

// Writes to a temporary name beside the file, syncs and renames, so that a reader sees the old file
// or the new one and never a part. "-" is standard output; an existing path that is no regular file
// (a pipe, /dev/null) is written directly. Errors, of all: kUnreadableFile with the system's
// reason.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  // Without Commit: nothing appears under a path that is a regular file's.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(std::string_view text);
  void Commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The whole of it.
void WriteOutput(const std::string& path, std::string_view text);

// At the end of a file that may be there already and that others write too, in one piece.
void AppendOutput(const std::string& path, std::string_view text);

// The folder for temporary files: $TMPDIR, else /tmp. Errors: kUsage where TMPDIR is no folder, or
// nothing can be written there.
std::string TemporaryFolder();

// Whether files could be written into the folder, which need not be there yet: so that hours of
// work do not end with an error. context: the option that names it. Errors: kUsage when it is no
// folder, or may not be written.
void CheckOutputFolder(const std::string& folder, const std::string& context);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_OUTPUT_FILE_H_
