// What a seed means: the texts of what is drawn, as hashes. They hold for every compiler, and stay
// as long as nobody decides that seeds mean other cases from now on.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/draw_attention.h"
#include "fuzz/draw_codec.h"
#include "fuzz/draw_trace.h"

namespace kvcheck {
namespace {

constexpr uint64_t kHashedCases = 1000;

// FNV-1a over lines.
class Lines {
 public:
  void Add(std::string_view line) {
    for (const char c : line) Byte(static_cast<unsigned char>(c));
    Byte('\n');
  }
  uint64_t hash() const { return hash_; }

 private:
  void Byte(uint64_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3u; }
  uint64_t hash_ = 0xcbf29ce484222325u;
};

uint64_t HashOfTraces(uint64_t seed, const TraceDrawOptions& options = {}) {
  Lines lines;
  TraceDrawer drawer(options);
  for (uint64_t index = 0; index < kHashedCases; ++index)
    lines.Add(Print(drawer.Draw(seed, index)));
  return lines.hash();
}

TEST(DrawnHashes, Traces) {
  EXPECT_EQ(HashOfTraces(1), 0xc401f8a77ffcc438u);
  TraceDrawOptions batches;
  batches.layouts = {"ring*", "chunk"};
  batches.formats = {"f16", "affine:4:*"};
  batches.rows = SpaceRows::kBatch;
  batches.max_operations = 33;
  EXPECT_EQ(HashOfTraces(7, batches), 0xddbf5c1d4c2fb6a2u);
  TraceDrawOptions single;
  single.rows = SpaceRows::kSingle;
  EXPECT_EQ(HashOfTraces(2, single), 0xee9ca56ca766eeedu);
}

TEST(DrawnHashes, Attention) {
  Lines lines;
  for (uint64_t seed = 0; seed < kHashedCases; ++seed) {
    const DrawnAttention drawn = DrawAttention(seed, {});
    lines.Add(Print(Case(drawn.c)));
    lines.Add(Print(drawn.plan));
    lines.Add(Print(drawn.profile));
    lines.Add(drawn.structure);
  }
  EXPECT_EQ(lines.hash(), 0xc10fa27addecd91du);
}

TEST(DrawnHashes, Codecs) {
  Lines lines;
  const CodecDrawer drawer;
  for (uint64_t index = 0; index < kHashedCases; ++index)
    lines.Add(Print(Case(drawer.Draw(1, index))));
  EXPECT_EQ(lines.hash(), 0x0d728e68c6dd93f7u);
}

}  // namespace
}  // namespace kvcheck
