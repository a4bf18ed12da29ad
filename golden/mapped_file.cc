#include "golden/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "golden/bus_guard.h"
#include "golden/input_file.h"
#include "reference/spec/error.h"

namespace kvcheck {

struct MappedFile::State {
  explicit State(const std::string& path) : file(path) {}

  InputFile file;
  std::atomic<bool> damaged{false};
};

MappedFile::MappedFile(const std::string& path) : state_(std::make_shared<State>(path)) {}

const std::string& MappedFile::path() const { return state_->file.path(); }
int64_t MappedFile::size() const { return state_->file.size(); }

MappedFile::Window MappedFile::Map(int64_t offset, int64_t bytes) const {
  KVCHECK_CHECK(offset >= 0 && bytes >= 0, "a window of negative bytes");
  if (bytes > size() || offset > size() - bytes) {
    throw Error(
        ErrorCode::kUnreadableFile,
        fmt::format("it has {} bytes; {} from byte {} on were asked", size(), bytes, offset),
        path());
  }
  Window window;
  if (bytes == 0) return window;
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  const int64_t before = offset % page_bytes;
  const auto mapped_bytes = static_cast<size_t>(before + bytes);
  // No advice: populating the pages at once, or announcing sequential reads, measured the same as
  // neither, with the pages in the cache.
  void* pages = mmap(nullptr, mapped_bytes, PROT_READ, MAP_SHARED, state_->file.descriptor(),
                     offset - before);
  if (pages == MAP_FAILED) {
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("{} bytes of it cannot be mapped: {}", bytes, std::strerror(errno)),
                path());
  }
  window.slot_ = GuardRange(pages, mapped_bytes, &state_->damaged);
  window.state_ = state_;
  window.pages_ = pages;
  window.mapped_bytes_ = mapped_bytes;
  window.data_ = static_cast<const std::byte*>(pages) + before;
  window.size_ = bytes;
  return window;
}

void MappedFile::ThrowIfDamaged() const {
  state_->file.ThrowIfChanged();
  if (state_->damaged.load()) {
    throw Error(ErrorCode::kUnreadableFile,
                "a part of it was gone while it was read; read a copy that nobody writes to",
                path());
  }
}

MappedFile::Window::~Window() { Release(); }

MappedFile::Window::Window(Window&& other) noexcept { *this = std::move(other); }

MappedFile::Window& MappedFile::Window::operator=(Window&& other) noexcept {
  if (this != &other) {
    Release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    pages_ = std::exchange(other.pages_, nullptr);
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
    slot_ = std::exchange(other.slot_, nullptr);
    state_ = std::move(other.state_);
  }
  return *this;
}

void MappedFile::Window::Release() {
  if (pages_ == nullptr) return;
  UnguardRange(static_cast<GuardedRange*>(slot_));
  munmap(pages_, mapped_bytes_);
  pages_ = nullptr;
  data_ = nullptr;
  size_ = 0;
  state_.reset();
}

}  // namespace kvcheck
