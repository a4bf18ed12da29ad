#include "tools/report/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

[[noreturn]] void Refuse(std::string_view what, const std::string& path) {
  throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: {}", what, std::strerror(errno)), path);
}

void WriteAll(int descriptor, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Refuse("the report cannot be written", path);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// A temporary file that disappears unless it is renamed.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : name_(path + ".XXXXXX") {
    descriptor_ = mkostemp(name_.data(), O_CLOEXEC);
    if (descriptor_ < 0) {
      name_.clear();
      Refuse("no report can be made there", path);
    }
    fchmod(descriptor_, 0644);  // mkostemp makes it private
  }
  ~Temporary() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!name_.empty()) unlink(name_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  int descriptor() const { return descriptor_; }

  void RenameTo(const std::string& path) {
    if (fsync(descriptor_) != 0) Refuse("the report cannot be synced", path);
    if (rename(name_.c_str(), path.c_str()) != 0) Refuse("the report cannot be put in place", path);
    name_.clear();
  }

 private:
  std::string name_;
  int descriptor_ = -1;
};

}  // namespace

void WriteOutput(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::fflush(stdout);
    WriteAll(STDOUT_FILENO, text, "standard output");
    return;
  }
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) Refuse("the report cannot be written", path);
    WriteAll(descriptor, text, path);
    close(descriptor);
    return;
  }
  Temporary temporary(path);
  WriteAll(temporary.descriptor(), text, path);
  temporary.RenameTo(path);
}

void CheckOutputFolder(const std::string& folder, const std::string& context) {
  std::error_code ignored;
  std::filesystem::path place = std::filesystem::absolute(folder, ignored);
  while (!place.has_filename() || !std::filesystem::exists(place, ignored)) {
    if (place == place.parent_path()) break;
    place = place.parent_path();
  }
  if (!std::filesystem::is_directory(place, ignored)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is no folder: name another, or remove it", place.string()),
                context);
  }
  if (access(place.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::kUsage,
                fmt::format("nothing can be written in {} ({}): name another folder",
                            place.string(), std::strerror(errno)),
                context);
  }
}

}  // namespace kvcheck
