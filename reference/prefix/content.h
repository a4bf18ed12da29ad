// K and V of a token as a function of (seed, epoch, identity, layer, K or V, head, position, all
// tokens before): contract.md, section 3.
//
// Definition, in 64-bit integers, m the output function and g the increment of SplitMix64:
//   digest of a prefix   h(0) = m(seed + m(epoch + g) + identity), h(i + 1) = m(h(i) + g + token i)
//                        with one more m between, so that neither argument cancels the other
//   signs of a vector    s = m(m(h + g (4 layer + 1)) + g (4 head + 2) + part), h that of the
//   prefix
//                        that ends with the token; channel c is negative where bit c mod 64 of
//                        m(s + g (c / 64)) is set (of s itself where c < 64)
//   magnitudes           1 + a / 128, a the 7 bits from 8 (c mod 8) of m(s ^ (c / 8 + 1)): exact in
//                        f32, f16 and bf16, in [1, 2)

#ifndef REFERENCE_PREFIX_CONTENT_H_
#define REFERENCE_PREFIX_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/data/token_rows.h"
#include "reference/spec/prefix_case.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {

// Of an identity alone: all its fields and which of them are set.
uint64_t IdentityHash(const PrefixIdentity& who);
// h(0) and h(i + 1).
uint64_t EmptyDigest(uint64_t seed, int64_t epoch, uint64_t identity);
uint64_t NextDigest(uint64_t digest, int32_t token);

// The first 64 sign bits of a vector; bit c is set where channel c is negative.
uint64_t SignsOf(uint64_t digest, int64_t layer, int64_t head, TokenPart part);
// dim elements of dtype (f32, f16 or bf16) at out.
void FillContent(uint64_t signs, DType dtype, int64_t dim, std::byte* out);
// The sign bits of a stored vector, of channels below 64.
uint64_t SignsIn(const std::byte* vector, DType dtype, int64_t dim);

// Where a vector of one token lies in a block of its rows: layer by layer, K of all heads, then V.
struct RowLayout {
  explicit RowLayout(const PrefixSetup& setup)
      : layers(setup.layers),
        heads(setup.kv_heads),
        k_dim(setup.k_dim),
        v_dim(setup.v_dim),
        dtype(setup.x),
        k_bytes(setup.k_dim * static_cast<int64_t>(SizeInBytes(setup.x))),
        v_bytes(setup.v_dim * static_cast<int64_t>(SizeInBytes(setup.x))) {}
  int64_t layers;
  int64_t heads;
  int64_t k_dim;
  int64_t v_dim;
  DType dtype;
  int64_t k_bytes;  // of one vector
  int64_t v_bytes;

  int64_t LayerBytes() const { return heads * (k_bytes + v_bytes); }
  int64_t TokenBytes() const { return layers * LayerBytes(); }
  int64_t VectorBytes(TokenPart part) const { return part == TokenPart::kKey ? k_bytes : v_bytes; }
  int64_t Dim(TokenPart part) const { return part == TokenPart::kKey ? k_dim : v_dim; }
  int64_t Offset(int64_t layer, int64_t head, TokenPart part) const {
    const int64_t k = layer * LayerBytes() + head * k_bytes;
    return part == TokenPart::kKey ? k : layer * LayerBytes() + heads * k_bytes + head * v_bytes;
  }
};

// All vectors of one token, as RowLayout says.
void FillToken(uint64_t digest, const RowLayout& layout, std::byte* out);
// One vector of one token as an implementation shows it.
inline const std::byte* VectorAt(const PrefixVectors& vectors, int64_t layer, int64_t head,
                                 int64_t token, TokenPart part) {
  return part == TokenPart::kKey ? vectors.K(layer, head, token) : vectors.V(layer, head, token);
}

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_CONTENT_H_
