#include "tools/report/spool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "reference/spec/error.h"
#include "tools/report/output_file.h"

namespace kvcheck {
namespace {

[[noreturn]] void RefuseSpool(std::string_view what, const std::string& path) {
  throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: {}", what, std::strerror(errno)), path);
}

}  // namespace

Spool::~Spool() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Spool::Append(std::string_view text) {
  if (lost_) return;
  memory_ += text;
  if (memory_.size() < kSpoolBytes) return;
  try {
    Spill();
  } catch (const Error& error) {
    lost_ = error;
    memory_.clear();
  }
}

void Spool::Spill() {
  if (descriptor_ < 0) {
    struct stat status;
    const bool special =
        beside_ == "-" || (stat(beside_.c_str(), &status) == 0 && !S_ISREG(status.st_mode));
    std::string name = special
                           ? (std::filesystem::path(TemporaryFolder()) / "kvcheck.XXXXXX").string()
                           : beside_ + ".XXXXXX";
    descriptor_ = mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) RefuseSpool("no file can be made there for a long report", name);
    unlink(name.c_str());
  }
  std::string_view left = memory_;
  while (!left.empty()) {
    const ssize_t written = write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) RefuseSpool("the report cannot be written", beside_);
    left.remove_prefix(static_cast<size_t>(written));
  }
  on_disk_ += static_cast<int64_t>(memory_.size());
  memory_.clear();
}

void Spool::Read(const std::function<void(std::string_view)>& take) const {
  if (lost_) throw Error(*lost_);
  std::vector<char> part(size_t{1} << 16);
  for (int64_t at = 0; at < on_disk_;) {
    const ssize_t got = pread(descriptor_, part.data(), part.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) RefuseSpool("what was kept of the report cannot be read", beside_);
    take(std::string_view(part.data(), static_cast<size_t>(got)));
    at += got;
  }
  take(memory_);
}

}  // namespace kvcheck
