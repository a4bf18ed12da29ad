#include "reference/prefix/content.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "reference/data/generator.h"

namespace kvcheck {
namespace {

constexpr uint64_t kG = kSplitMixIncrement;

uint64_t Mix(uint64_t z) { return SplitMixBits(z); }

uint64_t HashText(uint64_t h, const std::optional<std::string>& text) {
  if (!text) return Mix(h + kG);
  h = Mix(h + 2 * kG + text->size());
  for (const char c : *text) h = Mix(h + kG + static_cast<unsigned char>(c));
  return h;
}

uint64_t SignWord(uint64_t signs, int64_t word) {
  return word == 0 ? signs : Mix(signs + kG * static_cast<uint64_t>(word));
}

// Bits of 1 + a / 128 with the sign: a fills the mantissa of bf16.
uint32_t BFloat16Bits(bool negative, uint64_t a) {
  return (negative ? 0x8000u : 0u) | 0x3f80u | static_cast<uint32_t>(a);
}

}  // namespace

uint64_t IdentityHash(const PrefixIdentity& who) {
  uint64_t h = 0;
  for (const auto* text : {&who.model, &who.salt, &who.adapter, &who.image}) h = HashText(h, *text);
  return Mix(h + kG + static_cast<uint64_t>(who.version));
}

uint64_t EmptyDigest(uint64_t seed, int64_t epoch, uint64_t identity) {
  return Mix(Mix(seed + Mix(static_cast<uint64_t>(epoch) + kG)) + kG + identity);
}

uint64_t NextDigest(uint64_t digest, int32_t token) {
  return Mix(Mix(digest + kG) + kG * (static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1));
}

uint64_t SignsOf(uint64_t digest, int64_t layer, int64_t head, TokenPart part) {
  const uint64_t of_layer = Mix(digest + kG * (4 * static_cast<uint64_t>(layer) + 1));
  return Mix(of_layer + kG * (4 * static_cast<uint64_t>(head) + 2) + static_cast<uint64_t>(part));
}

void FillContent(uint64_t signs, DType dtype, int64_t dim, std::byte* out) {
  uint64_t word = 0;
  uint64_t magnitudes = 0;
  for (int64_t c = 0; c < dim; ++c) {
    if (c % 64 == 0) word = SignWord(signs, c / 64);
    if (c % 8 == 0) magnitudes = Mix(signs ^ static_cast<uint64_t>(c / 8 + 1));
    const bool negative = (word >> (c % 64) & 1u) != 0;
    const uint64_t a = magnitudes >> (8 * (c % 8)) & 0x7f;
    if (dtype == DType::kFloat32) {
      const uint32_t bits = BFloat16Bits(negative, a) << 16;
      std::memcpy(out + 4 * c, &bits, 4);
    } else if (dtype == DType::kBFloat16) {
      const auto bits = static_cast<uint16_t>(BFloat16Bits(negative, a));
      std::memcpy(out + 2 * c, &bits, 2);
    } else {
      // f16 has 10 bits of mantissa and the exponent bias 15.
      const auto bits = static_cast<uint16_t>((negative ? 0x8000u : 0u) | 0x3c00u | (a << 3));
      std::memcpy(out + 2 * c, &bits, 2);
    }
  }
}

uint64_t SignsIn(const std::byte* vector, DType dtype, int64_t dim) {
  const auto size = static_cast<int64_t>(SizeInBytes(dtype));
  uint64_t signs = 0;
  for (int64_t c = 0; c < std::min<int64_t>(dim, 64); ++c) {
    // Little endian: the sign is in the last byte.
    const auto high = static_cast<uint64_t>(vector[(c + 1) * size - 1]);
    signs |= (high >> 7) << c;
  }
  return signs;
}

void FillToken(uint64_t digest, const RowLayout& layout, std::byte* out) {
  for (int64_t layer = 0; layer < layout.layers; ++layer) {
    for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
      for (int64_t head = 0; head < layout.heads; ++head) {
        FillContent(SignsOf(digest, layer, head, part), layout.dtype, layout.Dim(part),
                    out + layout.Offset(layer, head, part));
      }
    }
  }
}

}  // namespace kvcheck
