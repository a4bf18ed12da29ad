// Which tensors of GOT stand for one of GOLD as codes, scales and biases, and which say of what
// format they are: all others keep their own pairs, so that nothing is left out.

#include "tools/compare/triplets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

namespace kvcheck {
namespace {

using Texts = std::vector<std::string>;

// "NAME" is a float tensor of one axis, "NAME:u32" of another type, "NAME:i32()" without axes.
FileIndex IndexOf(const Texts& tensors) {
  FileIndex index;
  for (const std::string& text : tensors) {
    const size_t colon = std::min(text.find(':'), text.size());
    ObjectRecord record;
    record.is_dataset = true;
    if (!text.ends_with("()")) record.shape = Shape::Unnamed({2});
    if (colon < text.size()) record.dtype = ParseDType(text.substr(colon + 1, 3)).value();
    index.objects["/" + text.substr(0, colon)] = record;
  }
  return index;
}

// "NAME=CODES,SCALES,BIASES", "NAME says group size" or "NAME says bits"; others are left out.
Texts Taken(const Texts& gold, const Texts& got, const std::set<std::string>& coded = {},
            const KvFormat& format = AffineFormat{}) {
  SelectionOptions options;
  options.format_of = [&](const std::string& name) -> std::optional<KvFormat> {
    if (!coded.empty() && coded.count(name) == 0) return std::nullopt;
    return format;
  };
  Texts texts;
  size_t names = 0;
  for (const TensorPair& pair : SelectTensors(IndexOf(gold), IndexOf(got), options).pairs) {
    names += (pair.got.empty() ? 0 : 1) + pair.triplet.size();
    if (pair.says) {
      EXPECT_FALSE(pair.in_gold) << pair.name;
      texts.push_back(pair.name +
                      (*pair.says == FormatField::kBits ? " says bits" : " says group size"));
    }
    if (pair.triplet.empty()) continue;
    EXPECT_EQ(pair.got, "") << pair.name;
    texts.push_back(fmt::format("{}={}", pair.name, fmt::join(pair.triplet, ",")));
  }
  EXPECT_EQ(names, got.size()) << "every tensor of GOT is in exactly one pair";
  return texts;
}

TEST(Triplets, ThePlaneOfAGgmlFormatIsFoundByItsNameOrItsType) {
  const KvFormat q8_0 = Q8_0Format{};
  EXPECT_EQ(Taken({"k"}, {"k_blocks"}, {}, q8_0), (Texts{"/k=/k_blocks"}));
  EXPECT_EQ(Taken({"k"}, {"k.blocks"}, {}, q8_0), (Texts{"/k=/k.blocks"}));
  EXPECT_EQ(Taken({"k"}, {"k:u8"}, {}, q8_0), (Texts{"/k=/k"}));
  EXPECT_EQ(Taken({"k"}, {"k"}, {}, q8_0), Texts());
  EXPECT_EQ(Taken({"k"}, {"k:u8"}), Texts());
}

TEST(Triplets, AreFoundUnderEverySpellingAndOnlyWhole) {
  EXPECT_EQ(Taken({"k"}, {"k_codes", "k_scales", "k_biases"}),
            (Texts{"/k=/k_codes,/k_scales,/k_biases"}));
  EXPECT_EQ(Taken({"k"}, {"k.codes", "k.scales", "k.biases"}),
            (Texts{"/k=/k.codes,/k.scales,/k.biases"}));
  EXPECT_EQ(Taken({"k"}, {"k/codes", "k/scales", "k/biases"}),
            (Texts{"/k=/k/codes,/k/scales,/k/biases"}));
  EXPECT_EQ(Taken({"0.1"}, {"0.1.0", "0.1.1", "0.1.2"}), (Texts{"/0.1=/0.1.0,/0.1.1,/0.1.2"}));
  EXPECT_EQ(Taken({"k"}, {"k_codes", "k_scales"}), Texts());
  EXPECT_EQ(Taken({"k"}, {"k_codes", "k.scales", "k/biases"}), Texts());
  // Where GOT has the tensor itself, or GOLD the three.
  EXPECT_EQ(Taken({"k"}, {"k", "k_codes", "k_scales", "k_biases"}), Texts());
  EXPECT_EQ(Taken({"k", "k_scales"}, {"k_codes", "k_scales", "k_biases"}), Texts());
  // Only by a codec rule, and only of numbers that a format keeps.
  EXPECT_EQ(Taken({"k"}, {"k_codes", "k_scales", "k_biases"}, {"/v"}), Texts());
  EXPECT_EQ(Taken({"k:i32"}, {"k_codes", "k_scales", "k_biases"}), Texts());
}

// What is said of GOLD's /k where GOT has these tensors.
std::string LacksOf(const KvFormat& format, const Texts& got, const Texts& gold = {"k"}) {
  SelectionOptions options;
  options.format_of = [&](const std::string&) -> std::optional<KvFormat> { return format; };
  for (const TensorPair& pair : SelectTensors(IndexOf(gold), IndexOf(got), options).pairs) {
    if (pair.name == "/" + gold[0].substr(0, gold[0].find(':'))) return pair.lacks;
  }
  return "no such pair";
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Of every format and plane: the one that is not there is named, and those that are.
TEST(Triplets, APlaneThatIsMissingIsNamedWithThoseThatAreThere) {
  int64_t names = 0;
  std::set<std::string> seen;
  for (const KvFormat& format : AllKvFormats()) {
    const Texts planes = PlaneNames(format);
    if (IsPlain(format)) continue;
    for (const std::string& gone : planes) {
      Texts got = {"other"};
      for (const std::string& plane : planes) {
        if (plane != gone) got.push_back("k." + plane);
      }
      const std::string lacks = LacksOf(format, got);
      const char separator = planes.size() == 1 ? '_' : '.';
      EXPECT_TRUE(lacks.starts_with(Print(format) + " keeps it as ")) << lacks;
      EXPECT_TRUE(Has(lacks, fmt::format("missing is /k{}{} ({})", separator, gone, gone)))
          << lacks;
      for (const std::string& plane : planes) {
        const size_t there = lacks.find("/k." + plane);
        if (plane != gone) {
          EXPECT_LT(there, lacks.find("; missing is ")) << lacks;
        }
        ++names;
      }
      EXPECT_TRUE(Has(lacks, "--map")) << lacks;
      seen.insert(gone);
    }
    // All there: nothing is said.
    Texts whole;
    for (const std::string& plane : planes) whole.push_back("k_" + plane);
    EXPECT_EQ(LacksOf(format, whole), "") << Print(format);
  }
  EXPECT_GT(names, 1000);
  EXPECT_EQ(seen, (std::set<std::string>{"biases", "blocks", "cells", "codes", "norms",
                                         "residual_norms", "scales", "zeros"}));
}

TEST(Triplets, WhatIsThereUnderOtherNamesIsNamedBesideWhatIsMissing) {
  const KvFormat affine = AffineFormat{};
  std::string lacks = LacksOf(affine, {"k_codes", "k_scale", "k.biases", "kept_bias"});
  EXPECT_TRUE(Has(lacks,
                  "there is /k_codes; missing are /k_scales (scales), /k_biases (biases); "
                  "beside them is /k.biases, /k_scale:"))
      << lacks;
  lacks = LacksOf(affine, {"k.0", "k.1"});
  EXPECT_TRUE(Has(lacks, "there are /k.0, /k.1; missing is /k.2 (biases):")) << lacks;
  lacks = LacksOf(affine, {"other"});
  EXPECT_TRUE(Has(lacks,
                  "there are none; missing are /k_codes (codes), /k_scales (scales), "
                  "/k_biases (biases):"))
      << lacks;
  // A layer of MLX has its codes under GOLD's name.
  lacks = LacksOf(affine, {"up.weight:u32", "up.scales"}, {"up.weight"});
  EXPECT_TRUE(Has(lacks, "there are /up.weight, /up.scales; missing is /up.biases (biases):"))
      << lacks;
  lacks = LacksOf(affine, {"k_codes", "k_biases", "k_scales"}, {"k", "k_scales"});
  EXPECT_TRUE(Has(lacks, "/k_scales (scales, a tensor of its own: GOLD has it too)")) << lacks;
  // Codes under GOLD's own name are no dequantised tensor; real numbers are.
  EXPECT_TRUE(Has(LacksOf(affine, {"k:u8"}), "there are none")) << lacks;
  EXPECT_EQ(LacksOf(affine, {"k"}), "");
  EXPECT_EQ(LacksOf(affine, {"k_codes"}, {"k:i32"}), "");
}

TEST(Triplets, CodesOfAQuantizedLayerHaveTheNameOfItsWeight) {
  EXPECT_EQ(Taken({"up.weight", "norm.weight"},
                  {"up.weight:u32", "up.scales", "up.biases", "norm.weight"}),
            (Texts{"/up.weight=/up.weight,/up.scales,/up.biases"}));
  EXPECT_EQ(Taken({"up/weight"}, {"up/weight:u32", "up/scales", "up/biases"}),
            (Texts{"/up/weight=/up/weight,/up/scales,/up/biases"}));
  // Not quantized in GOT, or quantized in GOLD already.
  EXPECT_EQ(Taken({"up.weight"}, {"up.weight", "up.scales", "up.biases"}), Texts());
  EXPECT_EQ(Taken({"up.weight:u32"}, {"up.weight:u32", "up.scales", "up.biases"}), Texts());
  EXPECT_EQ(Taken({"up.weight", "up.scales"}, {"up.weight:u32", "up.scales", "up.biases"}),
            Texts());
}

TEST(Triplets, GroupSizeAndBitsOfMlxLmStandBesideThem) {
  Texts got = {"0.0.0", "0.0.1", "0.0.2", "0.1.0", "0.1.1", "0.1.2", "0.3:i32()", "0.4:i32()"};
  const Texts triplets = {"/0.0=/0.0.0,/0.0.1,/0.0.2", "/0.1=/0.1.0,/0.1.1,/0.1.2"};
  Texts all = triplets;
  all.insert(all.end(), {"/0.3 says group size", "/0.4 says bits"});
  EXPECT_EQ(Taken({"0.0", "0.1"}, got), all);
  // Not where GOLD has them too, where they are no numbers, or where no triplets are.
  EXPECT_EQ(Taken({"0.0", "0.1", "0.3:i32()", "0.4:i32()"}, got), triplets);
  got[6] = "0.3:i32";
  got[7] = "0.4:f32()";
  EXPECT_EQ(Taken({"0.0", "0.1"}, got), triplets);
  EXPECT_EQ(Taken({"0.0", "0.1"}, {"0.0", "0.1", "0.3:i32()", "0.4:i32()"}), Texts());
  // Nor for the rings of mlx-lm, whose N.3 and N.4 mean something else.
  EXPECT_EQ(Taken({"0.0", "0.1"}, {"0.0", "0.1.0", "0.1.1", "0.1.2", "0.3:i32()", "0.4:i32()"}),
            (Texts{"/0.1=/0.1.0,/0.1.1,/0.1.2"}));
}

TEST(Triplets, RuleNamesTheNumbersOfItsFormatAlone) {
  const auto stated = [](const std::string& rule, FormatField field) {
    return StatedByRule(ParseToleranceRule(WholeLine(rule)), field);
  };
  EXPECT_EQ(stated("codec:affine:4:g64", FormatField::kBits), 4);
  EXPECT_EQ(stated("codec:affine:4:g64", FormatField::kGroupSize), 64);
  EXPECT_EQ(stated("codec:bf16", FormatField::kBits), std::nullopt);
  EXPECT_EQ(stated("exact", FormatField::kBits), std::nullopt);
}

}  // namespace
}  // namespace kvcheck
