// Plain rows: copies, or one conversion.

#include <cstring>

#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {
namespace {

DType TypeOf(const KvFormat& format) { return std::get<PlainFormat>(format).dtype; }

// Vectors are short: calls of memcpy would cost more than the copies.
void CopyVectors(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
                 int64_t bytes, int64_t count) {
  if (count == 0) return;  // of no vectors neither place need be there
  if (from_stride == bytes && to_stride == bytes) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
    return;
  }
  if (bytes % 16 == 0 && bytes <= 64) {
    for (int64_t i = 0; i < count; ++i, from += from_stride, to += to_stride) {
      for (int64_t at = 0; at < bytes; at += 16) std::memcpy(to + at, from + at, 16);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i, from += from_stride, to += to_stride) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

int64_t Block(const KvFormat&) { return 1; }

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  return {dim * static_cast<int64_t>(SizeInBytes(TypeOf(format))), 0, 0};
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  const DType type = TypeOf(format);
  if (type != call.from) return EncodePlainRows(type, call);
  CopyVectors(call.x, call.x_stride, call.out.codes, call.out.code_stride,
              Bytes(format, call.dim).codes, call.count);
}

void Decode(const KvFormat& format, const DecodeCall& call) {
  DecodePlainRows(TypeOf(format), call);
}

void Copy(const KvFormat& format, const DecodeCall& call) {
  const int64_t bytes = Bytes(format, call.dim).codes;
  CopyVectors(call.rows.codes, call.rows.code_stride, call.out, bytes, bytes, call.count);
}

constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, Copy};

}  // namespace

const RowFamily& RowFamilyOf(const PlainFormat&) { return kFamily; }

}  // namespace kvcheck::optimized
