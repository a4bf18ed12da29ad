// The optimized codec stores and reads the bytes of the reference, for every format, source type
// and regime, for arbitrary bit patterns, and on every instruction set that this machine has.

#include "optimized/formats/row_codec.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

#include "optimized/formats/convert.h"
#include "reference/cache/vector_codec.h"
#include "reference/data/row_regime.h"
#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

constexpr DType kSources[] = {DType::kFloat32, DType::kFloat16,      DType::kBFloat16,
                              DType::kFloat64, DType::kFloat8E4M3FN, DType::kFloat8E5M2};

// Stored bytes of `rows` vectors as the cache lays them out: codes, scales and biases apart, with
// gaps that must stay as they are.
struct Stored {
  Stored(const KvFormat& format, int64_t dim, int64_t rows)
      : bytes(optimized::RowBytesOf(format, dim)),
        code_stride(bytes.codes + 3),
        scale_stride(bytes.scales + 1),
        codes(static_cast<size_t>(rows * code_stride), std::byte{0x5a}),
        scales(static_cast<size_t>(rows * scale_stride), std::byte{0x5a}),
        biases(scales) {}
  optimized::StoredRows Rows() {
    return {codes.data(), scales.data(), biases.data(), code_stride, scale_stride};
  }
  optimized::StoredRowsView View() const {
    return {codes.data(), scales.data(), biases.data(), code_stride, scale_stride};
  }
  optimized::RowBytes bytes;
  int64_t code_stride;
  int64_t scale_stride;
  std::vector<std::byte> codes, scales, biases;
};

void ExpectSameBytesOfWriter(AffineEncoder writer, const KvFormat& format, DType from, int64_t dim,
                             const std::byte* x, int64_t rows, const std::string& what) {
  optimized::RowCodec codec;
  codec.Start(format, from, dim, writer);
  Profile profile;
  profile.encode = writer;
  VectorCodec reference(format, from, dim, profile);
  const Planes& planes = reference.planes();
  const size_t code_bytes = planes[0].Bytes();
  const size_t scale_bytes = planes.size() > 1 ? planes[1].Bytes() : 0;
  ASSERT_EQ(codec.bytes().codes, static_cast<int64_t>(code_bytes));
  ASSERT_EQ(codec.bytes().scales, static_cast<int64_t>(scale_bytes));
  const size_t bias_bytes = planes.size() > 2 ? planes[2].Bytes() : 0;
  ASSERT_EQ(codec.bytes().biases, static_cast<int64_t>(bias_bytes));
  ASSERT_EQ(codec.bytes().Total(), static_cast<int64_t>(reference.bytes()));
  const int64_t vector = dim * static_cast<int64_t>(SizeInBytes(from));
  Stored got(format, dim, rows);
  codec.Encode(x, vector, rows, got.Rows());
  std::vector<float> decoded(static_cast<size_t>(rows * dim));
  codec.Decode(got.View(), rows, decoded.data());
  const DType row_type = RowDType(format);
  const auto element = static_cast<int64_t>(SizeInBytes(row_type));
  std::vector<std::byte> row_values(static_cast<size_t>(rows * dim * element));
  codec.DecodeToRowType(got.View(), rows, row_values.data());
  Stored want(format, dim, rows);
  std::vector<std::byte> one(reference.bytes());
  std::vector<double> values(static_cast<size_t>(dim));
  const double stated_roundings = optimized::DecodeRoundings(format);
  for (int64_t r = 0; r < rows; ++r) {
    reference.Encode(x + r * vector, one.data());
    std::memcpy(&want.codes[static_cast<size_t>(r * want.code_stride)], one.data(), code_bytes);
    if (scale_bytes > 0) {
      const auto at = static_cast<size_t>(r * want.scale_stride);
      std::memcpy(&want.scales[at], &one[code_bytes], scale_bytes);
      if (planes.size() > 2) {
        std::memcpy(&want.biases[at], &one[code_bytes + scale_bytes], scale_bytes);
      }
    }
    // The values: exact in f32 for types up to f32; an affine value within its two roundings, which
    // are exactly those of a decoder with two roundings where the row type is f32; others within
    // the roundings that they state.
    reference.Decode(one.data(), values.data());
    for (int64_t i = 0; i < dim; ++i) {
      const auto index = static_cast<size_t>(i);
      const float value = decoded[static_cast<size_t>(r * dim + i)];
      float expected = static_cast<float>(values[index]);
      if (const auto* affine = std::get_if<AffineFormat>(&format)) {
        const auto group = static_cast<size_t>(i / affine->group_size);
        const size_t element = SizeInBytes(affine->scale_dtype);
        uint64_t scale = 0;
        uint64_t bias = 0;
        std::memcpy(&scale, &one[code_bytes + group * element], element);
        std::memcpy(&bias, &one[code_bytes + scale_bytes + group * element], element);
        std::vector<uint32_t> words(code_bytes / 4);
        std::memcpy(words.data(), one.data(), code_bytes);
        std::vector<uint8_t> codes(static_cast<size_t>(dim));
        UnpackCodes(words, affine->bits, codes);
        const auto s = static_cast<float>(Decode(affine->scale_dtype, scale));
        const auto b = static_cast<float>(Decode(affine->scale_dtype, bias));
        const float product = static_cast<float>(codes[index]) * s;
        expected = product + b;
        const std::byte* at = row_values.data() + static_cast<size_t>(r * dim + i) * element;
        uint64_t code = 0;
        std::memcpy(&code, at, static_cast<size_t>(element));
        const double in_row = Decode(row_type, code);
        double rounded = 0;
        DecodeAffineGroup(DecodeRounding::kTwoRoundings, row_type, {&codes[index], 1},
                          static_cast<double>(s), static_cast<double>(b), {&rounded, 1});
        ASSERT_TRUE(in_row == rounded || (std::isnan(in_row) && std::isnan(rounded)))
            << Print(format) << " " << in_row << " " << rounded << " " << what;
      }
      const double apart = std::fabs(static_cast<double>(value) - values[index]);
      ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)) ||
                  apart <= stated_roundings * 0x1.000002p-24 * std::fabs(values[index]))
          << Print(format) << " " << value << " " << expected << " " << what;
    }
  }
  const auto vector_bytes = static_cast<size_t>(dim * element);
  if (!IsPlain(format)) {
    // Of row r, where both have the same bytes.
    for (int64_t r = 0; r < rows; ++r) {
      reference.Encode(x + r * vector, one.data());
      TensorMap stored;
      size_t at = 0;
      for (const Plane& plane : planes) {
        Tensor tensor(plane.dtype, {{"", 1}, {"", plane.elements}});
        std::memcpy(tensor.bytes.data(), &one[at], plane.Bytes());
        at += plane.Bytes();
        stored.emplace(plane.name, std::move(tensor));
      }
      Profile read;
      read.decode = DecodeRounding::kTwoRoundings;
      const std::vector<double> in_row =
          DecodeToRowType(format, read, CodecRows(format, stored), 0, 1);
      std::vector<double> got_row(in_row.size());
      DecodeBytes(&row_values[static_cast<size_t>(r) * vector_bytes], row_type, got_row);
      for (size_t i = 0; i < in_row.size(); ++i) {
        ASSERT_TRUE(got_row[i] == in_row[i] || (std::isnan(got_row[i]) && std::isnan(in_row[i])))
            << Print(format) << " " << got_row[i] << " " << in_row[i] << " " << what;
      }
    }
  }
  if (IsPlain(format)) {
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(std::memcmp(&row_values[static_cast<size_t>(r) * vector_bytes],
                            &got.codes[static_cast<size_t>(r * got.code_stride)], vector_bytes),
                0)
          << Print(format) << " " << what;
    }
  }
  ASSERT_EQ(got.codes, want.codes) << Print(format) << " from " << Name(from) << " " << what;
  ASSERT_EQ(got.scales, want.scales) << Print(format) << " from " << Name(from) << " " << what;
  ASSERT_EQ(got.biases, want.biases) << Print(format) << " from " << Name(from) << " " << what;
}

void ExpectSameBytes(const KvFormat& format, DType from, int64_t dim, const std::byte* x,
                     int64_t rows, const std::string& what) {
  ExpectSameBytesOfWriter(AffineEncoder::kMlxCpu, format, from, dim, x, rows, what);
  if (!Leaves(format, CodecChoice::kEncode) || testing::Test::HasFatalFailure()) return;
  ExpectSameBytesOfWriter(AffineEncoder::kKivi, format, from, dim, x, rows, what + ", kivi");
}

// Puts 0 for what is not finite, or above 2^10: sums of 512 of these are finite in every row type.
// Of a rotation that meets others nothing is promised: which NaN its sums give depends on their
// order.
void KeepSmall(DType type, std::vector<std::byte>* x) {
  std::vector<double> values(x->size() / SizeInBytes(type));
  DecodeBytes(x->data(), type, values);
  for (double& value : values) value = std::fabs(value) <= 0x1p10 ? value : 0.0;
  EncodeFrom(values, type, x->data());
}

// Infinities and NaN of every payload included, but for rotations. In an affine group they meet
// finite values.
void ExpectSameBytesOfRandomBits(const std::string& what) {
  std::mt19937_64 random(4);
  for (const KvFormat& format : AllKvFormats()) {
    for (const DType from : kSources) {
      const int64_t dim = IsPlain(format) ? 501 : 256;
      constexpr int64_t kRows = 4;
      std::vector<std::byte> x(static_cast<size_t>(kRows * dim) * SizeInBytes(from));
      for (std::byte& byte : x) byte = static_cast<std::byte>(random());
      if (std::holds_alternative<RotatedFormat>(format)) KeepSmall(from, &x);
      ExpectSameBytes(format, from, dim, x.data(), kRows, "random bits" + what);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

void ExpectSameBytesOf(std::string_view regime, const std::string& what) {
  constexpr int64_t kRows = 2;
  for (const KvFormat& format : AllKvFormats()) {
    for (const DType from : kSources) {
      const int64_t dim = IsPlain(format) ? 67 : 256;
      const Tensor x = GenerateRows(regime, 3, from, kRows, dim);
      ExpectSameBytes(format, from, dim, x.bytes.data(), kRows, std::string(regime) + what);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Groups whose elements lie where a code changes, and up to three f32 steps beside: any quotient
// that is not the rounded one shows. Steps of 1e-8 to 1e35.
void ExpectSameBytesNearTies(const std::string& what) {
  std::mt19937_64 random(5);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (const KvFormat& format : AllKvFormats()) {
    const auto* affine = std::get_if<AffineFormat>(&format);
    if (affine == nullptr) continue;
    const auto group = static_cast<size_t>(affine->group_size);
    const bool wide = affine->scale_dtype == DType::kFloat32;
    constexpr int64_t kDim = 256;
    const int64_t rows = wide ? 40 : 8;
    std::vector<float> x(static_cast<size_t>(rows * kDim));
    std::vector<uint8_t> codes(group);
    int64_t near = 0;
    for (size_t at = 0; at < x.size(); at += group) {
      const std::span<float> values(&x[at], group);
      const double size = std::pow(10.0, wide ? -6 + 43 * uniform() : -3 + 6 * uniform());
      const double middle = size * (3 * uniform() - 1.5);
      const auto mx = static_cast<float>(middle + size);
      const auto mn = static_cast<float>(middle - size);
      std::fill(values.begin(), values.end(), mx);
      values[1] = mn;
      const AffineGroup encoded =
          EncodeAffineGroup(affine->bits, AffineEncoder::kMlxCpu, values, codes);
      for (size_t i = 2; i < group; ++i) {
        const double code = static_cast<double>(random() >> (64 - affine->bits)) + 0.5;
        auto value = static_cast<float>(static_cast<double>(encoded.bias) +
                                        code * static_cast<double>(encoded.scale));
        const auto steps = static_cast<int>(random() % 7) - 3;
        for (int k = 0; k < std::abs(steps); ++k) {
          value = std::nextafterf(value, steps < 0 ? -INFINITY : INFINITY);
        }
        if (!(value > mn && value < mx)) continue;
        values[i] = value;
        ++near;
      }
    }
    EXPECT_GT(near, rows * kDim / 2) << Print(format);
    ExpectSameBytes(format, DType::kFloat32, kDim, reinterpret_cast<const std::byte*>(x.data()),
                    rows, "near ties" + what);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(RowCodec, StoresTheBytesOfTheReferenceInEveryFormatAndRegime) {
  for (const std::string_view regime : RowRegimes()) ExpectSameBytesOf(regime, "");
}

TEST(RowCodec, StoresTheSameBytesOnEveryInstructionSet) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  EXPECT_FALSE(targets.empty());
  for (const int64_t target : targets) {
    const OnTarget forced(target);
    const std::string on = std::string(" on ") + hwy::TargetName(target);
    ExpectSameBytesOf("mixed", on);
    ExpectSameBytesOfRandomBits(on);
    ExpectSameBytesNearTies(on);
  }
}

// Blocks of ggml that are encoded together: any number of them, elements where a code changes and
// up to two f32 steps beside, and among them a block that has no scale, or none that is a number.
TEST(RowCodec, StoresBlocksInAnyCompanyOnEveryInstructionSet) {
  constexpr int64_t kDim = 32;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float sizes[] = {1, 0, 0x1p-149f, 0x1p-126f, 0x1.fffffep127f, kInfinity, NAN};
  std::mt19937 random(8);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    for (const int64_t rows : {1, 2, 3, 4, 5, 15, 16, 17, 35}) {
      for (const float size : sizes) {
        std::vector<float> x(static_cast<size_t>(rows * kDim));
        for (size_t at = 0; at < x.size(); at += kDim) {
          const float largest = std::ldexp(1 + static_cast<float>(random() % 1000) / 1000,
                                           static_cast<int>(random() % 60) - 30);
          x[at] = largest;
          for (size_t i = 1; i < kDim; ++i) {
            const auto code = static_cast<float>(static_cast<int>(random() % 254) - 127);
            x[at + i] = (code + 0.5f) * (largest / 127.0f);
            for (auto steps = random() % 3; steps > 0; --steps) {
              x[at + i] = std::nextafterf(x[at + i], random() % 2 == 0 ? -kInfinity : kInfinity);
            }
          }
        }
        if (size != 1) {
          for (size_t i = 0; i < kDim; ++i) x[x.size() / kDim / 2 * kDim + i] *= size;
        }
        for (const KvFormat& format : {KvFormat(Q8_0Format()), KvFormat(Q4_0Format())}) {
          ExpectSameBytes(format, DType::kFloat32, kDim, reinterpret_cast<std::byte*>(x.data()),
                          rows, hwy::TargetName(target));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RowCodec, DecodesManyVectorsToTheNumbersOfEach) {
  // 8 MiB of numbers and more may take another way to memory, where their place allows it. A
  // stored vector repeats after 129.
  constexpr int64_t kDim = 64;
  constexpr int64_t kRows = (int64_t{8} << 20) / (kDim * 2) + 1;
  constexpr int64_t kDrawn = 129;
  std::mt19937 random(6);
  std::vector<float> x(static_cast<size_t>(kDrawn * kDim));
  for (float& value : x) value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31F;
  for (const char* text : {"affine:8:g64:f16", "affine:4:g32:f16", "affine:3:g64:bf16",
                           "affine:4:g64:f32", "affine:6:g32:f16"}) {
    const KvFormat format = ParseKvFormat(WholeLine(text));
    optimized::RowCodec codec;
    codec.Start(format, DType::kFloat32, kDim);
    Stored stored(format, kDim, kRows);
    const auto at = [&](optimized::StoredRows rows, int64_t row) {
      rows.codes += row * rows.code_stride;
      rows.scales += row * rows.scale_stride;
      rows.biases += row * rows.scale_stride;
      return rows;
    };
    for (int64_t row = 0; row < kRows; row += kDrawn) {
      codec.Encode(reinterpret_cast<const std::byte*>(x.data()), kDim * 4,
                   std::min(kDrawn, kRows - row), at(stored.Rows(), row));
    }
    const auto element = static_cast<int64_t>(SizeInBytes(RowDType(format)));
    std::vector<float> few(x.size());
    std::vector<std::byte> few_narrow(static_cast<size_t>(kDrawn * kDim * element));
    codec.Decode(stored.View(), kDrawn, few.data());
    codec.DecodeToRowType(stored.View(), kDrawn, few_narrow.data());
    std::vector<std::byte> many(static_cast<size_t>(kRows * kDim * 4) + 16);
    for (const size_t shift : {size_t{0}, size_t{4}, size_t{2}}) {
      std::byte* out = many.data() + shift;
      std::fill(many.begin(), many.end(), std::byte{0x5a});
      codec.DecodeToRowType(stored.View(), kRows, out);
      for (int64_t row = 0; row < kRows; ++row) {
        ASSERT_EQ(std::memcmp(out + row * kDim * element,
                              &few_narrow[static_cast<size_t>(row % kDrawn * kDim * element)],
                              static_cast<size_t>(kDim * element)),
                  0)
            << text << " " << row << " " << shift;
      }
      EXPECT_EQ(out[kRows * kDim * element], std::byte{0x5a});
      if (shift % 4 != 0) continue;
      codec.Decode(stored.View(), kRows, reinterpret_cast<float*>(out));
      for (int64_t row = 0; row < kRows; ++row) {
        ASSERT_EQ(std::memcmp(out + row * kDim * 4, &few[static_cast<size_t>(row % kDrawn * kDim)],
                              kDim * 4),
                  0)
            << text << " " << row << " " << shift;
      }
    }
  }
}

TEST(RowCodec, ConvertsEveryCodeOfTheNarrowTypes) {
  const auto same = [](float value, DType dtype, uint64_t code) {
    const double want = Decode(dtype, code);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(static_cast<float>(want)))
        << Name(dtype) << " " << code;
  };
  for (uint32_t code = 0; code < 0x10000u; ++code) {
    same(std::bit_cast<float>(optimized::F32FromF16(code)), DType::kFloat16, code);
    same(std::bit_cast<float>(optimized::F32FromBF16(code)), DType::kBFloat16, code);
  }
  for (uint32_t code = 0; code < 0x100u; ++code) {
    same(std::bit_cast<float>(optimized::F32FromE4M3(code)), DType::kFloat8E4M3FN, code);
    same(std::bit_cast<float>(optimized::F32FromE5M2(code)), DType::kFloat8E5M2, code);
  }
}

uint64_t Narrowed(DType dtype, float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (dtype == DType::kFloat16) return optimized::F16FromF32(bits);
  if (dtype == DType::kBFloat16) return optimized::BF16FromF32(bits);
  if (dtype == DType::kFloat8E4M3FN) return optimized::E4M3FromF32(bits);
  return optimized::E5M2FromF32(bits);
}

TEST(RowCodec, RoundsEveryBorderOfTheNarrowTypes) {
  // Around every code and every midpoint between codes, in both signs.
  for (const DType dtype :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    const uint32_t count = SizeInBytes(dtype) == 1 ? 0x100u : 0x10000u;
    std::vector<float> borders;
    for (uint32_t code = 0; code < count; ++code) {
      const double value = Decode(dtype, code);
      const double middle = (value + Decode(dtype, (code + 1) % count)) / 2;
      for (const double at : {value, middle}) {
        const auto near = static_cast<float>(at);
        for (const float x :
             {near, std::nextafterf(near, INFINITY), std::nextafterf(near, -INFINITY)}) {
          borders.push_back(x);
          ASSERT_EQ(Narrowed(dtype, x),
                    Encode(dtype, static_cast<double>(x), StoreRule(dtype, Profile{})))
              << Name(dtype) << " " << x;
        }
      }
    }
    // The vectors of the codec do as the functions do.
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnTarget forced(target);
      optimized::RowCodec codec;
      codec.Start(PlainFormat{dtype}, DType::kFloat32, std::ssize(borders));
      std::vector<std::byte> codes(static_cast<size_t>(codec.bytes().codes));
      codec.Encode(reinterpret_cast<const std::byte*>(borders.data()), 0, 1,
                   {codes.data(), nullptr, nullptr, 0, 0});
      std::vector<float> decoded(borders.size());
      codec.Decode({codes.data(), nullptr, nullptr, 0, 0}, 1, decoded.data());
      for (size_t i = 0; i < borders.size(); ++i) {
        uint64_t code = 0;
        const size_t size = SizeInBytes(dtype);
        std::memcpy(&code, &codes[i * size], size);
        ASSERT_EQ(code, Narrowed(dtype, borders[i]))
            << Name(dtype) << " " << borders[i] << " on " << hwy::TargetName(target);
        ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]),
                  std::bit_cast<uint32_t>(static_cast<float>(Decode(dtype, code))))
            << Name(dtype) << " " << code << " on " << hwy::TargetName(target);
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
