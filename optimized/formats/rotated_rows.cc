// Rows rotated by a normalized Hadamard transform before another family stores them.
//
// Definition, of blocks of `size` channels, every step one f32 operation: butterflies of strides 1,
// 2, ..., size / 2 (the sum to the lower channel, the difference to the upper), then times
// f32(1 / sqrt(size)); the same back. Source: reference/formats/formats.md, section F.

#include <cstring>
#include <numeric>
#include <vector>

#include "optimized/formats/hadamard.h"
#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {
namespace {

const RotatedFormat& Of(const KvFormat& format) { return std::get<RotatedFormat>(format); }

KvFormat Stored(const KvFormat& format) {
  return std::visit([](const auto& family) { return KvFormat(family); }, Of(format).stored);
}

int64_t Block(const KvFormat& format) {
  const KvFormat stored = Stored(format);
  return std::lcm(Of(format).size, FamilyOf(stored).block(stored));
}

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  const KvFormat stored = Stored(format);
  return FamilyOf(stored).bytes(stored, dim);
}

StoredRows OneRow(std::byte* to) { return {to, nullptr, nullptr, 0, 0}; }
StoredRowsView OneRow(const std::byte* of) { return {of, nullptr, nullptr, 0, 0}; }

// One vector of the call's type, rounded once to the type of rows, as f32.
void ReadRow(DType from, DType row_type, const std::byte* x, int64_t dim,
             std::vector<std::byte>* rounded, float* values) {
  auto* to = reinterpret_cast<std::byte*>(values);
  if (from == DType::kFloat32 && row_type == DType::kFloat32) {
    std::memcpy(to, x, static_cast<size_t>(dim) * sizeof(float));
    return;
  }
  if (from != row_type && row_type != DType::kFloat32) {
    rounded->resize(static_cast<size_t>(dim) * SizeInBytes(row_type));
    EncodePlainRows(row_type, {from, dim, x, 0, 1, OneRow(rounded->data()), values});
    x = rounded->data();
    from = row_type;
  }
  // To f32, which f64 is rounded to.
  DecodePlainRows(from, {dim, OneRow(x), 1, to});
}

struct RotatedRoom {
  std::vector<float> values;
  std::vector<std::byte> rounded;
};

// Of the calling thread; kept from call to call.
RotatedRoom& Room(int64_t dim) {
  thread_local RotatedRoom room;
  if (static_cast<int64_t>(room.values.size()) < dim) room.values.resize(static_cast<size_t>(dim));
  return room;
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  const KvFormat stored = Stored(format);
  const RowFamily& family = FamilyOf(stored);
  RotatedRoom& room = Room(call.dim);
  const auto* y = reinterpret_cast<const std::byte*>(room.values.data());
  StoredRows out = call.out;
  for (int64_t i = 0; i < call.count; ++i) {
    ReadRow(call.from, RowDType(stored), call.x + i * call.x_stride, call.dim, &room.rounded,
            room.values.data());
    RotateBlocks(room.values.data(), call.dim, Of(format).size);
    family.encode(stored, {DType::kFloat32, call.dim, y, 0, 1, out, call.values, call.affine});
    out.codes += out.code_stride;
    if (out.scales != nullptr) out.scales += out.scale_stride;
    if (out.biases != nullptr) out.biases += out.scale_stride;
  }
}

void Decode(const KvFormat& format, const DecodeCall& call) {
  const KvFormat stored = Stored(format);
  FamilyOf(stored).decode(stored, call);
  auto* y = reinterpret_cast<float*>(call.out);
  for (int64_t i = 0; i < call.count; ++i)
    RotateBlocks(y + i * call.dim, call.dim, Of(format).size);
}

// Of rows as their own type holds them (decode=two_roundings).
void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  const KvFormat stored = Stored(format);
  const DType type = RowDType(stored);
  if (type == DType::kFloat32) return Decode(format, call);
  RotatedRoom& room = Room(call.dim);
  const auto row_bytes = call.dim * static_cast<int64_t>(SizeInBytes(type));
  StoredRowsView rows = call.rows;
  for (int64_t i = 0; i < call.count; ++i) {
    std::byte* out = call.out + i * row_bytes;
    FamilyOf(stored).decode_to_row_type(stored, {call.dim, rows, 1, out});
    DecodePlainRows(type, {call.dim, OneRow(static_cast<const std::byte*>(out)), 1,
                           reinterpret_cast<std::byte*>(room.values.data())});
    RotateBlocks(room.values.data(), call.dim, Of(format).size);
    EncodePlainRows(
        type, {DType::kFloat32, call.dim, reinterpret_cast<const std::byte*>(room.values.data()), 0,
               1, OneRow(out), nullptr});
    rows.codes += rows.code_stride;
    if (rows.scales != nullptr) rows.scales += rows.scale_stride;
    if (rows.biases != nullptr) rows.biases += rows.scale_stride;
  }
}

void DecodeInBasis(const KvFormat& format, const DecodeCall& call) {
  const KvFormat stored = Stored(format);
  FamilyOf(stored).decode(stored, call);
}

// A code times an f16 or bf16 scale fits f32: the sum with the bias rounds.
int RoundingsOf(const AffineFormat&) { return 1; }
template <typename Format>
int RoundingsOf(const Format& format) {
  return DecodeRoundings(format);
}
int BasisRoundingsOf(const KvFormat& format) {
  return std::visit([](const auto& family) { return RoundingsOf(family); }, Of(format).stored);
}

void Rotate(const KvFormat& format, int64_t dim, float* x) {
  RotateBlocks(x, dim, Of(format).size);
}

constexpr BasisRows kBasis = {DecodeInBasis, BasisRoundingsOf, Rotate, Rotate};
constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType, nullptr, &kBasis};

}  // namespace

const RowFamily& RowFamilyOf(const RotatedFormat&) { return kFamily; }

}  // namespace kvcheck::optimized
