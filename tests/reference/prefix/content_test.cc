// Contents: who a row belongs to is in its signs, and survives the coarsest format.

#include "reference/prefix/content.h"

#include <gtest/gtest.h>

#include <set>

#include "reference/cache/vector_codec.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

std::vector<double> ValuesOf(const std::vector<std::byte>& bytes, DType dtype, int64_t dim) {
  std::vector<double> values(static_cast<size_t>(dim));
  DecodeBytes(bytes.data(), dtype, values);
  return values;
}

TEST(Content, IsTheSameInEveryTypeAndAtLeastOneInMagnitude) {
  for (const int64_t dim : {1, 2, 63, 64, 65, 129}) {
    std::vector<std::vector<double>> of_types;
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      std::vector<std::byte> bytes(static_cast<size_t>(dim) * SizeInBytes(dtype));
      const uint64_t signs = SignsOf(NextDigest(EmptyDigest(1, 0, 7), 3), 2, 1, TokenPart::kValue);
      FillContent(signs, dtype, dim, bytes.data());
      of_types.push_back(ValuesOf(bytes, dtype, dim));
      const uint64_t mask = dim >= 64 ? ~uint64_t{0} : (uint64_t{1} << dim) - 1;
      EXPECT_EQ(SignsIn(bytes.data(), dtype, dim), signs & mask) << dim;
    }
    EXPECT_EQ(of_types[0], of_types[1]);
    EXPECT_EQ(of_types[0], of_types[2]);
    for (const double value : of_types[0]) {
      EXPECT_GE(std::abs(value), 1);
      EXPECT_LT(std::abs(value), 2);
    }
  }
}

TEST(Content, SignsSurviveTwoBits) {
  constexpr int64_t kDim = 64;
  for (const char* format : {"affine:2:g32:f32", "q4_0", "f8e5m2", "affine:4:g64:f32"}) {
    VectorCodec codec(ParseKvFormat(WholeLine(format)), DType::kFloat32, kDim, Profile());
    for (int32_t token = 0; token < 100; ++token) {
      std::vector<std::byte> bytes(kDim * 4);
      const uint64_t signs =
          SignsOf(NextDigest(EmptyDigest(1, 0, 0), token), 0, 0, TokenPart::kKey);
      FillContent(signs, DType::kFloat32, kDim, bytes.data());
      std::vector<std::byte> stored(codec.bytes());
      std::vector<double> values(kDim);
      codec.Encode(bytes.data(), stored.data());
      codec.Decode(stored.data(), values.data());
      for (size_t c = 0; c < values.size(); ++c) {
        EXPECT_EQ(values[c] < 0, (signs >> c & 1u) != 0) << format << " token " << token;
      }
    }
  }
}

TEST(Content, DiffersInEveryArgument) {
  std::set<uint64_t> seen;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (uint64_t who = 0; who < 3; ++who) {
        uint64_t digest = EmptyDigest(seed, epoch, who);
        for (int32_t token = 0; token < 3; ++token) {
          digest = NextDigest(digest, token);
          for (int64_t layer = 0; layer < 3; ++layer) {
            for (int64_t head = 0; head < 3; ++head) {
              for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
                seen.insert(SignsOf(digest, layer, head, part));
                ++count;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(Content, AbsentAndEmptyFieldsAreDifferentIdentities) {
  std::set<uint64_t> seen;
  size_t count = 0;
  const auto add = [&](const PrefixIdentity& who) {
    seen.insert(IdentityHash(who));
    ++count;
  };
  add({});
  for (const char* text : {"", "a", "b", "ab", "a/b", "/"}) {
    PrefixIdentity who;
    who.salt = text;
    add(who);
    who = {};
    who.adapter = text;
    add(who);
    who.version = 1;
    add(who);
    who = {};
    who.model = text;
    add(who);
    who.image = text;
    add(who);
  }
  PrefixIdentity joined;
  joined.salt = "a";
  joined.adapter = "b";
  add(joined);
  EXPECT_EQ(seen.size(), count);
}

}  // namespace
}  // namespace kvcheck
