// One vector, the K or V of one token and one head, to its stored bytes and back. The arithmetic is
// that of reference/formats (tests hold it to EncodeRows and DecodeRows); here it works on single
// vectors in the caller's memory, because a trace stores them one by one.

#ifndef REFERENCE_CACHE_VECTOR_CODEC_H_
#define REFERENCE_CACHE_VECTOR_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"

namespace kvcheck {

// Bytes of one stored vector: codes, then scales, then biases (both empty for plain formats).
struct VectorSize {
  size_t codes = 0;
  size_t scales = 0;  // of the scales alone; as many of the biases
  size_t Total() const { return codes + 2 * scales; }
};
// Precondition: dim is a multiple of the format's group.
VectorSize StoredSize(const KvFormat& format, int64_t dim);

class VectorCodec {
 public:
  // Vectors of `dim` channels that come in type `from`.
  VectorCodec(const KvFormat& format, DType from, int64_t dim, const Profile& profile);

  const KvFormat& format() const { return format_; }
  DType from() const { return from_; }
  VectorSize size() const { return size_; }
  // x: dim elements of `from`; stored: size().Total() bytes.
  void Encode(const std::byte* x, std::byte* stored);
  // The stored values: of a plain format exactly, of an affine one c S + B rounded once to double.
  // Shapes: values (dim).
  void Decode(const std::byte* stored, double* values);

 private:
  KvFormat format_;
  DType from_;
  int64_t dim_;
  Profile profile_;
  VectorSize size_;
  std::vector<double> values_;
  std::vector<float> group_;
  std::vector<uint8_t> codes_;
  std::vector<uint32_t> words_;
};

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_VECTOR_CODEC_H_
