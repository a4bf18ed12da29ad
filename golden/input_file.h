// A regular file open for reading by offsets, and watched: what is read is of the file as it was
// when it was opened, or an error.

#ifndef GOLDEN_INPUT_FILE_H_
#define GOLDEN_INPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace kvcheck {

// Thread-safe after construction.
class InputFile {
 public:
  // Never waits: a pipe or device is refused without being opened.
  // Errors: kUnreadableFile: missing, no permission, a folder, not a regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  // When it was opened.
  int64_t size() const { return size_; }
  int descriptor() const { return descriptor_; }

  // Bytes [offset, offset + bytes). Errors: kUnreadableFile when the file ends before, or the
  // system cannot read it.
  void ReadAt(int64_t offset, void* out, size_t bytes) const;

  // Errors: kUnreadableFile when the size or the time of the last change is not what it was when
  // the file was opened.
  void ThrowIfChanged() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  int64_t changed_s_ = 0;
  int64_t changed_ns_ = 0;
};

}  // namespace kvcheck

#endif  // GOLDEN_INPUT_FILE_H_
