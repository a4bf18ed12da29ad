// One vector, the K or V of one token and one head, to its stored bytes and back, in the caller's
// memory: a trace stores vectors one by one.

#ifndef REFERENCE_CACHE_VECTOR_CODEC_H_
#define REFERENCE_CACHE_VECTOR_CODEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

class VectorCodec {
 public:
  // Vectors of `dim` channels that come in type `from`. parameters: holds the planes of
  // PlaneScope::kTensor, by name.
  VectorCodec(const KvFormat& format, DType from, int64_t dim, const Profile& profile,
              const TensorMap& parameters = {});

  const KvFormat& format() const { return format_; }
  DType from() const { return from_; }
  const Planes& planes() const { return planes_; }
  // Bytes of one stored vector, plane after plane (of PlaneScope::kRow).
  size_t bytes() const { return bytes_; }
  // x: dim elements of `from`; stored: bytes() of them. head: whose vector it is.
  void Encode(const std::byte* x, std::byte* stored, int64_t head = 0);
  // The stored real numbers, rounded once to double where that does not hold them.
  // Shapes: values (dim).
  void Decode(const std::byte* stored, double* values, int64_t head = 0);
  // Values of the row type, rounded as the profile says.
  void DecodeToRowType(const std::byte* stored, double* values, int64_t head = 0);

 private:
  // Where the planes of a vector at `stored` are.
  template <typename Byte>
  std::array<Byte*, kMaxPlanes> At(Byte* stored);

  KvFormat format_;
  DType from_;
  Planes planes_;
  size_t bytes_;
  RowArithmetic& RowsOf(int64_t head) {
    return *rows_[rows_.size() == 1 ? 0 : static_cast<size_t>(head)];
  }
  std::vector<std::unique_ptr<RowArithmetic>> rows_;  // of the heads that the format names
  std::array<std::vector<std::byte>, kMaxPlanes> parameters_;
  std::vector<double> values_;
};

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_VECTOR_CODEC_H_
