#include "tools/measure/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <string>

namespace kvcheck {
namespace {

// A line "VmHWM:   1234 kB" of /proc/self/status.
std::optional<int64_t> StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return std::nullopt;
}

}  // namespace

Pages::Pages(int64_t bytes, HeldBytes* held) {
  if (bytes == 0) return;
  void* pages = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(pages);
  bytes_ = bytes;
  held_ = held;
  held_->now += bytes;
  held_->peak = std::max(held_->peak, held_->now);
}

void Pages::Release() {
  if (data_ == nullptr) return;
  munmap(data_, static_cast<size_t>(bytes_));
  held_->now -= bytes_;
  data_ = nullptr;
  bytes_ = 0;
}

void ResidentPeak::Restart() {
  // 5: the peak begins anew (proc(5), clear_refs).
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  before_ = clear.good() ? StatusBytes("VmRSS") : std::nullopt;
}

std::optional<int64_t> ResidentPeak::Bytes() const {
  const std::optional<int64_t> peak = before_ ? StatusBytes("VmHWM") : std::nullopt;
  if (!peak) return std::nullopt;
  return *peak - *before_;
}

}  // namespace kvcheck
