// One array in numpy's format, a .npy file or a member of an .npz archive: its header, and its
// elements in row-major order and little endian, whatever order the file has. The header is a
// literal of Python; it is parsed here, and nothing of it is evaluated. Arrays of Python objects
// are pickles, which run code when they are read: they are not read.
//
// Source: https://numpy.org/neps/nep-0001-npy-format.html; numpy/lib/_format_impl.py of 2.3.

#ifndef GOLDEN_NUMPY_ARRAY_H_
#define GOLDEN_NUMPY_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "golden/file_index.h"
#include "golden/input_file.h"

namespace kvcheck {

inline constexpr std::string_view kNumpySignature = "\x93NUMPY";
inline constexpr std::string_view kNumpyEnding = ".npy";
// What has to be kept in memory (Fortran order, compressed members) may have this many bytes.
inline constexpr int64_t kMostNumpyBytesInMemory = int64_t{1} << 31;
// Bytes at the start of an array that hold its header, if it is one that is read.
inline constexpr size_t kMostNumpyHeaderBytes = size_t{1} << 17;

struct NumpyHeader {
  // "" when there is a problem with the type, which then is said.
  std::string problem;
  DType dtype = DType::kFloat32;
  bool is_big_endian = false;
  bool is_fortran_order = false;
  std::vector<int64_t> shape;
  int64_t bytes = 0;  // of the header: elements start behind
};

// start: the first kMostNumpyHeaderBytes, or all there is. codes: what elements are that numpy has
// no type for and saves as V1 and V2, where they are as wide.
// Errors: kUnreadableFile with `context`: no header, or a damaged one.
NumpyHeader ParseNumpyHeader(std::string_view start, std::optional<DType> codes,
                             const std::string& context);

// The elements of an array behind its bytes. For one thread at a time.
class NumpyArray {
 public:
  // Bytes [offset, offset + count) of the array with its header.
  using ReadBytes = std::function<void(int64_t offset, std::byte* out, size_t count)>;

  // bytes: of all of it. Without a problem the record has the data_offset that counts from the
  // header's first byte, where the elements lie there in the order and the form that they are read.
  // Errors: kUnreadableFile with `context`.
  NumpyArray(NumpyHeader header, int64_t bytes, ReadBytes read, const ReadLimits& limits,
             const std::string& context);

  const ObjectRecord& record() const { return record_; }
  void ReadElements(int64_t first, int64_t count, std::byte* out);

 private:
  void InRowMajorOrder();

  NumpyHeader header_;
  ReadBytes read_;
  ObjectRecord record_;
  std::vector<std::byte> ordered_;  // of one in Fortran order, once it was read
};

// A .npy file: one tensor, of the file's name without its last ".npy": q.npy has /q. Thread-safe:
// several threads may read elements, which they do in turns.
class NumpyFile : public TensorSource {
 public:
  // Errors: kUnreadableFile.
  explicit NumpyFile(const std::string& path, std::optional<DType> codes = {},
                     const ReadLimits& limits = {});

  const std::string& path() const override { return file_.path(); }
  const FileIndex& index() const override { return index_; }
  TensorOrigin OriginOf(const std::string&) const override { return {file_.path(), ""}; }
  // Errors: also when the file was changed since it was opened.
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;

 private:
  InputFile file_;
  std::mutex reading_;
  std::unique_ptr<NumpyArray> array_;
  FileIndex index_;
};

// An .npz archive: its member NAME.npy is the tensor /NAME. Members that are no arrays, and arrays
// of types that kvcheck does not have, are listed with a problem. No tensor has a data_offset: the
// CRC of a member is checked when it is first read.
class NumpyArchive : public TensorSource {
 public:
  // Errors: kUnreadableFile, also for an archive without arrays, as torch.save writes one.
  explicit NumpyArchive(const std::string& path, std::optional<DType> codes = {},
                        const ReadLimits& limits = {});
  ~NumpyArchive() override;

  const std::string& path() const override;
  const FileIndex& index() const override;
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a pickle of torch.save is refused with: it names the command that makes safetensors of it.
std::string ConvertCommand(const std::string& path);
// "q" of "dumps/q.npy" and of "q.bin".
std::string TensorNameOfFile(const std::string& path);
// The attribute of "/" that files of one tensor have, whose name is the file's own.
inline constexpr const char* kNamedByFile = "named_by_file";

}  // namespace kvcheck

#endif  // GOLDEN_NUMPY_ARRAY_H_
