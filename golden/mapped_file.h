// Windows of a file in memory: the bytes of a range, mapped while the window lives, so that a file
// of any size is read at the speed of memory and with as much resident memory as windows are open.
//
// A mapped file may be cut short by somebody else while it is read; touching what is gone raises
// SIGBUS. Inside the windows of this class that signal is caught: the missing page reads as zeros,
// and the file is damaged from then on. Whoever reads windows calls ThrowIfDamaged() before he
// believes what he read. Signals of other addresses go to the handler that was there before.

#ifndef GOLDEN_MAPPED_FILE_H_
#define GOLDEN_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace kvcheck {

// Thread-safe: threads may map windows of one file, and hold them, at once.
class MappedFile {
  struct State;

 public:
  // Errors: kUnreadableFile: missing, no permission, not a regular file.
  explicit MappedFile(const std::string& path);

  const std::string& path() const;
  // When it was opened.
  int64_t size() const;

  // Read-only bytes; their memory is given back when the window goes.
  class Window {
   public:
    Window() = default;
    ~Window();
    Window(Window&& other) noexcept;
    Window& operator=(Window&& other) noexcept;

    // Any alignment that the offset has. nullptr for an empty window.
    const std::byte* data() const { return data_; }
    int64_t size() const { return size_; }

   private:
    friend class MappedFile;
    void Release();

    const std::byte* data_ = nullptr;
    int64_t size_ = 0;
    void* pages_ = nullptr;
    size_t mapped_bytes_ = 0;
    void* slot_ = nullptr;          // where the signal handler finds the window
    std::shared_ptr<State> state_;  // a window may outlive its file
  };

  // Bytes [offset, offset + bytes) of the file. Windows of 4 MiB and more cost little beside
  // reading them; smaller ones do. Errors: kUnreadableFile when the file was shorter when it was
  // opened, or cannot be mapped.
  Window Map(int64_t offset, int64_t bytes) const;

  // Errors: kUnreadableFile when a page of a window was gone, or the file has another size or time
  // of change than when it was opened: what was read since may be anything.
  void ThrowIfDamaged() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace kvcheck

#endif  // GOLDEN_MAPPED_FILE_H_
