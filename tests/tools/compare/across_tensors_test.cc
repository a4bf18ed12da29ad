#include "tools/compare/across_tensors.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace kvcheck {
namespace {

using Lines = std::vector<std::string>;

// "/layers/I/keys" and "/layers/I/values" of `layers` layers.
std::vector<TensorOutcome> Cache(int layers, const std::function<bool(int, bool)>& fails) {
  std::vector<TensorOutcome> outcomes;
  for (int i = 0; i < layers; ++i) {
    for (const bool values : {false, true}) {
      outcomes.push_back(
          {"/layers/" + std::to_string(i) + (values ? "/values" : "/keys"), fails(i, values)});
    }
  }
  return outcomes;
}

TEST(AcrossTensors, LayersThatFailAreSaidInOneSentence) {
  const std::pair<std::function<bool(int, bool)>, Lines> cases[] = {
      {[](int i, bool) { return i >= 12; }, {"all layers from 12 on"}},
      {[](int i, bool v) { return i >= 12 && (v || i == 12); }, {"only layers from 12 on"}},
      {[](int i, bool) { return i < 3; }, {"all layers up to 2"}},
      {[](int i, bool) { return i >= 9 && i <= 11; }, {"all layers 9 to 11"}},
      {[](int i, bool) { return i == 7; }, {"only layer 7"}},
      {[](int i, bool) { return i % 2 == 1; }, {"every second layer, from 1"}},
      {[](int i, bool) { return i % 3 == 0; }, {"every third layer, from 0"}},
      {[](int i, bool) { return i % 5 == 2; }, {"every 5th layer, from 2"}},
      {[](int i, bool) { return i == 1 || i == 2 || i == 9; }, {"only layers 1, 2, 9"}},
      // Every second one of a part is a list, not "every second".
      {[](int i, bool) { return i == 4 || i == 6 || i == 8; }, {"only layers 4, 6, 8"}},
      {[](int i, bool v) { return v && i >= 0; }, {"only values, never keys"}},
      {[](int i, bool v) { return v && i >= 12; },
       {"only values, never keys", "all layers from 12 on"}},
      {[](int i, bool v) { return v && i == 31; }, {}},  // one tensor, which is named anyway
      {[](int, bool) { return true; }, {}},
      {[](int, bool) { return false; }, {}},
      // No pattern: more than a short list, in no order.
      {[](int i, bool) { return (i * i) % 7 == 2; }, {}},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(DescribeAcrossTensors(Cache(32, cases[i].first)), cases[i].second) << "case " << i;
  }
}

TEST(AcrossTensors, OtherSpellingsOfNamesAreUnderstood) {
  std::vector<TensorOutcome> torch = {{"/lm_head.weight", false}, {"/model.embed.weight", false}};
  std::vector<TensorOutcome> mlx;
  std::vector<TensorOutcome> joined;
  for (int i = 0; i < 24; ++i) {
    const std::string n = std::to_string(i);
    for (const char* p : {"q", "k", "v", "o"}) {
      torch.push_back(
          {"/model.layers." + n + ".self_attn." + p + "_proj.weight", *p == 'v' && i >= 20});
    }
    torch.push_back({"/model.layers." + n + ".mlp.up_proj.weight", false});
    mlx.push_back({"/" + n + ".0", i != 5});
    mlx.push_back({"/" + n + ".1", false});
    joined.push_back({"/k_cache_" + n, i == 3 || i == 4});
    joined.push_back({"/v_cache_" + n, false});
  }
  EXPECT_EQ(DescribeAcrossTensors(torch),
            (Lines{"only v_proj, never k_proj, o_proj, q_proj", "all layers from 20 on"}));
  EXPECT_EQ(DescribeAcrossTensors(mlx), (Lines{"only .0, never .1"}));
  EXPECT_EQ(DescribeAcrossTensors(joined),
            (Lines{"only k_cache_, never v_cache_", "all k_caches 3 to 4"}));
}

TEST(AcrossTensors, AnIndexThatNothingNamesIsPlacedByItsLevel) {
  const auto fail_from_3 = [](const std::string& before, const std::vector<std::string>& after) {
    std::vector<TensorOutcome> outcomes;
    for (int i = 0; i < 6; ++i) {
      for (const std::string& end : after) {
        outcomes.push_back({before + std::to_string(i) + end, i >= 3});
      }
    }
    return DescribeAcrossTensors(outcomes);
  };
  EXPECT_EQ(fail_from_3("/a.", {".b"}),
            (Lines{"all indices from 3 on at level 2 of the name 'a.#.b'"}));
  EXPECT_EQ(fail_from_3("/x/a7/", {".b", ".c"}),
            (Lines{"all indices from 3 on at level 3 of the name 'x/a#/#*'"}));
  EXPECT_EQ(fail_from_3("/", {".0"}),
            (Lines{"all indices from 3 on at level 1 of the name '#.#'"}));
  EXPECT_EQ(fail_from_3("/h", {""}), (Lines{"all indices from 3 on at level 1 of the name 'h#'"}));
  // What is counted may also stand before the number, in one word with others.
  EXPECT_EQ(fail_from_3("/enc.decoder_block_", {".w"}), (Lines{"all decoder_blocks from 3 on"}));
  EXPECT_EQ(fail_from_3("/model.layers.2.experts.", {".w"}), (Lines{"all experts from 3 on"}));
}

TEST(AcrossTensors, SentenceIsLeftOutWhenAnotherTensorFailsToo) {
  std::vector<TensorOutcome> outcomes = Cache(32, [](int i, bool) { return i >= 12; });
  outcomes.push_back({"/lm_head", true});
  EXPECT_EQ(DescribeAcrossTensors(outcomes), Lines());
  outcomes.back().failed = false;
  EXPECT_EQ(DescribeAcrossTensors(outcomes),
            (Lines{"only layers, never lm_head", "all layers from 12 on"}));
}

// Files as maps from names to contents.
using Contents = std::map<std::string, int>;

Lines OrderOf(const Contents& gold, const Contents& got, int* full_reads = nullptr,
              bool samples_agree = false) {
  std::vector<TensorOutcome> outcomes;
  for (const auto& [name, content] : gold) outcomes.push_back({name, got.at(name) != content});
  return DescribeOrder(
      outcomes,
      [&](const std::string& a, const std::string& b) {
        return samples_agree || gold.at(a) == got.at(b);
      },
      [&](const std::string& a, const std::string& b) {
        if (full_reads != nullptr) ++*full_reads;
        return gold.at(a) == got.at(b);
      });
}

Contents Numbered(int layers, int shift) {
  Contents contents;
  for (int i = 0; i < layers; ++i) {
    contents["/layers/" + std::to_string(i) + "/keys"] = 2 * (i + shift);
    contents["/layers/" + std::to_string(i) + "/values"] = 2 * (i + shift) + 1;
  }
  return contents;
}

TEST(TensorOrder, ShiftedLayersAreRecognised) {
  EXPECT_EQ(OrderOf(Numbered(12, 0), Numbered(12, 1)),
            (Lines{"layer i of GOT equals layer i+1 of GOLD, bit for bit (22 tensors)"}));
  EXPECT_EQ(OrderOf(Numbered(12, 1), Numbered(12, 0)),
            (Lines{"layer i of GOT equals layer i-1 of GOLD, bit for bit (22 tensors)"}));
  EXPECT_EQ(OrderOf(Numbered(12, 0), Numbered(12, 0)), Lines());
  EXPECT_EQ(OrderOf(Numbered(12, 0), Numbered(12, 2)), Lines());
}

TEST(TensorOrder, ShiftOfAPartIsRecognisedAndOneUnlikeTensorRefutesIt) {
  const Contents gold = Numbered(12, 0);
  Contents got = gold;
  // Layer 4 was skipped, everything behind it moved up.
  for (int i = 4; i < 12; ++i) {
    for (const char* kind : {"/keys", "/values"}) {
      got["/layers/" + std::to_string(i) + kind] =
          i < 11 ? gold.at("/layers/" + std::to_string(i + 1) + kind) : -1;
    }
  }
  EXPECT_EQ(OrderOf(gold, got),
            (Lines{"layer i of GOT equals layer i+1 of GOLD, bit for bit (14 tensors)"}));
  got["/layers/6/keys"] = -2;
  EXPECT_EQ(OrderOf(gold, got), Lines());
}

TEST(TensorOrder, ExchangedKeysAndValuesAreRecognised) {
  const Contents gold = Numbered(5, 0);
  Contents got;
  for (const auto& [name, content] : gold) got[name] = content ^ 1;
  EXPECT_EQ(OrderOf(gold, got), (Lines{"keys and values are swapped, bit for bit (10 tensors)"}));
  got["/layers/3/keys"] = -1;
  EXPECT_EQ(OrderOf(gold, got), Lines());
}

TEST(TensorOrder, PaddedNumbersAreFound) {
  Contents gold;
  Contents got;
  for (int i = 0; i < 12; ++i) {
    const std::string name = std::string("/layer_") + (i < 10 ? "0" : "") + std::to_string(i);
    gold[name] = i;
    got[name] = i + 1;
  }
  EXPECT_EQ(OrderOf(gold, got),
            (Lines{"layer i of GOT equals layer i+1 of GOLD, bit for bit (11 tensors)"}));
}

TEST(TensorOrder, AnIndexThatNothingNamesIsPlacedByItsLevel) {
  Contents gold;
  Contents got;
  for (int i = 0; i < 6; ++i) {
    gold["/h." + std::to_string(i) + ".k"] = i;
    got["/h." + std::to_string(i) + ".k"] = i + 1;
  }
  EXPECT_EQ(OrderOf(gold, got), (Lines{"index i of GOT equals index i+1 of GOLD at level 2 of the "
                                       "name 'h.#.k', bit for bit (5 tensors)"}));
}

TEST(TensorOrder, SampleRefusesBeforeWholeTensorsAreRead) {
  int reads = 0;
  EXPECT_EQ(OrderOf(Numbered(12, 0), Numbered(12, 7), &reads), Lines());
  EXPECT_EQ(reads, 0);
  // A sample that agrees proves nothing.
  EXPECT_EQ(OrderOf(Numbered(12, 0), Numbered(12, 7), &reads, true), Lines());
  EXPECT_GT(reads, 0);
}

}  // namespace
}  // namespace kvcheck
