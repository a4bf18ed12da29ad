#include "reference/data/token_rows.h"

#include <array>
#include <cstring>

#include "reference/data/generator.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

uint64_t StartOf(uint64_t seed, uint64_t token, int64_t head, TokenPart part) {
  uint64_t s = SplitMixBits(seed + kSplitMixIncrement);
  s = SplitMixBits(s + kSplitMixIncrement + token);
  return SplitMixBits(s + kSplitMixIncrement + 4 * static_cast<uint64_t>(head) +
                      static_cast<uint64_t>(part));
}

// The codes of (2 n + 1) unit for every signed n of kBits bits, by its bit pattern.
template <size_t kBits>
std::array<uint16_t, size_t{1} << kBits> Codes(DType dtype, double unit) {
  std::array<uint16_t, size_t{1} << kBits> codes{};
  for (size_t pattern = 0; pattern < codes.size(); ++pattern) {
    const int64_t n = pattern < codes.size() / 2
                          ? static_cast<int64_t>(pattern)
                          : static_cast<int64_t>(pattern) - static_cast<int64_t>(codes.size());
    codes[pattern] = static_cast<uint16_t>(Encode(dtype, static_cast<double>(2 * n + 1) * unit));
  }
  return codes;
}

float Single(uint32_t half) {
  const int32_t n = static_cast<int32_t>(half) >> 9;
  return static_cast<float>(2 * n + 1) * 0x1p-22f;
}

template <size_t kBits>
void FillSixteen(uint64_t state, const std::array<uint16_t, size_t{1} << kBits>& codes, int64_t dim,
                 std::byte* out) {
  for (int64_t i = 0; i < dim; i += 4) {
    state += kSplitMixIncrement;
    uint64_t word = SplitMixBits(state);
    for (int64_t j = i; j < dim && j < i + 4; ++j, word >>= 16) {
      const uint16_t code = codes[(word & 0xffffu) >> (16 - kBits)];
      std::memcpy(out + 2 * j, &code, sizeof(code));
    }
  }
}

}  // namespace

void FillTokenVector(uint64_t seed, uint64_t token, int64_t head, TokenPart part, DType dtype,
                     int64_t dim, std::byte* out) {
  uint64_t state = StartOf(seed, token, head, part);
  if (dtype == DType::kFloat16) {
    static const auto kCodes = Codes<11>(DType::kFloat16, 0x1p-10);
    FillSixteen<11>(state, kCodes, dim, out);
    return;
  }
  if (dtype == DType::kBFloat16) {
    static const auto kCodes = Codes<8>(DType::kBFloat16, 0x1p-7);
    FillSixteen<8>(state, kCodes, dim, out);
    return;
  }
  KVCHECK_CHECK(dtype == DType::kFloat32, "tokens are f32, f16 or bf16");
  for (int64_t i = 0; i < dim; i += 2) {
    state += kSplitMixIncrement;
    const uint64_t word = SplitMixBits(state);
    const float pair[2] = {Single(static_cast<uint32_t>(word)),
                           Single(static_cast<uint32_t>(word >> 32))};
    std::memcpy(out + 4 * i, pair, i + 1 < dim ? 8 : 4);
  }
}

void FillPaddingVector(DType dtype, int64_t dim, std::byte* out) {
  // All ones is a quiet NaN in f32, f16 and bf16.
  std::memset(out, 0xff, static_cast<size_t>(dim) * SizeInBytes(dtype));
}

float TokenSink(uint64_t seed, int64_t query_head) {
  const uint64_t state = StartOf(seed, ~uint64_t{0}, query_head, TokenPart::kQuery);
  return Single(static_cast<uint32_t>(SplitMixBits(state + kSplitMixIncrement)));
}

}  // namespace kvcheck
