// Handles: what is stored under them, conversion of what is stored, and collisions.

#include "reference/cache/vector_table.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvcheck {
namespace {

CacheSetup SetupOf(DType x, int64_t dim) {
  CacheSetup setup;
  setup.x = x;
  setup.kv_heads = 2;
  setup.k_dim = dim;
  setup.v_dim = dim;
  return setup;
}

std::vector<std::byte> Token(DType x, int64_t dim, uint64_t token, TokenPart part) {
  const size_t bytes = static_cast<size_t>(dim) * SizeInBytes(x);
  std::vector<std::byte> out(2 * bytes);
  for (int64_t h = 0; h < 2; ++h) {
    FillTokenVector(1, token, h, part, x, dim, out.data() + static_cast<size_t>(h) * bytes);
  }
  return out;
}

const KvFormat kF32 = PlainFormat{DType::kFloat32};
const KvFormat kF16 = PlainFormat{DType::kFloat16};
const KvFormat kBF16 = PlainFormat{DType::kBFloat16};
const KvFormat kCodes = AffineFormat{4, 32, DType::kFloat16};

TEST(VectorTable, KeepsWhatWasAddedWhileItGrows) {
  VectorTable table;
  table.Start(SetupOf(DType::kFloat32, 8), Profile{}, true);
  std::vector<int32_t> handles;
  for (uint64_t t = 0; t < 3000; ++t) {
    const TokenPart part = t % 2 == 0 ? TokenPart::kKey : TokenPart::kValue;
    const auto x = Token(DType::kFloat32, 8, t, part);
    handles.push_back(table.Add(part, kF32, t, x.data(), 32));
  }
  EXPECT_EQ(table.collisions(), 0);
  for (uint64_t t = 0; t < 3000; ++t) {
    const TokenPart part = t % 2 == 0 ? TokenPart::kKey : TokenPart::kValue;
    const auto x = Token(DType::kFloat32, 8, t, part);
    EXPECT_EQ(std::memcmp(table.Bytes(handles[t]), x.data(), x.size()), 0);
    EXPECT_EQ(table.View().Vector(handles[t]), table.Bytes(handles[t]));
    EXPECT_EQ(table.Token(handles[t]), t);
    EXPECT_EQ(table.Part(handles[t]), part);
  }
  table.Start(SetupOf(DType::kFloat32, 8), Profile{}, true);
  EXPECT_EQ(table.size(), 0u);
  const auto x = Token(DType::kFloat32, 8, 0, TokenPart::kKey);
  table.Add(TokenPart::kKey, kF32, 0, x.data(), 32);
  EXPECT_EQ(table.collisions(), 0);  // with nothing of the case before
}

TEST(VectorTable, ConvertsWhatIsStoredAndNotWhatCame) {
  VectorTable table;
  table.Start(SetupOf(DType::kFloat32, 32), Profile{}, true);
  const auto x = Token(DType::kFloat32, 32, 9, TokenPart::kKey);
  const int32_t direct = table.Add(TokenPart::kKey, kCodes, 9, x.data(), 128);
  const int32_t f32 = table.Add(TokenPart::kKey, kF32, 9, x.data(), 128);
  const int32_t bf16 = table.Add(TokenPart::kKey, kBF16, 9, x.data(), 128);
  const size_t bytes = 2 * table.VectorBytes(direct);
  const auto same = [&](int32_t a, int32_t b) {
    return std::memcmp(table.Bytes(a), table.Bytes(b), bytes) == 0;
  };
  EXPECT_EQ(table.Convert(f32, kF32), f32);
  const int32_t from_f32 = table.Convert(f32, kCodes);
  const int32_t from_bf16 = table.Convert(bf16, kCodes);
  EXPECT_EQ(table.Format(from_f32), kCodes);
  EXPECT_TRUE(same(from_f32, direct));
  EXPECT_FALSE(same(from_bf16, direct));
  EXPECT_EQ(table.Convert(f32, kCodes), from_f32);
  const int32_t f16 = table.Convert(f32, kF16);
  EXPECT_EQ(table.Convert(f32, kCodes), from_f32);
  EXPECT_EQ(table.Convert(f32, kF16), f16);
  EXPECT_EQ(table.Token(f16), 9u);
}

TEST(VectorTable, CountsVectorsThatCannotBeToldApart) {
  VectorTable table;
  table.Start(SetupOf(DType::kFloat32, 8), Profile{}, true);
  auto x = Token(DType::kFloat32, 8, 1, TokenPart::kKey);
  table.Add(TokenPart::kKey, kF32, 1, x.data(), 32);
  EXPECT_EQ(table.collisions(), 0);
  table.Add(TokenPart::kValue, kF32, 1, x.data(), 32);  // both heads again
  EXPECT_EQ(table.collisions(), 2);
  // One head alone, then two heads of one token alike.
  auto y = Token(DType::kFloat32, 8, 2, TokenPart::kKey);
  std::memcpy(y.data(), x.data() + 32, 32);
  table.Add(TokenPart::kKey, kF32, 2, y.data(), 32);
  EXPECT_EQ(table.collisions(), 3);
  auto z = Token(DType::kFloat32, 8, 3, TokenPart::kKey);
  std::memcpy(z.data() + 32, z.data(), 32);
  table.Add(TokenPart::kKey, kF32, 3, z.data(), 32);
  EXPECT_EQ(table.collisions(), 4);
}

// To f32 and back: two handles, and one vector of one token, which nobody has to tell from itself.
TEST(VectorTable, ConversionThereAndBackIsNoCollision) {
  VectorTable table;
  table.Start(SetupOf(DType::kFloat32, 8), Profile{}, true);
  const auto x = Token(DType::kFloat32, 8, 5, TokenPart::kKey);
  const int32_t bf16 = table.Add(TokenPart::kKey, kBF16, 5, x.data(), 32);
  const int32_t back = table.Convert(table.Convert(bf16, kF32), kBF16);
  EXPECT_NE(back, bf16);
  EXPECT_EQ(std::memcmp(table.Bytes(back), table.Bytes(bf16), 2 * table.VectorBytes(bf16)), 0);
  EXPECT_EQ(table.collisions(), 0);
}

// f32 to bf16 to f32 is not f32, whatever else the first vector has become before.
TEST(VectorTable, ConvertsFromTheVectorThatIsNamed) {
  VectorTable table;
  table.Start(SetupOf(DType::kFloat32, 8), Profile{}, true);
  const KvFormat f64 = PlainFormat{DType::kFloat64};
  const auto x = Token(DType::kFloat32, 8, 6, TokenPart::kKey);
  const int32_t first = table.Add(TokenPart::kKey, f64, 6, x.data(), 32);
  const int32_t f32 = table.Convert(first, kF32);
  const int32_t bf16 = table.Convert(first, kBF16);
  const int32_t rounded = table.Convert(bf16, kF32);
  EXPECT_NE(rounded, f32);
  EXPECT_NE(std::memcmp(table.Bytes(rounded), table.Bytes(f32), 64), 0);
  EXPECT_EQ(table.Convert(first, kF32), f32);
  EXPECT_EQ(table.Convert(bf16, kF32), rounded);
  EXPECT_EQ(table.Convert(first, kBF16), bf16);
}

TEST(VectorTable, StoredBytesAreTakenAsTheyAre) {
  VectorTable table;
  table.Start(SetupOf(DType::kBFloat16, 32), Profile{}, false);
  const auto x = Token(DType::kBFloat16, 32, 4, TokenPart::kValue);
  const int32_t made = table.Add(TokenPart::kValue, kCodes, 4, x.data(), 64);
  const size_t bytes = 2 * table.VectorBytes(made);
  const std::vector<std::byte> stored(table.Bytes(made), table.Bytes(made) + bytes);
  const int32_t again = table.AddStored(TokenPart::kValue, kCodes, 0, stored.data());
  EXPECT_EQ(std::memcmp(table.Bytes(again), stored.data(), bytes), 0);
  std::vector<double> a(32), b(32);
  table.Decode(made, 1, a.data());
  table.Decode(again, 1, b.data());
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace kvcheck
