// Rows and their stored planes under the optimized codec, and how fast it is.

#ifndef TOOLS_MEASURE_CODEC_SPEED_H_
#define TOOLS_MEASURE_CODEC_SPEED_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"

namespace kvcheck {

// The rows of a codec in the planes of a format, plane[i] that of PlanesOf.
template <typename Byte>
optimized::RowSpan<Byte> RowSpanOf(std::span<Byte* const> planes,
                                   const optimized::RowBytes& bytes) {
  const auto at = [&](size_t i) { return i < planes.size() ? planes[i] : nullptr; };
  optimized::RowSpan<Byte> rows;
  rows.codes = at(0), rows.scales = at(1), rows.biases = at(2);
  rows.code_stride = bytes.codes, rows.scale_stride = bytes.scales;
  return rows;
}

// How the optimized codec writes and reads.
Profile OptimizedCodecProfile();
// Whether the optimized codec encodes and decodes the format as the profile says.
bool FollowsProfile(const KvFormat& format, const Profile& profile, int64_t head_dim);

struct CodecSpeed {
  double encode_ns = 0;  // per element, from the type of the rows
  double decode_ns = 0;  // per element, to f32
};

// Medians of `rounds`, on one thread, of calls over at most 1 MiB of f32: rows and what they are
// stored as stay in L2 or L3. x: (rows, head_dim) of `type`.
CodecSpeed MeasureCodec(const KvFormat& format, DType type, const std::byte* x, int64_t rows,
                        int64_t head_dim, int rounds);

// Processor time of this thread: what other programs take is not counted.
double ThreadSeconds();

double Median(std::vector<double> values);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_CODEC_SPEED_H_
