// Drawn prefix cases: a pure function of seed and index, legal, and within what a space has.

#include "fuzz/draw_prefix.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "reference/spec/case.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

TEST(DrawPrefix, IsAPureFunctionOfSeedAndIndex) {
  const PrefixDrawer one;
  const PrefixDrawer other;
  std::set<std::string> texts;
  for (uint64_t index = 0; index < 200; ++index) {
    const std::string text = Print(one.Draw(1, index));
    EXPECT_EQ(text, Print(other.Draw(1, index)));
    EXPECT_EQ(text, Print(ParseCase(text)));
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 200u);
  EXPECT_NE(Print(one.Draw(1, 0)), Print(one.Draw(2, 0)));
}

// What a seed means: FNV-1a over the lines of 1,000 cases.
TEST(DrawPrefix, SeedsMeanTheSameCases) {
  const PrefixDrawer drawer;
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint64_t index = 0; index < 1000; ++index) {
    for (const char c : Print(drawer.Draw(1, index)) + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }
  EXPECT_EQ(hash, 0x9d0d103460fc158au);
}

TEST(DrawPrefix, StaysWithinASpace) {
  std::vector<PrefixSpace> spaces(4);
  spaces[0].blocks = {16};
  spaces[0].disk = spaces[0].windows = spaces[0].quantizes = false;
  spaces[1].identity = 1u << 1;
  spaces[1].operations = 0;
  for (const PrefixOpKind kind :
       {PrefixOpKind::kOpen, PrefixOpKind::kWrite, PrefixOpKind::kClose, PrefixOpKind::kRead}) {
    spaces[1].operations |= 1u << static_cast<int>(kind);
  }
  spaces[2].least_tokens = 20;
  spaces[2].x = {DType::kBFloat16};
  spaces[2].same_dims = true;
  spaces[2].tiers = spaces[2].entries = false;
  spaces[3].all = false;
  spaces[3].damages = 1u << static_cast<int>(FileDamage::kCut);
  spaces[3].formats = {"affine:8:*"};
  spaces[3].max_operations = 12;
  for (const PrefixSpace& space : spaces) {
    PrefixDrawOptions options;
    options.spaces = {space};
    const PrefixDrawer drawer(options);
    for (uint64_t index = 0; index < 300; ++index) {
      const PrefixCase c = drawer.Draw(5, index);
      EXPECT_TRUE(space.HasCase(c)) << Print(c);
      EXPECT_LE(std::ssize(c.ops), space.max_operations > 0 ? space.max_operations : 50);
    }
  }
}

TEST(DrawPrefix, RefusesPatternsThatMatchNothing) {
  PrefixDrawOptions options;
  options.formats = {"q8_0", "nothing*"};
  EXPECT_THROW(PrefixDrawer{options}, Error);
}

}  // namespace
}  // namespace kvcheck
