#include "golden/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// One call of read gives at most this much (Linux: 2 GiB less a page).
constexpr size_t kMaxReadBytes = size_t{1} << 30;

[[noreturn]] void Refuse(const std::string& reason, const std::string& path) {
  throw Error(ErrorCode::kUnreadableFile, reason, path);
}

void RefuseUnlessRegular(const struct stat& status, const std::string& path) {
  switch (status.st_mode & S_IFMT) {
    case S_IFREG:
      return;
    case S_IFDIR:
      Refuse("it is a folder, not a file", path);
    case S_IFIFO:
      Refuse("it is a pipe: tensors are read from regular files", path);
    case S_IFSOCK:
      Refuse("it is a socket: tensors are read from regular files", path);
    default:
      Refuse("it is a device: tensors are read from regular files", path);
  }
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  struct stat status{};
  // Before it is opened: opening a device may do something.
  if (stat(path_.c_str(), &status) != 0) Refuse(std::strerror(errno), path_);
  RefuseUnlessRegular(status, path_);
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) Refuse(fmt::format("it cannot be opened: {}", std::strerror(errno)), path_);
  try {
    // Again: the path may name another file by now.
    if (fstat(descriptor_, &status) != 0) Refuse(std::strerror(errno), path_);
    RefuseUnlessRegular(status, path_);
  } catch (const Error&) {
    close(descriptor_);
    throw;
  }
  size_ = status.st_size;
  changed_s_ = status.st_mtim.tv_sec;
  changed_ns_ = status.st_mtim.tv_nsec;
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::ReadAt(int64_t offset, void* out, size_t bytes) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, std::min(bytes, kMaxReadBytes), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      Refuse(fmt::format("reading it failed: {}", std::strerror(errno)), path_);
    }
    if (got == 0) {
      ThrowIfChanged();
      Refuse(fmt::format("it ends at byte {}, {} bytes before the end of what was asked", offset,
                         bytes),
             path_);
    }
    to += got;
    offset += got;
    bytes -= static_cast<size_t>(got);
  }
}

void InputFile::ThrowIfChanged() const {
  struct stat status{};
  if (fstat(descriptor_, &status) != 0) {
    Refuse(fmt::format("it cannot be read any more: {}", std::strerror(errno)), path_);
  }
  if (status.st_size != size_) {
    Refuse(fmt::format("it was changed while it was read: {} bytes at first, {} now; read a copy "
                       "that nobody writes to",
                       size_, static_cast<int64_t>(status.st_size)),
           path_);
  }
  if (status.st_mtim.tv_sec != changed_s_ || status.st_mtim.tv_nsec != changed_ns_) {
    Refuse("it was changed while it was read; read a copy that nobody writes to", path_);
  }
}

}  // namespace kvcheck
