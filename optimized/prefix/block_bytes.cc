#include "optimized/prefix/block_bytes.h"

#include <bit>
#include <cstring>

#include "optimized/formats/convert.h"

namespace kvcheck::optimized {
namespace {

// f32 values in the type of vectors.
void Narrow(const float* values, int64_t count, DType x, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    if (x == DType::kFloat32) {
      std::memcpy(out + 4 * i, &bits, 4);
      continue;
    }
    const uint16_t half = x == DType::kFloat16 ? F16FromF32(bits) : BF16FromF32(bits);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void Widen(const std::byte* from, int64_t count, DType type, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    if (type == DType::kFloat32) {
      std::memcpy(&bits, from + 4 * i, 4);
    } else {
      uint16_t half = 0;
      std::memcpy(&half, from + 2 * i, 2);
      bits = type == DType::kFloat16 ? F32FromF16(half) : F32FromBF16(half);
    }
    values[i] = std::bit_cast<float>(bits);
  }
}

}  // namespace

BlockBytes::BlockBytes(const PrefixSetup& setup) : setup_(setup) {
  const auto start = [&](Part* part, const KvFormat& format, int64_t dim) {
    part->format = format;
    part->dim = dim;
    part->plain = dim * static_cast<int64_t>(SizeInBytes(setup_.x));
    part->coded = RowBytesOf(format, dim);
    part->codec.Start(format, setup_.x, dim);
  };
  start(&k_, setup_.K(), setup_.k_dim);
  start(&v_, setup_.V(), setup_.v_dim);
  const int64_t vectors = setup_.layers * setup_.kv_heads * setup_.block_tokens;
  plain_bytes_ = vectors * (k_.plain + v_.plain);
  coded_bytes_ = has_codes() ? vectors * (k_.coded.Total() + v_.coded.Total()) : plain_bytes_;
}

void BlockBytes::Fill(const PrefixVectors& vectors, int64_t from, int64_t count, int64_t at,
                      std::byte* block) const {
  const int64_t tokens = setup_.block_tokens;
  for (int64_t layer = 0; layer < setup_.layers; ++layer) {
    for (const Part* part : {&k_, &v_}) {
      const bool is_key = part == &k_;
      for (int64_t head = 0; head < setup_.kv_heads; ++head) {
        std::byte* out = block + (head * tokens + at) * part->plain;
        const PrefixStrides& strides = is_key ? vectors.k_strides : vectors.v_strides;
        const std::byte* in = is_key ? vectors.K(layer, head, from) : vectors.V(layer, head, from);
        if (strides.token == part->plain) {
          std::memcpy(out, in, static_cast<size_t>(count * part->plain));
          continue;
        }
        for (int64_t i = 0; i < count; ++i) {
          std::memcpy(out + i * part->plain, in + i * strides.token,
                      static_cast<size_t>(part->plain));
        }
      }
      block += setup_.kv_heads * tokens * part->plain;
    }
  }
}

template <typename Byte>
RowSpan<Byte> BlockBytes::Rows(const Part& part, Byte* at, int64_t head) const {
  const int64_t vectors = setup_.kv_heads * setup_.block_tokens;
  const int64_t first = head * setup_.block_tokens;
  RowSpan<Byte> rows;
  rows.codes = at + first * part.coded.codes;
  rows.code_stride = part.coded.codes;
  rows.scale_stride = part.coded.scales;
  Byte* const scales = at + vectors * part.coded.codes;
  if (part.coded.scales != 0) rows.scales = scales + first * part.coded.scales;
  if (part.coded.biases != 0) {
    rows.biases = scales + vectors * part.coded.scales + first * part.coded.biases;
  }
  return rows;
}

void BlockBytes::Encode(const std::byte* plain, std::byte* coded) {
  const int64_t tokens = setup_.block_tokens;
  for (int64_t layer = 0; layer < setup_.layers; ++layer) {
    for (Part* part : {&k_, &v_}) {
      for (int64_t head = 0; head < setup_.kv_heads; ++head) {
        part->codec.SetHead(head);
        part->codec.Encode(plain, part->plain, tokens, Rows(*part, coded, head));
        plain += tokens * part->plain;
      }
      coded += CodedBytes(*part);
    }
  }
}

void BlockBytes::Decode(Part* part, const StoredRowsView& rows, int64_t count, std::byte* out) {
  if (IsAsItComes(*part)) {
    std::memcpy(out, rows.codes, static_cast<size_t>(count * part->plain));
    return;
  }
  const int64_t values = count * part->dim;
  values_.resize(static_cast<size_t>(values));
  if (IsPlain(part->format)) {
    part->codec.Decode(rows, count, values_.data());
    return Narrow(values_.data(), values, setup_.x, out);
  }
  const DType row = RowDType(part->format);
  if (row == setup_.x) return part->codec.DecodeToRowType(rows, count, out);
  typed_.resize(static_cast<size_t>(values) * SizeInBytes(row));
  part->codec.DecodeToRowType(rows, count, typed_.data());
  Widen(typed_.data(), values, row, values_.data());
  Narrow(values_.data(), values, setup_.x, out);
}

void BlockBytes::Read(const std::byte* block, bool coded, int64_t count, int64_t to,
                      const DenseRows& rows) {
  const int64_t tokens = setup_.block_tokens;
  for (int64_t layer = 0; layer < setup_.layers; ++layer) {
    for (Part* part : {&k_, &v_}) {
      std::byte* dense = part == &k_ ? rows.k : rows.v;
      for (int64_t head = 0; head < setup_.kv_heads; ++head) {
        std::byte* out =
            dense + ((layer * setup_.kv_heads + head) * rows.tokens + to) * part->plain;
        if (coded) {
          part->codec.SetHead(head);
          Decode(part, Rows(*part, block, head), count, out);
        } else {
          std::memcpy(out, block, static_cast<size_t>(count * part->plain));
          block += tokens * part->plain;
        }
      }
      if (coded) block += CodedBytes(*part);
    }
  }
}

}  // namespace kvcheck::optimized
