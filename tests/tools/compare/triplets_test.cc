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
