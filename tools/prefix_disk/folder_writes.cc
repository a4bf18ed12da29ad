#include "tools/prefix_disk/folder_writes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, mode_t mode = 0)
      : fd_(open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return true;
}

constexpr const char* kTemporary = ".tmp";

// The file under its temporary name. half: the first half of each part alone.
// *error: errno of what failed.
bool WriteTemporary(const std::string& path, FileParts parts, bool half, bool sync,
                    int* error = nullptr) {
  const Descriptor file(path + kTemporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  bool is_written = file.get() >= 0;
  for (const std::span<const std::byte> part : parts) {
    is_written = is_written && WriteAll(file.get(), part.first(part.size() / (half ? 2 : 1)));
  }
  is_written = is_written && (!sync || fsync(file.get()) == 0);
  if (!is_written && error != nullptr) *error = errno;
  return is_written;
}

}  // namespace

bool WriteWholeFile(const std::string& path, FileParts parts) {
  const bool is_done = WriteTemporary(path, parts, /*half=*/false, /*sync=*/true) &&
                       rename((path + kTemporary).c_str(), path.c_str()) == 0;
  if (!is_done) {
    unlink((path + kTemporary).c_str());
    return false;
  }
  const Descriptor folder(fs::absolute(path).parent_path().string(), O_RDONLY | O_DIRECTORY);
  return folder.get() >= 0 && fsync(folder.get()) == 0;
}

FolderWrites::FolderWrites(std::string folder, bool sync)
    : folder_(std::move(folder)), sync_(sync) {
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
  lock_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) {
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("the folder of kept prompts cannot be opened: {}", strerror(errno)),
                folder_);
  }
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  close(lock_);
  throw Error(ErrorCode::kUnreadableFile,
              "another process has this folder of kept prompts; end it, or name another folder",
              folder_);
}

FolderWrites::~FolderWrites() { close(lock_); }

FolderWrites::Fate FolderWrites::Next() {
  if (dead_) return Fate::kNone;
  if (kill_at_ == 0) return Fate::kWhole;
  --kill_at_;
  if (kill_at_ > 0) return Fate::kWhole;
  dead_ = true;
  return Fate::kHalf;
}

void FolderWrites::ThrowIfDead() const {
  if (dead_) throw PrefixKilled();
}

bool FolderWrites::Write(const std::string& name, FileParts parts) {
  ThrowIfDead();
  const std::string path = PathOf(name);
  int error = 0;
  bool is_done = WriteTemporary(path, parts, Next() != Fate::kWhole, sync_, &error);
  ThrowIfDead();
  is_done = is_done && Next() == Fate::kWhole;
  ThrowIfDead();
  if (is_done && rename((path + kTemporary).c_str(), path.c_str()) == 0) return true;
  NoteTrouble(fmt::format("{} cannot be written: {}", name, strerror(is_done ? errno : error)));
  unlink((path + kTemporary).c_str());
  return false;
}

void FolderWrites::NoteTrouble(const std::string& reason) {
  if (!dead_ && trouble_.empty()) trouble_ = reason;
}

void FolderWrites::Remove(const std::string& name) {
  ThrowIfDead();
  if (Next() == Fate::kWhole) unlink(PathOf(name).c_str());
  ThrowIfDead();
}

void FolderWrites::SyncFolder() const {
  if (sync_ && !dead_) fsync(lock_);
}

std::vector<std::string> FolderWrites::Files() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    if (it->is_regular_file(error)) names.push_back(it->path().filename().string());
  }
  return names;
}

bool FolderWrites::Read(const std::string& name, std::vector<std::byte>* bytes) const {
  const Descriptor file(PathOf(name), O_RDONLY | O_NOFOLLOW);
  struct stat status{};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  bytes->resize(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < bytes->size()) {
    const ssize_t got = read(file.get(), bytes->data() + done, bytes->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace kvcheck
