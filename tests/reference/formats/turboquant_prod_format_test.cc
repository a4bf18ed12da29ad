// The inner-product codec as a storage format: its planes, rows that are known by hand, what is
// open, and the bound of a round trip.

#include "reference/spec/turboquant_prod_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/turboquant_prod.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/judge/judge.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

bool Bit(const std::vector<uint32_t>& words, size_t first_word, size_t bit) {
  return (words[first_word + bit / 32] >> bit % 32 & 1) != 0;
}

std::vector<double> Row(const std::vector<double>& values, size_t row, size_t dim) {
  return {values.begin() + static_cast<std::ptrdiff_t>(row * dim),
          values.begin() + static_cast<std::ptrdiff_t>((row + 1) * dim)};
}

// Of rows of two groups: the words of the MSE codec with a bit less, then the signs, which are
// those of S (u - Q(u)) computed here; norms likewise.
TEST(TurboquantProdFormat, StoresCodesThenSigns) {
  int64_t signs_seen = 0, plus = 0;
  for (const TurboquantProdFormat& format : TurboquantProdFormat::All()) {
    const auto d = static_cast<size_t>(format.group_size);
    const Tensor x = GenerateRows("gauss", 3, format.row_type, 2, static_cast<int64_t>(2 * d));
    const TensorMap stored = EncodeRows(format, {}, x);
    const std::vector<uint32_t> words = WordsOf(stored.at("codes"));
    const std::vector<double> norms = ValuesOf(stored.at("norms"));
    const std::vector<double> residual_norms = ValuesOf(stored.at("residual_norms"));
    ASSERT_EQ(words.size() * 32, 4 * d * static_cast<size_t>(format.bits)) << format.Text();
    ASSERT_EQ(norms.size(), 4u);
    ASSERT_EQ(residual_norms.size(), 4u);
    // The MSE codec's rows, and its values over their norms.
    const size_t code_words = 2 * d * static_cast<size_t>(format.bits - 1) / 32;
    std::vector<double> read(4 * d, 0.0);
    if (const auto codes = format.Codes()) {
      TensorMap part = EncodeRows(*codes, {}, x);
      EXPECT_EQ(ValuesOf(part.at("norms")), norms) << format.Text();
      for (size_t row = 0; row < 2; ++row) {
        for (size_t word = 0; word < code_words; ++word) {
          EXPECT_EQ(words[row * 2 * d * static_cast<size_t>(format.bits) / 32 + word],
                    WordsOf(part.at("codes"))[row * code_words + word]);
        }
      }
      for (size_t g = 0; g < 4; ++g) part.at("norms").As<uint16_t>()[g] = 0x3c00;
      const DecodedRows unit = DecodeRows(*codes, {}, CodecRows(*codes, part), 0, 2);
      read = unit.hi;
    }
    const auto projection = TurboquantProjection(format.seed, format.group_size);
    const std::vector<double> values = ValuesOf(x);
    for (size_t g = 0; g < 4; ++g) {
      std::vector<double> r = Row(values, g, d);
      double square = 0, residual_square = 0;
      for (const double value : r) square += value * value;
      for (size_t i = 0; i < d; ++i) {
        r[i] = r[i] / std::sqrt(square) - read[g * d + i];
        residual_square += r[i] * r[i];
      }
      const double spacing = std::exp2(std::floor(std::log2(std::sqrt(residual_square))) - 10);
      EXPECT_NEAR(residual_norms[g], std::sqrt(residual_square), spacing) << format.Text();
      const size_t first_sign =
          g / 2 * (2 * d * static_cast<size_t>(format.bits) / 32) + code_words + g % 2 * d / 32;
      for (size_t j = 0; j < d; ++j) {
        double sum = 0, size = 0;
        for (size_t i = 0; i < d; ++i) {
          const auto s = static_cast<double>((*projection)[j * d + i]);
          sum += s * r[i];
          size += std::fabs(s);
        }
        // Elements of r are below 1, and f32 but for three roundings of numbers below 1.
        if (std::fabs(sum) <= size * 3 * 0x1p-24) continue;
        EXPECT_EQ(Bit(words, first_sign, j), sum > 0) << format.Text() << " " << g << " " << j;
        ++signs_seen;
        plus += sum > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(signs_seen, 1500);
  EXPECT_NEAR(static_cast<double>(plus) / static_cast<double>(signs_seen), 0.5,
              5 * 0.5 / std::sqrt(static_cast<double>(signs_seen)));
}

// Channels that are rotated to coordinates of one magnitude: Q(u) = c sqrt(d) u, and the residual
// is what is left of that channel (turboquant.md, section 2.2: its square by bits).
TEST(TurboquantProdFormat, OfOneElementTheSignsAreAColumn) {
  constexpr double kLeft[] = {1, 0.040223, 0.255220, 0.060846, 0.003957};
  constexpr size_t kDim = 128, kChannel = 37;
  const auto projection = TurboquantProjection(0, kDim);
  for (int bits = 1; bits <= 5; ++bits) {
    const KvFormat format = TurboquantProdFormat{bits, kDim};
    std::vector<double> row(kDim, 0.0);
    row[kChannel] = -3;
    const TensorMap stored = EncodeRows(format, {}, RowOf(DType::kFloat32, row));
    EXPECT_EQ(ValuesOf(stored.at("norms"))[0], 3);
    const double residual_norm = ValuesOf(stored.at("residual_norms"))[0];
    // A rounding to f16, and the six digits of the table.
    EXPECT_NEAR(residual_norm, std::sqrt(kLeft[bits - 1]), 0x1p-11 * residual_norm + 1e-5) << bits;
    // Only c sqrt(d) of 2 bits is beyond 1: the residual of u = -e points the other way.
    const std::vector<double> read = DecodeToRowType(format, {}, CodecRows(format, stored), 0, 1);
    const std::vector<uint32_t> words = WordsOf(stored.at("codes"));
    const size_t first_sign = kDim * static_cast<size_t>(bits - 1) / 32;
    int same = 0;
    for (size_t j = 0; j < kDim; ++j) {
      const bool negative = (*projection)[j * kDim + kChannel] < 0;
      same += Bit(words, first_sign, j) == negative ? 1 : 0;
    }
    EXPECT_TRUE(same == 0 || same == kDim) << bits << " " << same;
    if (bits == 1) {
      EXPECT_EQ(same, static_cast<int>(kDim));
    }
    // Of E |sum| over the column, sqrt(2/pi) d, a deviation of sqrt((1 - 2/pi) d).
    const double found = read[kChannel] / -3;
    const double spread = residual_norm * std::sqrt(std::numbers::pi / 2) *
                          std::sqrt((1 - 2 / std::numbers::pi) / kDim);
    EXPECT_NEAR(found, 1, 5 * spread) << bits;
  }
}

TEST(TurboquantProdFormat, OfZerosNothingIsRead) {
  constexpr size_t kDim = 64;
  const auto projection = TurboquantProjection(0, kDim);
  const Tensor zeros(DType::kFloat32, {{"", 1}, {"", kDim}});
  for (int bits = 1; bits <= 5; ++bits) {
    const KvFormat format = TurboquantProdFormat{bits, kDim};
    const TensorMap stored = EncodeRows(format, {}, zeros);
    const std::vector<uint32_t> words = WordsOf(stored.at("codes"));
    const size_t first_sign = kDim * static_cast<size_t>(bits - 1) / 32;
    EXPECT_EQ(ValuesOf(stored.at("norms"))[0], 0);
    for (const double value : DecodeToRowType(format, {}, CodecRows(format, stored), 0, 1)) {
      EXPECT_EQ(value, 0);
    }
    const double residual_norm = ValuesOf(stored.at("residual_norms"))[0];
    if (bits == 1) {
      EXPECT_EQ(residual_norm, 0);
      EXPECT_EQ(words, std::vector<uint32_t>(2, 0xffffffff));
      continue;
    }
    // Every code is the one below 0, which rotates back to the first channel alone.
    const TurboquantGroup group(*std::get<TurboquantProdFormat>(format).Codes(),
                                TurboquantWriter::kMlxVlm);
    const double c = static_cast<double>(group.centroids()[group.centroids().size() / 2]);
    EXPECT_NEAR(residual_norm, 8 * c, 0x1p-10 * residual_norm) << bits;
    for (size_t j = 0; j < kDim; ++j) {
      const bool positive = (*projection)[j * kDim] * group.signs()[0] >= 0;
      EXPECT_EQ(Bit(words, first_sign, j), positive) << bits << " " << j;
    }
  }
}

TEST(TurboquantProdFormat, BoundHoldsInEveryRegimeAndType) {
  ExpectBoundInEveryRegime(TurboquantProdFormat::All());
}

// One wrong code or one wrong sign leaves the bound in some element of its group.
TEST(TurboquantProdFormat, WrongCodesAndSignsShow) {
  constexpr size_t kDim = 64, kRows = 6;
  for (int bits = 1; bits <= 5; ++bits) {
    const KvFormat format = TurboquantProdFormat{bits, kDim};
    const Tensor x = GenerateRows("gauss", 5, DType::kFloat32, kRows, kDim);
    const TensorMap stored = EncodeRows(format, {}, x);
    const std::vector<double> all = ValuesOf(x);
    for (size_t row = 0; row < kRows; ++row) {
      const std::vector<double> values = Row(all, row, kDim);
      const RowBound bound =
          RoundTripBound(format, {}, DecodeRounding::kExact, DType::kFloat32, values);
      ASSERT_LT(bound.total[7], bound.wrong_code[7]) << bits << " " << row;
      const auto width = static_cast<size_t>(bits);
      for (size_t bit = 0; bit < kDim * width; ++bit) {
        const bool is_code = bit < kDim * (width - 1);
        if (is_code && bit % (width - 1) != 0) continue;  // the lowest bit of each code
        TensorMap wrong = stored;
        const size_t at = row * kDim * width + bit;
        wrong.at("codes").As<uint32_t>()[at / 32] ^= 1u << at % 32;
        const std::vector<double> y =
            DecodeToRowType(format, {}, CodecRows(format, wrong), static_cast<int64_t>(row), 1);
        bool shows = false;
        for (size_t i = 0; i < kDim; ++i) {
          shows = shows || std::fabs(y[i] - values[i]) > bound.total[i];
        }
        EXPECT_TRUE(shows) << bits << " " << row << " " << bit;
      }
    }
  }
}

// Judged beside the format's own planes, of which some are changed.
template <typename Change>
Outcome Judged(const KvFormat& format, const Tensor& x, Change change) {
  const CodecCase c = {CodecDirection::kEncode, format,          x.dtype, x.shape.RowCount(),
                       x.shape.RowLength(),     {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", x}};
  const auto source = MakeCodecSource(c, {}, inputs);
  TensorMap got = EncodeRows(format, {}, x);
  change(&got);
  return Judge(*source, MemorySink(got)).outcome;
}

// A row that is orthogonal to one row of the projection, but for the rounding of its elements to
// f32: that sign alone is open.
TEST(TurboquantProdFormat, SignsNearZeroAreOpen) {
  constexpr size_t kDim = 32, kOpen = 11;
  const KvFormat format = TurboquantProdFormat{1, kDim};
  const auto projection = TurboquantProjection(0, kDim);
  std::vector<double> row = ValuesOf(GenerateRows("gauss", 8, DType::kFloat32, 1, kDim));
  double dot = 0, square = 0;
  for (size_t i = 0; i < kDim; ++i) {
    const auto s = static_cast<double>((*projection)[kOpen * kDim + i]);
    dot += s * row[i];
    square += s * s;
  }
  for (size_t i = 0; i < kDim; ++i) {
    row[i] -= dot / square * static_cast<double>((*projection)[kOpen * kDim + i]);
  }
  const Tensor x = RowOf(DType::kFloat32, row);
  for (size_t j = 0; j < kDim; ++j) {
    const Outcome outcome = Judged(
        format, x, [&](TensorMap* stored) { stored->at("codes").As<uint32_t>()[0] ^= 1u << j; });
    EXPECT_EQ(outcome, j == kOpen ? Outcome::kPass : Outcome::kFail) << j;
  }
}

// A row of which one coordinate lies on a threshold, but for the rounding of its elements to f32:
// either code is right, and the signs are those of the residual that the stored one leaves.
TEST(TurboquantProdFormat, SignsFitTheCodeThatIsStored) {
  constexpr size_t kDim = 64, kOpen = 21, kBits = 2;
  const KvFormat format = FormatNamed("turboquant:prod:3:g64:f32");
  const TurboquantProd prod(std::get<TurboquantProdFormat>(format));
  std::vector<double> y = ValuesOf(GenerateRows("gauss", 8, DType::kFloat32, 1, kDim));
  double square = 0;
  for (size_t j = 0; j < kDim; ++j) square += j == kOpen ? 0 : y[j] * y[j];
  const double t = static_cast<double>(prod.mse()->thresholds()[2]);
  y[kOpen] = t * std::sqrt(square / (1 - t * t));
  RotateBack<double>(prod.mse()->signs(), std::span(y));
  const Tensor x = RowOf(DType::kFloat32, y);
  const std::vector<float> given(x.As<float>(), x.As<float>() + kDim);
  // Planes with a code in that place, and the signs that follow from it.
  TurboquantProdGroup own = prod.Encode(given);
  ASSERT_TRUE(own.codes[kOpen] == 2 || own.codes[kOpen] == 3);
  const auto planes = [&](uint8_t code, uint8_t signs_of) {
    std::vector<uint8_t> codes = own.codes;
    codes[kOpen] = signs_of;
    std::vector<uint8_t> signs;
    for (const double sum : prod.Project(prod.Residual(given, own.norm, codes))) {
      signs.push_back(sum >= 0 ? 1 : 0);
    }
    codes[kOpen] = code;
    TensorMap stored = EncodeRows(format, {}, x);
    uint32_t* words = stored.at("codes").As<uint32_t>();
    constexpr size_t kCodeWords = kDim * kBits / 32;
    PackCodes(codes, kBits, std::span(words, kCodeWords));
    PackCodes(signs, 1, std::span(words + kCodeWords, kDim / 32));
    return stored;
  };
  const auto outcome = [&](uint8_t code, uint8_t signs_of) {
    return Judged(format, x, [&](TensorMap* got) { *got = planes(code, signs_of); });
  };
  EXPECT_EQ(outcome(2, 2), Outcome::kPass);
  EXPECT_EQ(outcome(3, 3), Outcome::kPass);
  EXPECT_EQ(outcome(2, 3), Outcome::kFail);
  EXPECT_EQ(outcome(3, 2), Outcome::kFail);
  // No code of the band: it fails by itself, and the signs are those of the right one.
  const CodecCase c = {CodecDirection::kEncode, format, DType::kFloat32, 1, kDim, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", x}};
  const Verdict wrong =
      Judge(*MakeCodecSource(c, {}, inputs), MemorySink(planes(0, own.codes[kOpen])));
  EXPECT_EQ(wrong.outputs[0].counts.failed, 1);
}

// Of 2 bits and one element the residual norm is far from the middle of two f16, and so is it from
// being 0; each group of a row has its own.
TEST(TurboquantProdFormat, NormsOfResidualsAreOfTheirGroup) {
  const KvFormat format = FormatNamed("turboquant:prod:2:g64:f32");
  std::vector<double> row(128, 0.0);
  row[3] = 5;
  row[70] = -2;
  row[71] = -1;
  const Tensor x = RowOf(DType::kFloat32, row);
  EXPECT_EQ(Judged(format, x, [](TensorMap*) {}), Outcome::kPass);
  for (const size_t group : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(
        Judged(format, x,
               [&](TensorMap* stored) { stored->at("residual_norms").As<uint16_t>()[group] ^= 2; }),
        Outcome::kFail);
  }
  EXPECT_EQ(Judged(format, x,
                   [&](TensorMap* stored) {
                     uint16_t* norms = stored->at("residual_norms").As<uint16_t>();
                     std::swap(norms[0], norms[1]);
                   }),
            Outcome::kFail);
  // 2 bits of K's seed are not those of V's.
  const TensorMap of_v = EncodeRows(FormatNamed("turboquant:prod:2:g64:s1:f32"), {}, x);
  EXPECT_EQ(Judged(format, x, [&](TensorMap* stored) { *stored = of_v; }), Outcome::kFail);
}

// decode=exact names no order of sums: what another order gives is right, and a change of an
// element by more is not.
TEST(TurboquantProdFormat, DecodersSumInAnyOrder) {
  const KvFormat format = FormatNamed("turboquant:prod:3:g64:f32");
  const Tensor x = GenerateRows("gauss", 4, DType::kFloat32, 3, 64);
  const TensorMap stored = EncodeRows(format, {}, x);
  const CodecCase c = {CodecDirection::kDecode, format, DType::kFloat32, 3, 64, {"gauss", 1, ""}};
  const std::vector<double> values = DecodeToRowType(format, {}, CodecRows(format, stored), 0, 3);
  // Fifty roundings of the largest element, less than half of the norm: the bound has twice 70
  // kappa R sum |S| of signs alone, and that is above a third of the norm.
  double largest = 0;
  for (const double value : values) largest = std::fmax(largest, std::fabs(value));
  const auto judged = [&](const Profile& profile, double change) {
    const auto source = MakeCodecSource(c, profile, stored);
    Tensor y(DType::kFloat32, {{"", 3}, {"", 64}});
    std::vector<double> changed = values;
    changed[77] += change;
    EncodeFrom(changed, DType::kFloat32, y.bytes.data());
    return Judge(*source, MemorySink(TensorMap{{"y", y}})).outcome;
  };
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  EXPECT_EQ(judged({}, 50 * largest * 0x1p-24), Outcome::kPass);
  EXPECT_EQ(judged({}, 0.01 * largest), Outcome::kFail);
  EXPECT_EQ(judged(two, 0), Outcome::kPass);
  EXPECT_EQ(judged(two, 50 * largest * 0x1p-24), Outcome::kFail);
}

TEST(TurboquantProdFormat, TextsNameTheCodec) {
  const std::string text = "turboquant:prod:4:g128:mlx_vlm:s1:bf16";
  EXPECT_EQ(Print(FormatNamed(text)), text);
  EXPECT_EQ(Print(FormatNamed("turboquant:prod:1:g32:exact:s0:f32")), "turboquant:prod:1:g32:f32");
  const auto format = std::get<TurboquantProdFormat>(FormatNamed(text));
  EXPECT_EQ(format.Codes()->Text(), "turboquant:3:g128:mlx_vlm:s1:bf16");
  EXPECT_EQ(KindOf(format), "turboquant:prod:4");
  EXPECT_FALSE(std::get<TurboquantProdFormat>(FormatNamed("turboquant:prod:1:g32:f32")).Codes());
  EXPECT_EQ(Print(FormatNamed("turboquant:prod:5:g64:vllm:f16")), "turboquant:prod:5:g64:vllm:f16");
  for (const char* wrong :
       {"turboquant:prod:4:g64", "turboquant:prod:0:g64:f32", "turboquant:prod:6:g64:f32",
        "turboquant:prod:3.5:g64:f32", "turboquant:prod:4:64:f32", "turboquant:prod:4:g48:f32",
        "turboquant:prod:4:g16:f32", "turboquant:prod:4:g1024:f32",
        "turboquant:prod:1:g64:mlx_vlm:f32", "turboquant:prod:4:g512:mlx_vlm:f32",
        "turboquant:prod:3:g64:vllm:f32", "turboquant:prod:4:g64:plain:f32",
        "turboquant:prod:4:g64:s2147483648:f32", "turboquant:prod:4:g64:f64",
        "turboquant:prod:4:g64:f32:f32", "hadamard:64:turboquant:prod:4:g64:f32"}) {
    EXPECT_THROW(FormatNamed(wrong), Error) << wrong;
  }
  EXPECT_FALSE(Exists(TurboquantProdFormat{4, 96}));
  EXPECT_FALSE(Exists(TurboquantProdFormat{4, 64, TurboquantCodebook::kExact, -1}));
  EXPECT_FALSE(Exists(TurboquantProdFormat{1, 64, TurboquantCodebook::kMlxVlm}));
}

}  // namespace
}  // namespace kvcheck
