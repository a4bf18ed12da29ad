// Turboquant rows with half a bit: the channels of each half, gathered in ascending order, are rows
// of turboquant formats of half the group, of BITS and BITS + 1 bits, whose signs have the seeds S
// and S + 97; codes and norms of the low halves of a row come before those of the high ones. In
// their basis rows are in that order too: all coordinates of the low halves, then of the high ones.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "optimized/formats/row_family.h"
#include "optimized/formats/turboquant_rows.h"
#include "reference/spec/dtype.h"

namespace kvcheck::optimized {
namespace {

constexpr int64_t kHighSeedStep = 97;
constexpr int64_t kWordChannels = 32;

const SplitTurboquantFormat& Of(const KvFormat& format) {
  return std::get<SplitTurboquantFormat>(format);
}

bool IsHigh(const SplitTurboquantFormat& split, int64_t i) {
  const int64_t channel = i % split.group_size;
  const uint32_t word = split.high[static_cast<size_t>(channel / kWordChannels)];
  return (word >> channel % kWordChannels & 1) != 0;
}

// Calls move(element of the half, element of the row) for every element of a half.
template <typename Move>
void ForEachOfHalf(const SplitTurboquantFormat& split, bool high, int64_t dim, Move move) {
  int64_t of_half = 0;
  for (int64_t i = 0; i < dim; ++i) {
    if (IsHigh(split, i) == high) move(of_half++, i);
  }
}

// Of the calling thread; kept from call to call.
std::byte* Room(int64_t bytes) {
  thread_local std::vector<std::byte> room;
  if (static_cast<int64_t>(room.size()) < bytes) room.resize(static_cast<size_t>(bytes));
  return room.data();
}

int64_t Block(const KvFormat& format) { return Of(format).group_size; }

RowBytes BytesOfHalf(const SplitTurboquantFormat& split, bool high, int64_t dim) {
  const TurboquantFormat half = HalfFormat(split, high);
  return RowFamilyOf(half).bytes(half, dim / 2);
}

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  const RowBytes low = BytesOfHalf(Of(format), false, dim);
  const RowBytes high = BytesOfHalf(Of(format), true, dim);
  return {low.codes + high.codes, low.scales + high.scales, 0};
}

template <typename Byte>
RowSpan<Byte> RowOf(const RowSpan<Byte>& rows, int64_t i) {
  return {rows.codes + i * rows.code_stride, rows.scales + i * rows.scale_stride, nullptr, 0, 0};
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  const SplitTurboquantFormat& split = Of(format);
  const auto size = static_cast<int64_t>(SizeInBytes(call.from));
  std::byte* gathered = Room(call.dim / 2 * size);
  for (int64_t v = 0; v < call.count; ++v) {
    StoredRows out = RowOf(call.out, v);
    const std::byte* x = call.x + v * call.x_stride;
    for (const bool high : {false, true}) {
      ForEachOfHalf(split, high, call.dim, [&](int64_t to, int64_t i) {
        std::copy_n(x + i * size, size, gathered + to * size);
      });
      const TurboquantFormat half = HalfFormat(split, high);
      RowFamilyOf(half).encode(half, {call.from, call.dim / 2, gathered, 0, 1, out, call.values});
      out.NextHead(BytesOfHalf(split, high, call.dim));
    }
  }
}

// read: a row of a half, into elements of `size` bytes.
template <typename Read>
void DecodeHalves(const SplitTurboquantFormat& split, const DecodeCall& call, int64_t size,
                  Read read) {
  std::byte* of_half = Room(call.dim / 2 * size);
  for (int64_t v = 0; v < call.count; ++v) {
    StoredRowsView rows = RowOf(call.rows, v);
    std::byte* out = call.out + v * call.dim * size;
    for (const bool high : {false, true}) {
      const TurboquantFormat half = HalfFormat(split, high);
      read(RowFamilyOf(half), half, DecodeCall{call.dim / 2, rows, 1, of_half});
      ForEachOfHalf(split, high, call.dim, [&](int64_t from, int64_t i) {
        std::copy_n(of_half + from * size, size, out + i * size);
      });
      rows.NextHead(BytesOfHalf(split, high, call.dim));
    }
  }
}

void Decode(const KvFormat& format, const DecodeCall& call) {
  DecodeHalves(Of(format), call, sizeof(float),
               [](const RowFamily& family, const TurboquantFormat& half, const DecodeCall& row) {
                 family.decode(half, row);
               });
}

void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  const auto size = static_cast<int64_t>(SizeInBytes(Of(format).row_type));
  DecodeHalves(Of(format), call, size,
               [](const RowFamily& family, const TurboquantFormat& half, const DecodeCall& row) {
                 family.decode_to_row_type(half, row);
               });
}

void DecodeInBasis(const KvFormat& format, const DecodeCall& call) {
  const auto half_bytes = call.dim / 2 * static_cast<int64_t>(sizeof(float));
  std::byte* out = call.out;
  for (int64_t v = 0; v < call.count; ++v) {
    StoredRowsView rows = RowOf(call.rows, v);
    for (const bool high : {false, true}) {
      const TurboquantFormat half = HalfFormat(Of(format), high);
      RowFamilyOf(half).basis->decode(half, {call.dim / 2, rows, 1, out});
      rows.NextHead(BytesOfHalf(Of(format), high, call.dim));
      out += half_bytes;
    }
  }
}

int BasisRoundingsOf(const KvFormat& format) {
  return BasisRoundings(HalfFormat(Of(format), true));
}

// Calls move(place in the basis, channel) for every element of a row.
template <typename Move>
void ForEachPlace(const SplitTurboquantFormat& split, int64_t dim, Move move) {
  for (const bool high : {false, true}) {
    const int64_t first = high ? dim / 2 : 0;
    ForEachOfHalf(split, high, dim, [&](int64_t at, int64_t i) { move(first + at, i); });
  }
}

float* CopyOf(const float* row, int64_t dim) {
  auto* copy = reinterpret_cast<float*>(Room(dim * static_cast<int64_t>(sizeof(float))));
  return std::copy_n(row, dim, copy) - dim;
}

void Rotate(const KvFormat& format, int64_t dim, float* x) {
  const float* from = CopyOf(x, dim);
  ForEachPlace(Of(format), dim, [&](int64_t at, int64_t i) { x[at] = from[i]; });
  for (const bool high : {false, true}) {
    RotateToBasis(HalfFormat(Of(format), high), dim / 2, high ? x + dim / 2 : x);
  }
}

void RotateBack(const KvFormat& format, int64_t dim, float* y) {
  for (const bool high : {false, true}) {
    RotateFromBasis(HalfFormat(Of(format), high), dim / 2, high ? y + dim / 2 : y);
  }
  const float* from = CopyOf(y, dim);
  ForEachPlace(Of(format), dim, [&](int64_t at, int64_t i) { y[i] = from[at]; });
}

constexpr BasisRows kBasis = {DecodeInBasis, BasisRoundingsOf, Rotate, RotateBack};
constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType, nullptr, &kBasis};

}  // namespace

const RowFamily& RowFamilyOf(const SplitTurboquantFormat&) { return kFamily; }

TurboquantFormat HalfFormat(const SplitTurboquantFormat& split, bool high) {
  TurboquantFormat half;
  half.bits = split.bits + (high ? 1 : 0);
  half.group_size = split.group_size / 2;
  half.codebook = split.codebook;
  half.seed = split.seed + (high ? kHighSeedStep : 0);
  half.row_type = split.row_type;
  return half;
}

}  // namespace kvcheck::optimized
