#include "golden/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::chrono::milliseconds kLook{50};

class OpenText {
 public:
  explicit OpenText(const std::string& path) : path_(path) {
    // Without O_NONBLOCK it would wait here for the writer of a pipe.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) Refuse(std::strerror(errno));
    struct stat status{};
    if (fstat(descriptor_, &status) == 0) {
      is_folder_ = S_ISDIR(status.st_mode);
      is_pipe_ = S_ISFIFO(status.st_mode);
    }
  }
  ~OpenText() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenText(const OpenText&) = delete;
  OpenText& operator=(const OpenText&) = delete;

  bool is_folder() const { return is_folder_; }
  bool is_pipe() const { return is_pipe_; }
  ssize_t Read(std::vector<char>* part) const {
    return read(descriptor_, part->data(), part->size());
  }
  void Wait() const {
    pollfd file = {descriptor_, POLLIN, 0};
    poll(&file, 1, static_cast<int>(kLook.count()));
  }
  [[noreturn]] void Refuse(const std::string& reason) const {
    throw Error(ErrorCode::kUnreadableFile, reason, path_);
  }

 private:
  const std::string& path_;
  int descriptor_ = -1;
  bool is_folder_ = false;
  bool is_pipe_ = false;
};

}  // namespace

std::string ReadWholeText(const std::string& path, size_t most_bytes,
                          const std::function<void()>& on_wait) {
  const OpenText file(path);
  if (file.is_folder()) file.Refuse("is a folder, not a file");
  std::string text;
  std::vector<char> part(size_t{1} << 16);
  std::chrono::milliseconds alone{0};
  while (true) {
    const ssize_t got = file.Read(&part);
    if (got > 0) {
      text.append(part.data(), static_cast<size_t>(got));
      // A device or a pipe may have no end, and a file given by mistake no lines.
      if (text.size() > most_bytes) {
        file.Refuse(
            fmt::format("is longer than {} MiB, which no list of cases is; split it, or give "
                        "the file that was meant",
                        most_bytes >> 20));
      }
      continue;
    }
    const bool waits = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (got < 0 && !waits && errno != EINTR) file.Refuse(std::strerror(errno));
    // The end of a pipe that nobody has written to is that of one whose writer is still to come.
    if (got == 0 && (!file.is_pipe() || !text.empty())) return text;
    if (on_wait) on_wait();
    if (got == 0) alone += kLook;
    if (alone > kPipeWithoutWriter) {
      file.Refuse("is a pipe into which nobody writes");
    }
    if (waits) alone = std::chrono::milliseconds(0);
    if (got == 0) {
      usleep(static_cast<useconds_t>(kLook.count()) * 1000);
    } else {
      file.Wait();
    }
  }
}

}  // namespace kvcheck
