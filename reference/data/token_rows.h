// The vectors of a trace: K and V of a token are a function of (seed, token, head, K or V) alone,
// so that a stored vector says whose it is, and a swap of tokens, heads or of K and V shows.
//
// Definition, in 64-bit integers, with m the output function and g the increment of SplitMix64:
//   s = m(m(m(seed + g) + g + token) + g + 4 head + part);   word i: m(s + (i + 1) g)
//   f32:         words give two channels each, low half first; n = half >> 9, a signed 23-bit
//   number f16 / bf16:  four channels each, low quarter first; n = quarter >> 5, signed 11 bits /
//   >> 8,
//                signed 8 bits
//   value = (2 n + 1) 2^-22 (f32), 2^-10 (f16), 2^-7 (bf16): exact, in (-2, 2), never zero
// A vector of D channels holds 23 D, 11 D or 8 D random bits: equal vectors of different tokens are
// likely only where head_dim is tiny or the format coarse, and whoever identifies tokens by bytes
// must look for them.

#ifndef REFERENCE_DATA_TOKEN_ROWS_H_
#define REFERENCE_DATA_TOKEN_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "reference/spec/dtype.h"

namespace kvcheck {

enum class TokenPart : uint8_t { kKey, kValue, kQuery };

// The token that an operation appends to a row: operation is its index in the trace, from 0.
// Operations and columns below 2^20, rows below 2^20.
constexpr uint64_t TokenId(int64_t operation, int64_t row, int64_t column) {
  return (static_cast<uint64_t>(operation) << 40) | (static_cast<uint64_t>(row) << 20) |
         static_cast<uint64_t>(column);
}
struct TokenOrigin {
  int64_t operation = 0;
  int64_t row = 0;
  int64_t column = 0;
};
constexpr TokenOrigin OriginOf(uint64_t token) {
  constexpr uint64_t kMask = (uint64_t{1} << 20) - 1;
  return {static_cast<int64_t>(token >> 40), static_cast<int64_t>((token >> 20) & kMask),
          static_cast<int64_t>(token & kMask)};
}

// dim elements of dtype (f32, f16 or bf16) at out.
void FillTokenVector(uint64_t seed, uint64_t token, int64_t head, TokenPart part, DType dtype,
                     int64_t dim, std::byte* out);
// The vector of a padding column: NaN in every channel, so that whoever reads it is found out.
void FillPaddingVector(DType dtype, int64_t dim, std::byte* out);
// The attention sink of a query head: uniform in (-2, 2).
float TokenSink(uint64_t seed, int64_t query_head);

}  // namespace kvcheck

#endif  // REFERENCE_DATA_TOKEN_ROWS_H_
