// TurboQuant beside what follows from its definition by hand, and what mlx-vlm 0.7.10 does at the
// edges: formats.md, section E.

#include "reference/formats/turboquant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/lloyd_max.h"
#include "reference/formats/turboquant_codebook.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/judge/judge.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/sample.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

TurboquantFormat Of(const std::string& text) {
  return std::get<TurboquantFormat>(ParseKvFormat(WholeLine(text)));
}

Profile By(TurboquantWriter writer) {
  Profile profile;
  profile.turboquant = writer;
  return profile;
}

struct RoundTripped {
  std::vector<uint32_t> words;
  std::vector<double> norms, values;
};

RoundTripped Through(const KvFormat& format, const std::vector<double>& row,
                     const Profile& profile = {}) {
  const TensorMap stored = EncodeRows(format, profile, RowOf(DType::kFloat32, row));
  return {WordsOf(stored.at("codes")), ValuesOf(stored.at("norms")),
          DecodeToRowType(format, profile, CodecRows(format, stored), 0, 1)};
}

// |x - y|^2 / |x|^2.
double RelativeError(const std::vector<double>& x, const std::vector<double>& y) {
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += x[i] * x[i];
  }
  return error / size;
}

std::vector<double> SignsOf(const std::string& format) {
  const TurboquantGroup group(Of(format), TurboquantWriter::kMlxVlm);
  return {group.signs().begin(), group.signs().end()};
}

// The row W of formats.md through mlx-vlm 0.7.10.
TEST(Turboquant, WritesAndReadsTheBytesOfMlxVlm) {
  std::vector<double> row;
  for (int i = 0; i < 32; ++i) row.push_back(((7 * i % 32) - 12) / 8.0);
  struct Witness {
    std::vector<uint32_t> words;
    std::vector<uint64_t> first;
  };
  const std::vector<Witness> known = {
      {{0x2f198d47}, {0x00000000, 0xbf33a006, 0x00000000, 0x3f33a006}},
      {{0xd4a2612a, 0x4daa1682}, {0xbfade725, 0xbec9a0e4, 0x00000000, 0x3f58bfda}},
      {{0x5550b364, 0x480dc91b, 0x433b6c29}, {0xbfb1e1d8, 0xbe47a79b, 0x3ee8b654, 0x3f8d501c}},
      {{0x49272b89, 0xc652ab4a, 0x3658912b, 0x41c6baa9},
       {0xbfae543b, 0xbf36c2a7, 0x3da1abad, 0x3f64034f}}};
  for (int bits = 1; bits <= 4; ++bits) {
    const Witness& witness = known[static_cast<size_t>(bits) - 1];
    RoundTripped got = Through(TurboquantFormat{bits, 32, TurboquantCodebook::kMlxVlm}, row);
    EXPECT_EQ(got.words, witness.words) << bits;
    EXPECT_EQ(BitsOf(DType::kFloat16, got.norms), std::vector<uint64_t>{0x46fb}) << bits;
    got.values.resize(4);
    EXPECT_EQ(BitsOf(DType::kFloat32, got.values), witness.first) << bits;
  }
}

// Every coordinate is 1 / sqrt(d) in size, whatever the place: the error is exact.
TEST(Turboquant, OneElementHasTheErrorOfItsCell) {
  // Known to six digits; centroids and norm are exact but for their f32.
  const double known[] = {0.040223, 0.255220, 0.060846, 0.003957};
  for (int bits = 1; bits <= 4; ++bits) {
    for (const size_t place : {size_t{0}, size_t{1}, size_t{77}, size_t{127}}) {
      std::vector<double> x(128, 0.0);
      x[place] = place % 2 == 0 ? 2.0 : -0.25;
      const KvFormat format = TurboquantFormat{bits, 128};
      EXPECT_NEAR(RelativeError(x, Through(format, x).values), known[bits - 1], 1e-6) << bits;
    }
  }
}

TEST(Turboquant, TwoEqualElementsPutHalfOfTheCoordinatesOnAThreshold) {
  const double known[] = {0.508526, 0.106496, 0.032884, 0.022027};
  for (int bits = 1; bits <= 4; ++bits) {
    std::vector<double> x(128, 0.0);
    x[5] = x[100] = 1.5;
    const KvFormat format = TurboquantFormat{bits, 128};
    // The norm, 2.1213, is no f16: 2^-12 of it.
    EXPECT_NEAR(RelativeError(x, Through(format, x).values), known[bits - 1], 3e-4) << bits;
  }
}

// The worst row there is: it rotates to one coordinate.
TEST(Turboquant, ASpikeIsTheWorstRow) {
  // Known to three digits, half a unit of the last; the norm's f16 adds up to 2^-11 of it.
  const double known[] = {1.498, 0.955, 0.718, 0.597};
  for (int bits = 1; bits <= 4; ++bits) {
    const KvFormat format = TurboquantFormat{bits, 128};
    const std::vector<double> x = SignsOf(Print(format));  // norm sqrt(128), of which f16 is near
    EXPECT_NEAR(RelativeError(x, Through(format, x).values), known[bits - 1], 1e-3) << bits;
  }
}

TEST(Turboquant, RowsAtTheEdges) {
  const KvFormat format = TurboquantFormat{4, 64};
  std::vector<double> x(64, 0.0);
  RoundTripped zero = Through(format, x);
  EXPECT_EQ(zero.words, std::vector<uint32_t>(8, 0x77777777u));
  EXPECT_EQ(zero.norms, std::vector<double>{0});
  EXPECT_EQ(zero.values, x);

  // Below the floor of 1e-6 what is rotated is shorter, and so is what comes back.
  std::vector<double> regular(64);
  for (size_t i = 0; i < 64; ++i) regular[i] = std::sin(1.0 + static_cast<double>(i)) / 5.66;
  const auto scaled = [&](double by) {
    std::vector<double> row = regular;
    for (double& value : row) value *= by;
    return row;
  };
  const RoundTripped usual = Through(format, regular);
  const RoundTripped tiny = Through(format, scaled(5e-7));
  EXPECT_EQ(tiny.norms[0], 4.76837158203125e-07);
  double square = 0, usual_square = 0;
  for (size_t i = 0; i < 64; ++i) {
    square += tiny.values[i] * tiny.values[i];
    usual_square += usual.values[i] * usual.values[i];
  }
  EXPECT_NEAR(std::sqrt(square / usual_square), 2.5e-7, 0.2e-7);
  const RoundTripped less = Through(format, scaled(2e-8));
  EXPECT_EQ(less.norms[0], 0);
  EXPECT_EQ(less.values, x);

  const RoundTripped huge = Through(format, scaled(8e4));
  EXPECT_EQ(huge.norms[0], kInfinity);
  EXPECT_EQ(huge.words, usual.words);
  for (const double value : huge.values) EXPECT_TRUE(std::isinf(value));

  for (const double odd : {kNan, kInfinity}) {
    std::vector<double> row = regular;
    row[3] = odd;
    const RoundTripped stored = Through(format, row);
    EXPECT_EQ(std::isnan(stored.norms[0]), std::isnan(odd));
    EXPECT_FALSE(std::isfinite(stored.norms[0]));
    EXPECT_EQ(stored.words, std::vector<uint32_t>(8, 0u));
  }
}

// In mlx-vlm's codebook of 128 channels and 4 bits a zero coordinate lies above the middle.
TEST(Turboquant, ZeroRowsTakeTheCodeOnTheSideOfTheMiddleThreshold) {
  const auto word = [](const std::string& format, TurboquantWriter writer) {
    return Through(Of(format), std::vector<double>(128, 0.0), By(writer)).words[0];
  };
  EXPECT_EQ(word("turboquant:4:g128:f32", TurboquantWriter::kMlxVlm), 0x77777777u);
  EXPECT_EQ(word("turboquant:4:g128:mlx_vlm:f32", TurboquantWriter::kMlxVlm), 0x88888888u);
  EXPECT_EQ(word("turboquant:4:g128:vllm:plain:f32", TurboquantWriter::kVllm), 0x88888888u);
  EXPECT_EQ(word("turboquant:4:g128:vllm:plain:f32", TurboquantWriter::kMlxVlm), 0x77777777u);
}

TEST(Turboquant, CodesOfEveryWidthArePackedWithoutLoss) {
  for (int bits = 1; bits <= 5; ++bits) {
    const size_t d = 64;
    std::vector<uint32_t> words(d * static_cast<size_t>(bits) / 32);
    std::vector<uint8_t> most(d, static_cast<uint8_t>((1 << bits) - 1)), codes(d);
    PackCodes(most, bits, words);
    EXPECT_EQ(words, std::vector<uint32_t>(words.size(), 0xffffffffu)) << bits;
    UnpackCodes(words, bits, codes);
    EXPECT_EQ(codes, most) << bits;
    // All of the largest centroid rotate back to one channel: s_0 sqrt(d) c.
    const TurboquantGroup group({bits, static_cast<int>(d)}, TurboquantWriter::kMlxVlm);
    std::vector<float> values(d);
    group.Decode(most, 2.0f, values);
    const double c = static_cast<double>(group.centroids().back());
    EXPECT_NEAR(static_cast<double>(values[0]), 2 * 8 * c * static_cast<double>(group.signs()[0]),
                1e-6);
    for (size_t i = 1; i < d; ++i) EXPECT_EQ(values[i], 0.0f);
  }
}

TEST(Turboquant, RotationKeepsLengthsAndComesBack) {
  for (const int d : {32, 64, 128, 256, 512}) {
    const TurboquantGroup group({4, d}, TurboquantWriter::kMlxVlm);
    std::vector<double> y(static_cast<size_t>(d));
    for (size_t i = 0; i < y.size(); ++i) y[i] = std::cos(3.0 * static_cast<double>(i * i));
    const std::vector<double> x = y;
    Rotate<double>(group.signs(), y);
    double before = 0, after = 0;
    for (size_t i = 0; i < y.size(); ++i) before += x[i] * x[i], after += y[i] * y[i];
    EXPECT_NEAR(after / before, 1, 1e-14);
    // By the definition: H_ij = (-1)^popcount(i & j).
    double third = 0;
    for (size_t j = 0; j < y.size(); ++j) {
      const double sign = std::popcount(j & 3u) % 2 == 0 ? 1 : -1;
      third += sign * static_cast<double>(group.signs()[j]) * x[j];
    }
    EXPECT_NEAR(y[3], third / std::sqrt(d), 1e-12);
    RotateBack<double>(group.signs(), y);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-14);
  }
}

// Of the f32 butterflies beside double, as the facts bound it.
TEST(Turboquant, DecodesToWithinTheRoundingsOfF32) {
  std::mt19937_64 random(7);
  for (const TurboquantFormat& format : TurboquantFormat::All()) {
    const TurboquantGroup group(format, TurboquantWriter::kMlxVlm);
    const double levels = std::log2(static_cast<double>(group.d()));
    std::vector<uint8_t> codes(group.d());
    std::vector<float> values(group.d());
    for (int row = 0; row < 40; ++row) {
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random() >> (64 - format.bits));
      const float norm = 1.0f + static_cast<float>(row);
      group.Decode(codes, norm, values);
      std::vector<double> exact(group.d());
      for (size_t i = 0; i < exact.size(); ++i)
        exact[i] = static_cast<double>(group.centroids()[codes[i]]);
      RotateBack<double>(group.signs(), exact);
      for (size_t i = 0; i < exact.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(values[i]), exact[i] * static_cast<double>(norm),
                    8 * 0x1p-24 * static_cast<double>(norm) * levels)
            << format.Text();
      }
    }
  }
}

TEST(Turboquant, BoundHoldsInEveryRegimeTypeAndProfile) {
  BoundCheck all;
  for (const TurboquantFormat& format : TurboquantFormat::All()) {
    for (const std::string_view regime : RowRegimes()) {
      for (const TurboquantWriter writer :
           {TurboquantWriter::kMlxVlm, TurboquantWriter::kVllm, TurboquantWriter::kVllmNc}) {
        Profile profile = By(writer);
        const DType type = writer == TurboquantWriter::kVllm ? DType::kFloat16 : DType::kFloat32;
        for (const DecodeRounding decode : {DecodeRounding::kExact, DecodeRounding::kOneRounding}) {
          profile.decode = decode;
          const BoundCheck check =
              CheckBound(format, profile, GenerateRows(regime, 9, type, 3, 2 * format.group_size));
          EXPECT_EQ(check.violations, 0) << format.Text() << " " << regime << " " << Print(profile);
          all.Add(check);
        }
      }
    }
  }
  EXPECT_GT(all.judged, 100'000);
  EXPECT_GT(all.largest_ratio, 0.999);
}

TEST(Turboquant, BoundHoldsAtTheEndsOfTheNorm) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    std::vector<double> row(64);
    for (size_t i = 0; i < 64; ++i) {
      row[i] = std::ldexp(std::fmod(0.37 * static_cast<double>(i), 1.9) - 0.95, exponent);
    }
    const KvFormat format = TurboquantFormat{3, 64};
    const BoundCheck check = CheckBound(format, Profile(), RowOf(DType::kFloat32, row));
    EXPECT_EQ(check.violations, 0) << exponent;
    EXPECT_EQ(check.without_bound, exponent > 13 ? 64 : 0) << exponent;
  }
}

// Judges codes and norms of a row, one of which is changed.
class CodeJudge {
 public:
  CodeJudge(const KvFormat& format, const Profile& profile, const std::vector<double>& row)
      : inputs_{{"x", RowOf(DType::kFloat32, row)}},
        case_{CodecDirection::kEncode,          format,          DType::kFloat32, 1,
              static_cast<int64_t>(row.size()), {"gauss", 1, ""}},
        source_(MakeCodecSource(case_, profile, inputs_)),
        right_(EncodeRows(format, profile, inputs_.at("x"))) {}

  Outcome Flipped(const std::string& plane, size_t word, uint32_t bits) const {
    TensorMap got = right_;
    Tensor& tensor = got.at(plane);
    if (tensor.dtype == DType::kUInt32) {
      tensor.As<uint32_t>()[word] ^= bits;
    } else {
      tensor.As<uint16_t>()[word] ^= static_cast<uint16_t>(bits);
    }
    return Judge(*source_, MemorySink(got)).outcome;
  }
  std::vector<Alternative> Alternatives(size_t plane) const {
    return source_->Tiles(0, {})[plane].alternatives;
  }
  uint32_t Word(size_t i) const { return right_.at("codes").As<uint32_t>()[i]; }

 private:
  TensorMap inputs_;
  CodecCase case_;
  std::unique_ptr<ExpectedSource> source_;
  TensorMap right_;
};

TEST(Turboquant, ACoordinateOnAThresholdIsDecidedByTheTieRule) {
  std::vector<double> x(128, 0.0);
  x[5] = x[100] = 1.5;
  for (const TurboquantWriter writer : {TurboquantWriter::kMlxVlm, TurboquantWriter::kVllm}) {
    const CodeJudge judge(TurboquantFormat{2, 128}, By(writer), x);
    EXPECT_TRUE(judge.Alternatives(0).empty());
    EXPECT_EQ(judge.Flipped("codes", 0, 0), Outcome::kPass);
    // 01 and 10 are the codes beside 0.
    const uint32_t zero_code = writer == TurboquantWriter::kMlxVlm ? 1 : 2;
    int on_threshold = 0;
    for (size_t j = 0; j < 128; ++j) {
      const uint32_t code = judge.Word(j / 16) >> (2 * (j % 16)) & 3;
      on_threshold += code == zero_code ? 1 : 0;
      if (code == 1 || code == 2) {
        EXPECT_EQ(judge.Flipped("codes", j / 16, 3u << (2 * (j % 16))), Outcome::kFail);
      }
    }
    EXPECT_EQ(on_threshold, 64);
  }
  EXPECT_EQ(CodeJudge(TurboquantFormat{2, 128}, {}, x).Flipped("norms", 0, 1), Outcome::kFail);
}

// Rows whose coordinate 3 is brought to a threshold, and a little away from it.
TEST(Turboquant, NearAThresholdEitherCodeIsRightAndNoOther) {
  const TurboquantFormat format = {4, 128};
  const TurboquantGroup group(format, TurboquantWriter::kMlxVlm);
  std::mt19937_64 random(3);
  int open = 0, decided = 0;
  for (int row = 0; row < 60; ++row) {
    std::vector<double> y(128);
    double square = 0;
    for (double& value : y) value = std::ldexp(static_cast<double>(random() >> 12), -52) - 0.5;
    for (size_t i = 0; i < 128; ++i) square += i == 3 ? 0 : y[i] * y[i];
    const auto threshold = static_cast<size_t>(row % 15);
    const double distance = row % 2 == 0 ? 0.2 : 4;  // of the band
    const double t = static_cast<double>(group.thresholds()[threshold]) +
                     distance * kTurboquantBand / std::sqrt(128.0);
    for (size_t i = 0; i < 128; ++i) y[i] *= i == 3 ? 0 : std::sqrt((1 - t * t) / square);
    y[3] = t;
    RotateBack<double>(group.signs(), y);
    const CodeJudge judge(format, {}, y);
    const uint32_t code = judge.Word(0) >> 12 & 15;
    const uint32_t other = code == threshold ? code + 1 : code - 1;
    EXPECT_EQ(judge.Flipped("codes", 0, 0), Outcome::kPass);
    const Outcome outcome = judge.Flipped("codes", 0, (code ^ other) << 12);
    EXPECT_EQ(outcome, row % 2 == 0 ? Outcome::kPass : Outcome::kFail) << row;
    ++(row % 2 == 0 ? open : decided);
    const uint32_t beyond = code == threshold ? (code + 2) & 15 : (code - 2) & 15;
    EXPECT_EQ(judge.Flipped("codes", 0, (code ^ beyond) << 12), Outcome::kFail) << row;
  }
  EXPECT_EQ(open, 30);
  EXPECT_EQ(decided, 30);
}

// 2049 lies between the f16 2048 and 2050.
TEST(Turboquant, ANormBetweenTwoHalvesMayBeEither) {
  std::vector<double> x(64, 0.0);
  x[9] = 2049;
  const CodeJudge judge(TurboquantFormat{4, 64}, {}, x);
  EXPECT_EQ(judge.Flipped("norms", 0, 0), Outcome::kPass);
  EXPECT_EQ(judge.Flipped("norms", 0, 1), Outcome::kPass);
  EXPECT_EQ(judge.Flipped("norms", 0, 2), Outcome::kFail);
  x[9] = 2049.5;
  EXPECT_EQ(CodeJudge(TurboquantFormat{4, 64}, {}, x).Flipped("norms", 0, 3), Outcome::kFail);
}

TEST(Turboquant, ReadersOfVllmGiveCentroidsTheNormOfTheRow) {
  const KvFormat format = Of("turboquant:3:g128:vllm:plain:f32");
  const Tensor x = GenerateRows("gauss", 4, DType::kFloat32, 50, 128);
  const std::vector<double> all = ValuesOf(x);
  double plain_size = 0;
  for (int64_t row = 0; row < 50; ++row) {
    const std::vector<double> values(all.begin() + row * 128, all.begin() + (row + 1) * 128);
    const auto size = [](const RoundTripped& result) {
      double sum = 0;
      for (const double value : result.values) sum += value * value;
      return std::sqrt(sum) / result.norms[0];
    };
    EXPECT_NEAR(size(Through(format, values, By(TurboquantWriter::kVllmNc))), 1, 1e-6);
    plain_size += size(Through(format, values, By(TurboquantWriter::kVllm))) / 50;
  }
  // sqrt(1 - D).
  EXPECT_NEAR(plain_size, std::sqrt(1 - 0.034), 0.005);
}

// A wrong code shows in an element of its group: the bound is below what it would do.
TEST(Turboquant, WrongCodesShow) {
  for (int bits = 1; bits <= 5; ++bits) {
    const KvFormat format = TurboquantFormat{bits, 64};
    const Tensor x = GenerateRows("gauss", 5, DType::kFloat32, 20, 64);
    const TensorMap stored = EncodeRows(format, {}, x);
    const std::vector<double> all = ValuesOf(x);
    for (size_t row = 0; row < 20; ++row) {
      const std::vector<double> values(all.begin() + static_cast<std::ptrdiff_t>(64 * row),
                                       all.begin() + static_cast<std::ptrdiff_t>(64 * (row + 1)));
      const RowBound bound =
          RoundTripBound(format, {}, DecodeRounding::kExact, DType::kFloat32, values);
      ASSERT_LT(bound.total[7], bound.wrong_code[7]);
      for (size_t j = 0; j < 64; ++j) {
        TensorMap wrong = stored;
        const size_t bit = row * 64 * static_cast<size_t>(bits) + j * static_cast<size_t>(bits);
        wrong.at("codes").As<uint32_t>()[bit / 32] ^= 1u << bit % 32;
        const std::vector<double> y =
            DecodeToRowType(format, {}, CodecRows(format, wrong), static_cast<int64_t>(row), 1);
        bool shows = false;
        for (size_t i = 0; i < 64; ++i) {
          shows = shows || std::fabs(y[i] - values[i]) > bound.total[i];
        }
        EXPECT_TRUE(shows) << bits << " " << row << " " << j;
      }
    }
  }
}

// For a fixed rotation and normal rows the expectation of the relative error is the distortion of
// the quantiser, and that of |y|^2 is 1 - D.
TEST(Turboquant, DistortionIsThatOfItsQuantiser) {
  const double known[] = {0.3609, 0.1160, 0.0340, 0.0093};
  constexpr int64_t kRows = 2000;
  const Tensor x = GenerateRows("gauss", 21, DType::kFloat32, kRows, 128);
  const std::vector<double> all = ValuesOf(x);
  for (int bits = 1; bits <= 4; ++bits) {
    const KvFormat format = TurboquantFormat{bits, 128};
    const TensorMap stored = EncodeRows(format, {}, x);
    const std::vector<double> y = DecodeToRowType(format, {}, CodecRows(format, stored), 0, kRows);
    double sum = 0, squares = 0, kept = 0;
    for (size_t row = 0; row < kRows; ++row) {
      double error = 0, size = 0, of_y = 0;
      for (size_t i = 128 * row; i < 128 * (row + 1); ++i) {
        error += (all[i] - y[i]) * (all[i] - y[i]);
        size += all[i] * all[i];
        of_y += y[i] * y[i];
      }
      sum += error / size;
      squares += error / size * (error / size);
      kept += of_y / size;
    }
    const double mean = sum / kRows;
    const double exact = SolveLloydMax(128, bits).distortion.ToDouble();
    EXPECT_NEAR(exact, known[bits - 1], 5e-5);
    const double standard_error = std::sqrt((squares / kRows - mean * mean) / kRows);
    EXPECT_LE(std::fabs(mean - exact), 5 * standard_error) << bits;
    EXPECT_LT(5 * standard_error, 0.04 * exact) << "blind";
    EXPECT_NEAR(kept / kRows, 1 - exact, 0.005) << bits;
  }
}

// A GPU's butterflies have another order: under decode=exact its rows pass, under a rounding of MLX
// they do not; a wrong basis does not under either.
TEST(Turboquant, TheOrderOfADecodersSumsIsOpenWhereNoneIsNamed) {
  for (const char* text : {"turboquant:4:g128:f32", "turboquant:3:g64:s1:bf16"}) {
    const KvFormat format = Of(text);
    const int64_t dim = BlockOf(format);
    const CodecCase c = {CodecDirection::kDecode, format, RowDType(format), 20, dim,
                         {"gauss", 1, ""}};
    const TensorMap stored =
        EncodeRows(format, {}, GenerateRows("gauss", 6, RowDType(format), 20, dim));
    const TurboquantGroup group(Of(text), TurboquantWriter::kMlxVlm);
    const EncodedRows rows = CodecRows(format, stored);
    const std::vector<double> norms = ValuesOf(stored.at("norms"));
    std::vector<uint8_t> codes(group.d());
    std::vector<double> in_other_order, in_other_basis;
    const std::vector<uint32_t> words = WordsOf(stored.at("codes"));
    const size_t width = words.size() / 20;
    for (size_t row = 0; row < 20; ++row) {
      UnpackCodes(std::span(words).subspan(row * width, width), Of(text).bits, codes);
      std::vector<float> y;
      for (const uint8_t code : codes) y.push_back(group.centroids()[code]);
      // Strides from d / 2 down.
      for (size_t stride = y.size() / 2; stride > 0; stride /= 2) {
        for (size_t i = 0; i < y.size(); ++i) {
          if ((i & stride) != 0) continue;
          const float low = y[i], high = y[i + stride];
          y[i] = low + high;
          y[i + stride] = low - high;
        }
      }
      for (size_t i = 0; i < y.size(); ++i) {
        y[i] = y[i] * RotationScale<float>(y.size()) * static_cast<float>(norms[row]);
        in_other_basis.push_back(static_cast<double>(y[i]));
        in_other_order.push_back(static_cast<double>(y[i] * group.signs()[i]));
      }
    }
    const auto judged = [&](DecodeRounding decode, std::vector<double> values) {
      Profile profile;
      profile.decode = decode;
      RoundAll(values, RowDType(format));
      Tensor y(RowDType(format), {{"", 20}, {"", dim}});
      EncodeFrom(values, y.dtype, y.bytes.data());
      return Judge(*MakeCodecSource(c, profile, stored), MemorySink(TensorMap{{"y", y}})).outcome;
    };
    EXPECT_EQ(judged(DecodeRounding::kExact, in_other_order), Outcome::kPass) << text;
    EXPECT_EQ(judged(DecodeRounding::kExact, in_other_basis), Outcome::kFail) << text;
    // bf16 hides most of it.
    if (RowDType(format) == DType::kFloat32) {
      EXPECT_EQ(judged(DecodeRounding::kTwoRoundings, in_other_order), Outcome::kFail) << text;
    }
    const std::vector<double> in_order = DecodeToRowType(format, {}, rows, 0, 20);
    EXPECT_EQ(judged(DecodeRounding::kTwoRoundings, in_order), Outcome::kPass) << text;
    EXPECT_EQ(judged(DecodeRounding::kExact, in_order), Outcome::kPass) << text;
  }
}

// The words that numpy's signs of seeds 0 and 1 make (random_signs_test.cc).
TEST(Turboquant, SignsMayBeGiven) {
  EXPECT_EQ(SignsOf("turboquant:4:g32:w26eb0add:f32"), SignsOf("turboquant:4:g32:f32"));
  EXPECT_EQ(SignsOf("turboquant:4:g64:wc5be444e5d98147a:f32"), SignsOf("turboquant:4:g64:s1:f32"));
  EXPECT_NE(SignsOf("turboquant:4:g64:w5d98147ac5be444e:f32"), SignsOf("turboquant:4:g64:s1:f32"));
  EXPECT_EQ(Of("turboquant:4:g32:exact:w0000000a:f16").Text(), "turboquant:4:g32:w0000000a:f16");
  EXPECT_EQ(Of("turboquant:4:g32:w0000000a:f16").WithRowType(DType::kFloat32).Text(),
            "turboquant:4:g32:w0000000a:f32");
  TurboquantFormat more = Of("turboquant:4:g32:w0000000a:f16");
  more.signs[1] = 1;
  EXPECT_FALSE(more.Exists());
  TurboquantFormat unnamed = Of("turboquant:4:g32:f16");
  unnamed.signs[0] = 1;
  EXPECT_FALSE(unnamed.Exists());
}

TEST(Turboquant, TextsSayWhatTheyRefuse) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      ParseKvFormat(WholeLine(text));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("turboquant:4:g96:f32").find("power of two"), std::string::npos);
  EXPECT_NE(message("turboquant:4:g1024:f32").find("g512"), std::string::npos);
  EXPECT_NE(message("turboquant:6:g64:f32").find("1 to 5"), std::string::npos);
  EXPECT_NE(message("turboquant:5:g64:mlx_vlm:f32").find("1 to 4 bits"), std::string::npos);
  EXPECT_NE(message("turboquant:4:g64:f64").find("f32, f16, bf16"), std::string::npos);
  EXPECT_NE(message("turboquant:4:g64:f32:s1").find("comes last"), std::string::npos);
  EXPECT_NE(message("turboquant:4:g64:wabc:f32").find("2 words of 8"), std::string::npos);
  EXPECT_NE(message("turboquant:4:g64").find("type of its rows"), std::string::npos);
  EXPECT_THROW(CheckHeadDim(Of("turboquant:4:g64:f32"), 96, ""), Error);
  EXPECT_NO_THROW(CheckHeadDim(Of("turboquant:4:g64:f32"), 192, ""));
  EXPECT_EQ(Of("turboquant:4:g64:exact:s0:f16").Text(), "turboquant:4:g64:f16");
  EXPECT_EQ(Of("turboquant:4:g64:s98:f16").seed, 98);
}

// Codebooks of libraries are near the optimum, and none of them is it.
TEST(TurboquantCodebook, OfLibrariesDiffersFromTheExactOne) {
  const auto largest = [](const TurboquantFormat& format) {
    const auto exact = LloydMaxCodebook(format.group_size, format.bits);
    const auto other = TurboquantCentroids(format);
    double difference = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_TRUE(i == 0 || other[i - 1] < other[i]) << format.Text();
      difference = std::max(difference, std::fabs(static_cast<double>(exact[i] - other[i])));
    }
    return difference * std::sqrt(static_cast<double>(format.group_size));
  };
  for (const int d : {32, 64, 128, 256}) {
    for (int bits = 1; bits <= 4; ++bits) {
      const double of_mlx = largest({bits, d, TurboquantCodebook::kMlxVlm});
      EXPECT_LT(of_mlx, bits == 4 ? 1.9e-2 : 2.5e-3) << d << " " << bits;
      EXPECT_EQ(of_mlx == 0, d == 32 && bits == 1) << d << " " << bits;
      if (d < 64 || bits < 3) continue;
      const double of_vllm = largest({bits, d, TurboquantCodebook::kVllm});
      EXPECT_LT(of_vllm, 0.1) << d << " " << bits;
      EXPECT_GT(of_vllm, 0) << d << " " << bits;
    }
  }
}

TEST(TurboquantCodebook, ThresholdsAreMidpoints) {
  const std::vector<float> centroids = {-3, -1, 0.5, 2};
  EXPECT_EQ(ThresholdsBetween(centroids), (std::vector<float>{-2, -0.25, 1.25}));
  // mlx-vlm's middle threshold at (128, 4) is negative: a zero coordinate lies above it.
  const auto of_mlx = ThresholdsBetween(TurboquantCentroids({4, 128, TurboquantCodebook::kMlxVlm}));
  EXPECT_LT(of_mlx[7], 0.0f);
  EXPECT_EQ(ThresholdsBetween(TurboquantCentroids({4, 128}))[7], 0.0f);
}

}  // namespace
}  // namespace kvcheck
