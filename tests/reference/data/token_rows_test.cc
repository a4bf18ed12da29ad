// The vectors of tokens: the definition's first values by hand, independence of neighbours, and
// that every storage format keeps tokens apart.

#include "reference/data/token_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

Tensor Vectors(DType dtype, int64_t count, int64_t dim, uint64_t seed = 7) {
  Tensor tensor(dtype, {{"T", count}, {"Dk", dim}});
  const auto row_bytes = static_cast<size_t>(dim) * SizeInBytes(dtype);
  for (int64_t t = 0; t < count; ++t) {
    FillTokenVector(seed, TokenId(t / 64, t / 8 % 8, t % 8), 0, TokenPart::kKey, dtype, dim,
                    tensor.bytes.data() + static_cast<size_t>(t) * row_bytes);
  }
  return tensor;
}

TEST(TokenRows, ValuesAreThoseOfTheDefinition) {
  // SplitMix64 from its published constants, once more.
  const uint64_t g = 0x9e3779b97f4a7c15u;
  const auto m = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  const uint64_t token = TokenId(3, 2, 1);
  const uint64_t s = m(m(m(5 + g) + g + token) + g + 4 * 6 + 1);
  const auto signed_bits = [](uint64_t bits, int width) {
    const int64_t limit = int64_t{1} << (width - 1);
    const auto n = static_cast<int64_t>(bits);
    return static_cast<double>(2 * (n < limit ? n : n - 2 * limit) + 1);
  };
  for (const auto& [dtype, width, field, unit] :
       {std::tuple{DType::kFloat32, 23, 32, 0x1p-22}, std::tuple{DType::kFloat16, 11, 16, 0x1p-10},
        std::tuple{DType::kBFloat16, 8, 16, 0x1p-7}}) {
    Tensor tensor(dtype, {{"Dk", 7}});
    FillTokenVector(5, token, 6, TokenPart::kValue, dtype, 7, tensor.bytes.data());
    std::vector<double> values(7);
    DecodeTo(tensor, 0, values);
    for (int i = 0; i < 7; ++i) {
      const int per_word = 64 / field;
      const uint64_t word = m(s + static_cast<uint64_t>(i / per_word + 1) * g);
      const uint64_t bits = word >> (i % per_word * field) << (64 - field) >> (64 - width);
      EXPECT_EQ(values[static_cast<size_t>(i)], signed_bits(bits, width) * unit)
          << Name(dtype) << " " << i;
    }
  }
}

TEST(TokenRows, OriginIsReadBack) {
  for (const auto& [operation, row, column] :
       {std::tuple{0, 0, 0}, std::tuple{1048575, 65535, 1048575}, std::tuple{1, 2, 3}}) {
    const TokenOrigin origin = OriginOf(TokenId(operation, row, column));
    EXPECT_EQ(origin.operation, operation);
    EXPECT_EQ(origin.row, row);
    EXPECT_EQ(origin.column, column);
  }
}

TEST(TokenRows, ChangeWithSeedTokenHeadAndPart) {
  std::set<std::string> seen;
  for (uint64_t seed : {0u, 1u}) {
    for (uint64_t token :
         {TokenId(0, 0, 0), TokenId(0, 0, 1), TokenId(0, 1, 0), TokenId(1, 0, 0)}) {
      for (int64_t head : {0, 1}) {
        for (TokenPart part : {TokenPart::kKey, TokenPart::kValue, TokenPart::kQuery}) {
          std::string bytes(32, '\0');
          FillTokenVector(seed, token, head, part, DType::kFloat32, 8,
                          reinterpret_cast<std::byte*>(bytes.data()));
          EXPECT_TRUE(seen.insert(bytes).second);
        }
      }
    }
  }
}

TEST(TokenRows, NothingIsWrittenBeyondTheVector) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (int64_t dim : {1, 2, 3, 4, 5, 9}) {
      std::vector<std::byte> bytes(64, std::byte{0x5a});
      FillTokenVector(1, 2, 3, TokenPart::kKey, dtype, dim, bytes.data());
      const auto end = static_cast<size_t>(dim) * SizeInBytes(dtype);
      for (size_t i = end; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], std::byte{0x5a});
      FillPaddingVector(dtype, dim, bytes.data());
      for (size_t i = end; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], std::byte{0x5a});
    }
  }
}

TEST(TokenRows, ValuesAreFiniteAndPaddingIsNan) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const Tensor tensor = Vectors(dtype, 2000, 8);
    std::vector<double> values(16000);
    DecodeTo(tensor, 0, values);
    double sum = 0;
    for (double value : values) {
      EXPECT_TRUE(value != 0 && std::fabs(value) < 2) << value;
      sum += value;
    }
    // The mean of 16000 values of standard deviation 2/sqrt(3): six sigmas.
    EXPECT_LT(std::fabs(sum / 16000), 6 * 2 / std::sqrt(3.0 * 16000));
    Tensor padding(dtype, {{"Dk", 5}});
    FillPaddingVector(dtype, 5, padding.bytes.data());
    std::vector<double> nan(5);
    DecodeTo(padding, 0, nan);
    for (double value : nan) EXPECT_TRUE(std::isnan(value));
  }
}

// In every format and from every type: no two of 2000 tokens have the same stored bytes.
TEST(TokenRows, EveryFormatKeepsTokensApart) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = Vectors(dtype, 2000, 256);
    for (const KvFormat& format : AllKvFormats()) {
      const TensorMap stored = EncodeRows(format, Profile{}, x);
      std::set<std::string> seen;
      for (size_t t = 0; t < 2000; ++t) {
        const Tensor& codes = stored.at(PlaneNames(format)[0]);
        const size_t row = codes.bytes.size() / 2000;
        seen.emplace(reinterpret_cast<const char*>(codes.bytes.data()) + t * row, row);
      }
      EXPECT_EQ(seen.size(), 2000u) << Name(dtype) << " " << Print(format);
    }
  }
}

}  // namespace
}  // namespace kvcheck
