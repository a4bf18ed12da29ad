#include "tools/report/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

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

// A pipe or a device. Without O_NONBLOCK a pipe that nobody reads would keep the run for ever.
int OpenSpecial(const std::string& path) {
  constexpr std::chrono::milliseconds kLook{20};
  constexpr std::chrono::milliseconds kPatience{3'000};
  for (std::chrono::milliseconds waited{0};; waited += kLook) {
    const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0) {
      fcntl(descriptor, F_SETFL, O_WRONLY);
      return descriptor;
    }
    if (errno != ENXIO) Refuse("the report cannot be written", path);
    if (waited >= kPatience) {
      throw Error(ErrorCode::kUnreadableFile,
                  "the report cannot be written: it is a pipe that nobody reads", path);
    }
    usleep(static_cast<useconds_t>(kLook.count()) * 1000);
  }
}

}  // namespace

// A temporary file that disappears unless it is renamed.
class TemporaryReport {
 public:
  explicit TemporaryReport(const std::string& path) : name_(path + ".XXXXXX") {
    descriptor_ = mkostemp(name_.data(), O_CLOEXEC);
    if (descriptor_ < 0) {
      name_.clear();
      Refuse("no report can be made there", path);
    }
    fchmod(descriptor_, 0644);  // mkostemp makes it private
  }
  ~TemporaryReport() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!name_.empty()) unlink(name_.c_str());
  }
  TemporaryReport(const TemporaryReport&) = delete;
  TemporaryReport& operator=(const TemporaryReport&) = delete;

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

struct OutputFile::State {
  std::string path;
  int descriptor = -1;  // of what is written directly
  std::unique_ptr<TemporaryReport> temporary;

  ~State() {
    if (descriptor > STDERR_FILENO) close(descriptor);
  }
};

OutputFile::OutputFile(std::string path) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  if (state_->path == "-") {
    std::fflush(stdout);
    state_->path = "standard output";
    state_->descriptor = STDOUT_FILENO;
    return;
  }
  struct stat status;
  if (stat(state_->path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    state_->descriptor = OpenSpecial(state_->path);
    return;
  }
  state_->temporary = std::make_unique<TemporaryReport>(state_->path);
}

OutputFile::~OutputFile() = default;

void OutputFile::Write(std::string_view text) {
  const int descriptor =
      state_->temporary != nullptr ? state_->temporary->descriptor() : state_->descriptor;
  WriteAll(descriptor, text, state_->path);
}

void OutputFile::Commit() {
  if (state_->temporary != nullptr) state_->temporary->RenameTo(state_->path);
}

void WriteOutput(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.Write(text);
  file.Commit();
}

void AppendOutput(const std::string& path, std::string_view text) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) Refuse("the report cannot be written", path);
  try {
    WriteAll(descriptor, text, path);
  } catch (const Error&) {
    close(descriptor);
    throw;
  }
  close(descriptor);
}

std::string TemporaryFolder() {
  const char* named = std::getenv("TMPDIR");
  if (named == nullptr || *named == '\0') return "/tmp";
  CheckOutputFolder(named, "TMPDIR");
  std::error_code ignored;
  if (!std::filesystem::is_directory(named, ignored)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is no folder: name another, or make it first", named), "TMPDIR");
  }
  return named;
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
