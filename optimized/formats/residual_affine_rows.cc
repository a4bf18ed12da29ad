// Affine rows of a cache that keeps its newest tokens as vectors: those that have left the
// residual, in the planes of affine rows, as KIVI writes them. The residual is the cache's
// (optimized/cache/token_groups.h).

#include <cstring>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {
namespace {

const AffineFormat& Of(const KvFormat& format) {
  return std::get<ResidualAffineFormat>(format).coded;
}

int64_t Block(const KvFormat& format) { return Of(format).group_size; }

RowBytes Bytes(const KvFormat& format, int64_t dim) { return RowBytesOf(Of(format), dim); }

void Encode(const KvFormat& format, const EncodeCall& call) {
  EncodeAffineRowsFromMinimum(Of(format), call);
}

// give(channel, code) of `count` codes in one stream of little-endian words.
template <typename Give>
void ForEachCode(int bits, const std::byte* codes, int64_t count, Give give) {
  uint64_t stream = 0;
  int held = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (held < bits) {
      uint32_t word = 0;
      std::memcpy(&word, codes, sizeof(word));
      codes += sizeof(word);
      stream |= uint64_t{word} << held;
      held += 32;
    }
    give(i, static_cast<float>(stream & ((uint64_t{1} << bits) - 1)));
    stream >>= bits;
    held -= bits;
  }
}

// The product is exact in double, so that nothing is lost where it and the bias cancel.
void Decode(const KvFormat& format, const DecodeCall& call) {
  const AffineFormat& affine = Of(format);
  const int64_t groups = call.dim / affine.group_size;
  std::vector<float> scales(static_cast<size_t>(groups)), biases(static_cast<size_t>(groups));
  for (int64_t v = 0; v < call.count; ++v) {
    const auto load = [&](const std::byte* from, std::vector<float>* to) {
      DecodePlainRows(affine.scale_dtype,
                      {groups,
                       {from + v * call.rows.scale_stride, nullptr, nullptr, 0, 0},
                       1,
                       reinterpret_cast<std::byte*>(to->data())});
    };
    load(call.rows.scales, &scales);
    load(call.rows.biases, &biases);
    float* values = reinterpret_cast<float*>(call.out) + v * call.dim;
    ForEachCode(affine.bits, call.rows.codes + v * call.rows.code_stride, call.dim,
                [&](int64_t i, float code) {
                  const auto g = static_cast<size_t>(i / affine.group_size);
                  values[i] = static_cast<float>(static_cast<double>(code) *
                                                     static_cast<double>(scales[g]) +
                                                 static_cast<double>(biases[g]));
                });
  }
}

void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  DecodeAffineRows(Of(format), Of(format).scale_dtype, call);
}

int Roundings(const KvFormat&) { return 2; }  // of the sum to double and to f32

constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType, Roundings};

}  // namespace

const RowFamily& RowFamilyOf(const ResidualAffineFormat&) { return kFamily; }

}  // namespace kvcheck::optimized
