// Errors of formats: the figures that are published for N(0, 1), and what a format that loses
// nothing has.

#include "tools/measure/format_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "reference/spec/error.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_text.h"
#include "tools/measure/format_choice.h"
#include "tools/measure/format_plot.h"

namespace kvcheck {
namespace {

FormatBenchQuestion Asked(const std::vector<std::string>& formats, int64_t tokens = 300,
                          DType type = DType::kFloat32, int64_t dim = 128) {
  FormatBenchQuestion question;
  question.rows.tokens = tokens;
  question.rows.k = DrawRows(kNormalData, 1, "k", type, tokens, dim);
  question.rows.v = DrawRows(kNormalData, 2, "v", type, tokens, dim);
  question.formats =
      ChooseFormats(formats, dim, [tokens](int64_t group) { return group <= tokens; });
  question.queries = 3;
  question.profile = OptimizedCodecProfile();
  question.rounds = 0;
  return question;
}

// What is reported of a run that is cut short.
TEST(FormatBench, TellsAfterEachStepWhatWasMeasured) {
  FormatBenchQuestion question = Asked({"f16", "q8_0"}, 8);
  question.rows.heads = 2;
  question.rows.tokens = 4;
  question.rounds = 1;
  std::vector<std::vector<FormatFigures>> told;
  const auto tell = [&](std::vector<FormatFigures> figures) { told.push_back(std::move(figures)); };
  const std::vector<FormatFigures> whole = MeasureFormats(question, {}, nullptr, tell);
  // Two formats, two heads of each, and the times of each.
  ASSERT_EQ(told.size(), 6U);
  EXPECT_EQ(told[0].size(), 1U);
  EXPECT_EQ(told[1].size(), 2U);
  EXPECT_EQ(told[1][1].heads, 1);
  EXPECT_EQ(2 * told[1][1].rows.elements, whole[1].rows.elements);
  EXPECT_EQ(told[3][1].heads, 2);
  EXPECT_FALSE(told[3][1].speed);
  EXPECT_TRUE(told[4][0].speed);
  EXPECT_FALSE(told[4][1].speed);
  EXPECT_THAT(FormatBenchText(question, told[1], kNormalData, true),
              testing::StartsWith("INTERRUPTED, this is partial: 2 of 2 formats, errors of 2 of 4 "
                                  "heads of them, 0 timed\n"));
  int looks = 0;
  told.clear();
  EXPECT_THROW(MeasureFormats(question, Cancel([&] { return ++looks > 2; }), nullptr, tell),
               Cancelled);
  EXPECT_EQ(told.size(), 2U);
}

// Mean |error| of the affine codes of MLX on N(0, 1), g64 (reference/formats/formats.md, section
// A), to the digits that are published.
TEST(FormatBench, ReproducesPublishedErrors) {
  struct Known {
    const char* format;
    DType type;
    double mean;
    double half_digit;
  };
  const Known known[] = {
      {"affine:8:g64:f32", DType::kFloat32, 0.00455, 0.000005},
      {"affine:4:g64:f32", DType::kFloat32, 0.0771, 0.00005},
      {"affine:2:g64:f32", DType::kFloat32, 0.3310, 0.00005},
      {"affine:8:g64:bf16", DType::kBFloat16, 0.00656, 0.000005},
      {"affine:8:g64:f16", DType::kFloat16, 0.00459, 0.000005},
  };
  for (const Known& k : known) {
    // Means of rows of their own, which say how sure the mean of all is.
    std::vector<double> means;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      FormatBenchQuestion question = Asked({k.format}, 200, k.type);
      question.rows.k = DrawRows(kNormalData, 10 + seed, "k", k.type, 200, 128);
      question.rows.v = DrawRows(kNormalData, 10 + seed, "v", k.type, 200, 128);
      means.push_back(MeasureFormats(question)[0].rows.Mean());
    }
    double mean = 0, square = 0;
    for (const double m : means) mean += m / 10;
    for (const double m : means) square += (m - mean) * (m - mean);
    const double standard_error = std::sqrt(square / 9 / 10);
    EXPECT_LE(standard_error, k.mean / 200) << k.format;  // else nothing would be seen
    EXPECT_LE(std::fabs(mean - k.mean), k.half_digit + 4 * standard_error) << k.format << mean;
  }
}

TEST(FormatBench, CompressionHasItsBase) {
  const std::vector<FormatFigures> figures = MeasureFormats(
      Asked({"affine:8:g64:f32", "affine:4:g64:f32", "affine:8:g64:f16", "affine:4:g64:f16"}, 2));
  EXPECT_EQ(figures[0].CompressionToF32(), 32 / 9.0);
  EXPECT_EQ(figures[1].CompressionToF32(), 6.4);
  EXPECT_EQ(figures[2].CompressionTo16Bits(), 16 / 8.5);
  EXPECT_EQ(figures[3].CompressionTo16Bits(), 16 / 4.5);
}

TEST(FormatBench, PlainRowsOfTheirTypeLoseNothing) {
  for (const FormatFigures& figures : MeasureFormats(Asked({"f32", "f16"}, 129, DType::kFloat16))) {
    EXPECT_EQ(figures.rows.Largest(), 0) << Print(figures.format);
    EXPECT_EQ(figures.rows.elements, 2 * 129 * 128);
    EXPECT_EQ(figures.attention.Largest(), 0) << Print(figures.format);
    EXPECT_EQ(figures.attention.elements, 3 * 128);
  }
}

// Channels that are large in every token have a scale of their own.
TEST(FormatBench, GroupsOfTokensKeepLargeChannelsApart) {
  FormatBenchQuestion question = Asked({"channel:4:g32:f32", "affine:4:g32:f32"}, 64);
  question.rows.k = question.rows.v = DrawRows(kOutlierData, 1, "k", DType::kFloat32, 64, 128);
  const std::vector<FormatFigures> figures = MeasureFormats(question);
  EXPECT_EQ(figures[0].bits, 6);
  EXPECT_EQ(figures[0].bits, figures[1].bits);
  EXPECT_LT(figures[0].rows.Mean(), figures[1].rows.Mean());
  EXPECT_LT(figures[0].attention.Nmse(), figures[1].attention.Nmse());
}

// Tokens of which there is no whole group are as they were given: their errors are 0.
TEST(FormatBench, TokensBesideWholeGroupsLoseNothing) {
  const FormatFigures whole = MeasureFormats(Asked({"channel:4:g32:f32"}, 160))[0];
  const FormatFigures more = MeasureFormats(Asked({"channel:4:g32:f32"}, 187))[0];
  EXPECT_EQ(more.rows.elements, 2 * 187 * 128);
  EXPECT_DOUBLE_EQ(more.rows.Mean() * 187, whole.rows.Mean() * 160);
  EXPECT_EQ(more.rows.Largest(), whole.rows.Largest());
  EXPECT_GT(whole.rows.Mean(), 0);
}

// A page moves scales, and nothing else.
TEST(FormatBench, PagesLoseWhatTheirTokensLose) {
  for (const int64_t tokens : {int64_t{40}, int64_t{43}}) {
    const std::vector<FormatFigures> figures =
        MeasureFormats(Asked({"nvfp4:bf16", "nvfp4:swizzled:bf16"}, tokens, DType::kBFloat16));
    // The same terms, added up in other runs of tokens.
    const double mean = figures[0].rows.Mean();
    EXPECT_NEAR(figures[1].rows.Mean(), mean, mean * 0x1p-53 * 2 * 43 * 128);
    EXPECT_EQ(figures[1].attention.Nmse(), figures[0].attention.Nmse());
    EXPECT_GT(figures[0].rows.Mean(), 0);
  }
}

TEST(FormatBench, FewerBitsLoseMore) {
  const std::vector<FormatFigures> figures = MeasureFormats(
      Asked({"affine:8:g64:f16", "affine:6:g64:f16", "affine:4:g64:f16", "affine:2:g64:f16"}));
  for (size_t i = 1; i < figures.size(); ++i) {
    EXPECT_GT(figures[i].rows.Mean(), figures[i - 1].rows.Mean());
    EXPECT_GT(figures[i].rows.Nmse(), figures[i - 1].rows.Nmse());
    EXPECT_GT(figures[i].attention.Nmse(), figures[i - 1].attention.Nmse());
  }
}

TEST(FormatBench, ErrorsAreThoseOfTheProfile) {
  FormatBenchQuestion question = Asked({"affine:8:g64:bf16"}, 64, DType::kBFloat16);
  const double two = MeasureFormats(question)[0].rows.Mean();
  question.profile = ParseProfile("decode=exact");
  const std::vector<FormatFigures> exact = MeasureFormats(question);
  EXPECT_LT(exact[0].rows.Mean(), two);
}

TEST(FormatBench, SpeedIsThatOfTheProfileOrNone) {
  FormatBenchQuestion question = Asked({"affine:8:g64:bf16", "q8_0"}, 4);
  question.rounds = 1;
  for (const FormatFigures& figures : MeasureFormats(question)) {
    ASSERT_TRUE(figures.speed.has_value());
    EXPECT_GT(figures.speed->encode_ns, 0);
    EXPECT_GT(figures.speed->decode_ns, 0);
  }
  question.profile = ParseProfile("decode=two_roundings encode=mlx_gpu");
  const std::vector<FormatFigures> others = MeasureFormats(question);
  EXPECT_FALSE(others[0].speed.has_value());
  EXPECT_TRUE(others[1].speed.has_value());
}

TEST(FormatBench, FiguresAreTheSameForAnyNumberOfThreads) {
  FormatBenchQuestion question = Asked({}, 300);
  const std::vector<FormatFigures> one = MeasureFormats(question);
  const std::string json = FormatBenchJson(question, one, "normal");
  const std::string text = FormatBenchText(question, one, "normal");
  question.threads = 3;
  const std::vector<FormatFigures> three = MeasureFormats(question);
  EXPECT_EQ(FormatBenchJson(question, three, "normal"), json);
  EXPECT_EQ(FormatBenchText(question, three, "normal"), text);
}

TEST(FormatBench, HeadsAttendByThemselves) {
  // Two heads of the rows of one: the same errors of rows, and outputs of other queries.
  FormatBenchQuestion question = Asked({"affine:4:g64:f32"}, 40);
  const std::vector<FormatFigures> one = MeasureFormats(question);
  for (Tensor* tensor : {&question.rows.k, &question.rows.v}) {
    const Tensor first = *tensor;
    *tensor = Tensor(first.dtype, {{"", 2}, {"", 40}, {"", 128}});
    std::copy(first.bytes.begin(), first.bytes.end(), tensor->bytes.begin());
    std::copy(first.bytes.begin(), first.bytes.end(),
              tensor->bytes.begin() + static_cast<std::ptrdiff_t>(first.bytes.size()));
  }
  question.rows.heads = 2;
  const std::vector<FormatFigures> two = MeasureFormats(question);
  EXPECT_EQ(two[0].rows.elements, 2 * one[0].rows.elements);
  EXPECT_EQ(two[0].rows.Largest(), one[0].rows.Largest());
  EXPECT_EQ(two[0].attention.elements, 2 * one[0].attention.elements);
  EXPECT_NE(two[0].attention.Nmse(), one[0].attention.Nmse());
}

TEST(FormatBench, ValuesThatAreNoNumbersAreCounted) {
  FormatBenchQuestion question = Asked({"f8e4m3fn"}, 4);
  question.rows.k.As<float>()[5] = 1e6F;  // NaN under fp8_overflow=nan
  const FormatFigures lost = MeasureFormats(question)[0];
  EXPECT_EQ(lost.rows.not_finite, 1);
  EXPECT_EQ(lost.rows.Mean(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(lost.rows.Largest(), std::numeric_limits<double>::infinity());
  const auto json = nlohmann::json::parse(FormatBenchJson(question, std::vector{lost}, "file"));
  EXPECT_EQ(json["formats"][0]["rows"]["mean"], "inf");
  EXPECT_EQ(json["formats"][0]["rows"]["not_finite"], 1);
}

TEST(FormatBench, JsonHasTheFieldsOfItsSchema) {
  const FormatBenchQuestion question = Asked({"q4_0"}, 8);
  const auto json =
      nlohmann::json::parse(FormatBenchJson(question, MeasureFormats(question), "normal"));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["command"], "bench formats");
  for (const char* field : {"tool", "data", "seed", "dtype", "heads", "tokens", "k_dim", "v_dim",
                            "queries", "profile"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  const auto& format = json["formats"].at(0);
  EXPECT_EQ(format["format"], "q4_0");
  EXPECT_EQ(format["kind"], "q4_0");
  EXPECT_EQ(format["bits_per_element"], 4.5);
  EXPECT_EQ(format["compression_of_f32"], 32 / 4.5);
  EXPECT_EQ(format["compression_of_16_bits"], 16 / 4.5);
  for (const char* part : {"rows", "attention"}) {
    for (const char* field : {"elements", "not_finite", "mean", "max", "nmse"}) {
      EXPECT_TRUE(format[part].contains(field)) << part << field;
    }
  }
  EXPECT_TRUE(format["speed"].is_null());
}

TEST(FormatBench, PlotHasAPointForEachFormatInEachPanel) {
  const FormatBenchQuestion question = Asked({"f32", "affine:4:g64:f16", "q4_0"}, 8);
  pugi::xml_document svg;
  ASSERT_TRUE(svg.load_string(FormatPlot(question, MeasureFormats(question), "a<b & c").c_str()));
  EXPECT_EQ(svg.select_nodes("//g").size(), 2);
  EXPECT_EQ(svg.select_nodes("//circle").size(), 6);
  for (const char* format : {"f32", "affine:4:g64:f16", "q4_0"}) {
    const std::string path = std::string("//text[text()='") + format + "']";
    EXPECT_EQ(svg.select_nodes(path.c_str()).size(), 2) << format;
  }
}

}  // namespace
}  // namespace kvcheck
