// In token-major layouts the heads of a head group run in lockstep: what is done once for all of
// them, as transposing scales, gives the bits of each head alone.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/attention/attention.h"
#include "tests/optimized/attention/stored_sequence.h"

namespace kvcheck {
namespace {

// K and V, tokens and heads all have scales of their own. With two threads eight heads are two head
// groups, so that one does not begin at the first head.
TEST(AttentionHeadGroup, GivesTheBitsOfEachHeadAlone) {
  const struct {
    const char* k;
    const char* v;
    int64_t k_dim, v_dim;
  } operands[] = {{"affine:8:g64:f16", "affine:8:g64:f16", 128, 128},
                  {"affine:4:g32:bf16", "affine:8:g32:f32", 64, 32},
                  {"affine:8:g64:f16", "affine:4:g32:f16", 128, 128},
                  {"affine:4:g64:f32", "f16", 64, 40},
                  {"f32", "affine:3:g32:f16", 24, 64}};
  for (const auto& of : operands) {
    for (const int64_t kv_heads : {4, 5, 8, 12}) {
      for (const int64_t tokens : {65, 200}) {
        for (const int64_t queries : {1, 20}) {
          Sequence sequence;
          sequence.shape.query_heads = 2 * kv_heads;
          sequence.shape.kv_heads = kv_heads;
          sequence.shape.k_dim = of.k_dim;
          sequence.shape.v_dim = of.v_dim;
          sequence.shape.k = ParseKvFormat(WholeLine(of.k));
          sequence.shape.v = ParseKvFormat(WholeLine(of.v));
          sequence.tokens = tokens;
          sequence.queries = queries;
          sequence.shape.portable = tokens == 65;
          const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
          for (const int threads : {1, 2, 3}) {
            for (const Place place : {Place::kTokenMajor, Place::kRing}) {
              ASSERT_EQ(Solve(sequence, place, threads), want)
                  << threads << " threads, " << Name(place) << " " << Describe(sequence);
            }
          }
        }
      }
    }
  }
}

TEST(AttentionHeadGroup, ReadsNoKeysOfUniformQueries) {
  for (const char* format : {"affine:8:g64:f16", "affine:3:g32:f16", "f16"}) {
    for (const int64_t queries : {1, 20}) {
      Sequence sequence;
      sequence.shape.query_heads = 8;
      sequence.shape.kv_heads = 4;
      sequence.shape.k_dim = sequence.shape.v_dim = 128;
      sequence.shape.k = sequence.shape.v = ParseKvFormat(WholeLine(format));
      sequence.tokens = 130;
      sequence.queries = queries;
      const auto solve = [&](Place place, bool uniform, bool hide_keys) {
        Asked asked(sequence, place);
        optimized::SequenceQueries question = asked.Queries();
        std::vector<optimized::VisibleKeys> visible(question.visible, question.visible + queries);
        for (optimized::VisibleKeys& keys : visible) {
          keys.end = sequence.tokens - 1;
          keys.uniform = uniform;
        }
        question.visible = visible.data();
        const GuardedBytes page(1);
        const std::byte* hidden = page.data() + 1;  // may not be read
        if (hide_keys) question.k.codes = question.k.scales = question.k.biases = hidden;
        optimized::Attention attention;
        attention.Run(sequence.shape, {&question, 1});
        return asked.Answers();
      };
      const auto want = solve(Place::kHeadMajor, true, false);
      EXPECT_EQ(solve(Place::kTokenMajor, true, true), want) << Describe(sequence);
      EXPECT_NE(solve(Place::kTokenMajor, false, false), want) << Describe(sequence);
    }
  }
}

}  // namespace
}  // namespace kvcheck
