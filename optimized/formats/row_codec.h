// Vectors (the K or V of one token and one head) to their stored bytes and back, in every format of
// reference/spec/kv_format.h. Bytes are those of the default profile: affine codes as MLX computes
// them on the CPU (encode=mlx_cpu; where Start is told so, as KIVI does, encode=kivi), blocks of
// ggml as its C reference does (ggml_encode=reference), fp8 overflow to NaN or infinity
// (fp8_overflow=nan), MX blocks by the rule of OCP (mx_encode=ocp), NVFP4 as MLX does on the CPU
// (nvfp4_encode=mlx), turboquant as mlx-vlm (turboquant=mlx_vlm), scales per token that x is
// divided by (token_encode=divide). They are a function of the vector alone, on every instruction
// set. The constants of the formats stand here a second time, on purpose: nothing is shared with
// reference/formats, which tests compare with.

#ifndef OPTIMIZED_FORMATS_ROW_CODEC_H_
#define OPTIMIZED_FORMATS_ROW_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"

namespace kvcheck::optimized {

// Bytes of one stored vector, plane by plane: 0 where a format has none.
struct RowBytes {
  int64_t codes = 0;
  int64_t scales = 0;
  int64_t biases = 0;  // 0, or as many as of the scales
  int64_t Total() const { return codes + scales + biases; }
  bool operator==(const RowBytes&) const = default;
};
// Precondition: FitsDim(format, dim).
RowBytes RowBytesOf(const KvFormat& format, int64_t dim);
// Roundings of a value that RowCodec::Decode gives, of formats that attention decodes.
int DecodeRoundings(const KvFormat& format);
// Whether vectors are rotated before they are stored.
bool RotatesRows(const KvFormat& format);
// Roundings of a value that RowCodec::DecodeInBasis gives. Precondition: RotatesRows.
int BasisRoundings(const KvFormat& format);
// A vector of dim channels into the basis in which the format stores it, by butterflies in f32, and
// back. Coordinates are in the order of the codes. Precondition: RotatesRows.
void RotateToBasis(const KvFormat& format, int64_t dim, float* x);
void RotateFromBasis(const KvFormat& format, int64_t dim, float* y);
// Whether vectors of dim channels consist of whole groups.
bool FitsDim(const KvFormat& format, int64_t dim);

// `count` stored vectors, vector i at codes + i code_stride; scales and biases + i scale_stride.
template <typename Byte>
struct RowSpan {
  Byte* codes = nullptr;
  Byte* scales = nullptr;  // of formats that have them in a plane of their own; biases likewise
  Byte* biases = nullptr;
  int64_t code_stride = 0;  // bytes
  int64_t scale_stride = 0;
  // To the same tokens of the next head, where heads stand one after the other.
  void NextHead(const RowBytes& bytes) {
    codes += bytes.codes;
    if (bytes.scales != 0) scales += bytes.scales;
    if (bytes.biases != 0) biases += bytes.biases;
  }
};
using StoredRows = RowSpan<std::byte>;
using StoredRowsView = RowSpan<const std::byte>;

struct RowFamily;

class RowCodec {
 public:
  // Vectors of `dim` channels, which come in type `from` (a type of plain formats). Keeps its
  // memory. affine: who writes affine rows, MLX on the CPU or KIVI. Precondition: FitsDim(format,
  // dim).
  void Start(const KvFormat& format, DType from, int64_t dim,
             AffineEncoder affine = AffineEncoder::kMlxCpu);

  // Whose vectors follow, where the format names heads one by one.
  void SetHead(int64_t head) {
    if (heads_ > 1) of_head_ = FormatOfHead(format_, head);
  }

  const KvFormat& format() const { return format_; }
  RowBytes bytes() const { return bytes_; }
  // Vectors of x's type at x + i x_stride, each contiguous.
  void Encode(const std::byte* x, int64_t x_stride, int64_t count, const StoredRows& out);
  // Values in f32: of f64 rounded; of affine codes c, scale s and bias b fl(fl(c s) + b).
  // Shapes: values (count, dim).
  void Decode(const StoredRowsView& rows, int64_t count, float* values) const;
  // The same in the basis in which they are stored: not rotated back. Precondition: RotatesRows.
  void DecodeInBasis(const StoredRowsView& rows, int64_t count, float* values) const;
  // Values in the type of rows, RowDType(format()): of plain formats the codes; of affine codes
  // rnd(rnd(c s) + b), as MLX decodes them on the CPU (decode=two_roundings).
  // Shapes: out (count, dim), contiguous.
  void DecodeToRowType(const StoredRowsView& rows, int64_t count, std::byte* out) const;

 private:
  const KvFormat& OfHead() const { return heads_ > 1 ? of_head_ : format_; }

  KvFormat format_ = PlainFormat{};
  KvFormat of_head_ = PlainFormat{};
  int64_t heads_ = 1;
  const RowFamily* family_ = nullptr;
  DType from_ = DType::kFloat32;
  AffineEncoder affine_ = AffineEncoder::kMlxCpu;
  int64_t dim_ = 0;
  RowBytes bytes_;
  std::vector<float> values_;  // one vector
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_ROW_CODEC_H_
