// The stored form of a row (the K or V vector of one token and one head) as named planes: each is a
// tensor of its own wherever rows are kept. Files, caches, the pipe, fuzzing and coverage know a
// format by its planes; only its own arithmetic knows what they hold.

#ifndef REFERENCE_SPEC_FORMAT_PLANES_H_
#define REFERENCE_SPEC_FORMAT_PLANES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "reference/spec/dtype.h"

namespace kvcheck {

// kRow: elements of every row. kTensor: a parameter that is data (a per-tensor scale, a codebook),
// once for all rows.
enum class PlaneScope { kRow, kTensor };

struct Plane {
  std::string_view name;  // "codes", "scales"
  DType dtype = DType::kUInt8;
  std::string_view axis = {};  // name of its last axis, as case texts have it
  int64_t elements = 0;        // of a row; of kTensor, of all rows together
  PlaneScope scope = PlaneScope::kRow;

  size_t Bytes() const { return static_cast<size_t>(elements) * SizeInBytes(dtype); }
};

inline constexpr size_t kMaxPlanes = 4;

// The planes of a format for one head_dim, in the order in which they are stored.
class Planes {
 public:
  void Add(const Plane& plane) { planes_[count_++] = plane; }
  size_t size() const { return count_; }
  const Plane& operator[](size_t i) const { return planes_[i]; }
  const Plane* begin() const { return planes_.data(); }
  const Plane* end() const { return planes_.data() + count_; }
  // Bytes of one row: of the planes that every row has.
  size_t RowBytes() const {
    size_t bytes = 0;
    for (const Plane& plane : *this) bytes += plane.scope == PlaneScope::kRow ? plane.Bytes() : 0;
    return bytes;
  }

 private:
  std::array<Plane, kMaxPlanes> planes_{};
  size_t count_ = 0;
};

// Fields of a profile (profile.h) on which the stored bytes or values of a format may depend.
enum class CodecChoice {
  kDecode,
  kEncode,
  kGgmlEncode,
  kFp8Overflow,
  kMxEncode,
  kNvfp4Encode,
  kTurboquant,
  kTokenEncode,
  kChannel
};

class CodecChoiceSet {
 public:
  CodecChoiceSet() = default;
  CodecChoiceSet(std::initializer_list<CodecChoice> choices) {
    for (const CodecChoice choice : choices) insert(choice);
  }
  void insert(CodecChoice choice) { bits_ |= Bit(choice); }
  bool contains(CodecChoice choice) const { return (bits_ & Bit(choice)) != 0; }
  bool operator==(const CodecChoiceSet&) const = default;

 private:
  static uint32_t Bit(CodecChoice choice) { return uint32_t{1} << static_cast<int>(choice); }
  uint32_t bits_ = 0;
};

// What a format's codes mean where a value is code * scale + bias: integers from lowest to highest,
// or the small floats that the codes are, whose sums of products are exact in double; one scale and
// one bias (0 where the format has none) per group of channels.
struct CodeGrid {
  int64_t lowest = 0;
  int64_t highest = 0;
  int64_t group = 1;
  double Largest() const { return static_cast<double>(-lowest > highest ? -lowest : highest); }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_FORMAT_PLANES_H_
