// Elements without a header, as numpy's tofile and C++ programs write them, with their type and
// shape said beside the file.

#ifndef GOLDEN_RAW_FILE_H_
#define GOLDEN_RAW_FILE_H_

#include <optional>
#include <string>

#include "golden/file_index.h"
#include "golden/input_file.h"

namespace kvcheck {

// What names a file of tensors: FILE, or FILE:TYPE:SHAPE of raw elements (q.bin:bf16:2x8x128x64,
// also 2,8,128,64), or FILE:TYPE of numpy's files, whose elements of a type that numpy has no name
// for are of TYPE (bfloat16 and fp8, which numpy saves as V2 and V1).
struct TensorPlace {
  std::string path;
  std::optional<DType> dtype;
  std::optional<Shape> shape;
};

// A file that has the whole text for its name is that file; a text whose file is not there is taken
// for a name as a whole.
// Errors: kUsage for a type or a shape that is none, behind a file that is there.
TensorPlace ParseTensorPlace(const std::string& text);

// One tensor, of the file's name without its ending: q.bin has /q. Row-major, little endian.
// Thread-safe.
class RawFile : public TensorSource {
 public:
  // Precondition: the place has a type and a shape.
  // Errors: kUnreadableFile, also where the file does not have exactly their bytes.
  explicit RawFile(const TensorPlace& place, const ReadLimits& limits = {});

  const std::string& path() const override { return file_.path(); }
  const FileIndex& index() const override { return index_; }
  TensorOrigin OriginOf(const std::string&) const override { return {file_.path(), ""}; }
  // Errors: also when the file was changed since it was opened.
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;

 private:
  InputFile file_;
  FileIndex index_;
};

}  // namespace kvcheck

#endif  // GOLDEN_RAW_FILE_H_
