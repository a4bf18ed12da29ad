// Single vectors are stored with the bytes, and read with the values, of whole tensors.

#include "reference/cache/vector_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

TEST(VectorCodec, StoresTheBytesOfEncodeRowsAndReadsThoseOfDecodeRows) {
  for (const AffineEncoder encoder :
       {AffineEncoder::kMlxCpu, AffineEncoder::kMlxGpu, AffineEncoder::kKivi}) {
    Profile profile;
    profile.encode = encoder;
    for (const KvFormat& format : AllKvFormats()) {
      for (const DType from : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        constexpr int64_t kRows = 20;
        const int64_t dim = IsPlain(format) ? 7 : 256;
        const Tensor x = GenerateRows("group_scales", 5, from, kRows, dim);
        const TensorMap want = EncodeRows(format, profile, x);
        const EncodedRows rows = CodecRows(format, want);
        const DecodedRows decoded = DecodeRows(format, profile, rows, 0, kRows);
        VectorCodec codec(format, from, dim, profile);
        for (size_t r = 0; r < kRows; ++r) {
          std::vector<std::byte> stored(codec.bytes() + 1, std::byte{0x5a});
          codec.Encode(x.bytes.data() + r * static_cast<size_t>(dim) * SizeInBytes(from),
                       stored.data());
          EXPECT_EQ(stored.back(), std::byte{0x5a}) << Print(format);
          size_t at = 0;
          for (const Tensor* part : rows.planes) {
            if (part == nullptr) continue;
            const size_t bytes = part->bytes.size() / kRows;
            EXPECT_EQ(std::memcmp(part->bytes.data() + r * bytes, stored.data() + at, bytes), 0)
                << Print(format) << " from " << Name(from) << " row " << r;
            at += bytes;
          }
          EXPECT_EQ(at, codec.bytes()) << Print(format);
          std::vector<double> values(static_cast<size_t>(dim));
          codec.Decode(stored.data(), values.data());
          for (size_t i = 0; i < values.size(); ++i) {
            const double exact = decoded.hi[r * values.size() + i];
            EXPECT_TRUE(values[i] == exact || (std::isnan(values[i]) && std::isnan(exact)))
                << Print(format) << " " << values[i] << " " << exact;
          }
        }
      }
    }
  }
}

// Every code of the 16-bit types, subnormal numbers, infinities and NaN included.
TEST(VectorCodec, ReadsEverySixteenBitCodeAsDecodeDoes) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<uint16_t> codes(1 << 16);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
    VectorCodec codec(PlainFormat{dtype}, dtype, std::ssize(codes), Profile{});
    std::vector<double> values(codes.size());
    codec.Decode(reinterpret_cast<const std::byte*>(codes.data()), values.data());
    for (size_t i = 0; i < codes.size(); ++i) {
      const double want = Decode(dtype, i);
      EXPECT_TRUE(std::isnan(want)
                      ? std::isnan(values[i])
                      : std::bit_cast<uint64_t>(values[i]) == std::bit_cast<uint64_t>(want))
          << Name(dtype) << " " << i;
    }
  }
}

}  // namespace
}  // namespace kvcheck
