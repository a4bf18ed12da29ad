// Rows are batch-invariant over contexts of several splits (split-KV): in every layout and batch,
// with the queries asked apart, on any number of threads, on every instruction set; decode and
// prefill, elements and codes.

#include <gtest/gtest.h>

#include "tests/optimized/attention/stored_sequence.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::Attention;
using optimized::SequenceQueries;

struct Length {
  int64_t tokens;
  int64_t queries;
  const char* format;
};
constexpr int64_t kSplit = optimized::kSplitTokens;
constexpr Length kLengths[] = {
    {kSplit - 1, 1, "affine:4:g32:f16"},   {kSplit, 1, "f16"},
    {kSplit + 1, 1, "affine:3:g32:f32"},   {kSplit + 1, 19, "bf16"},
    {2 * kSplit + 64 + 1, 1, "f16"},       {2 * kSplit + 64 + 1, 19, "affine:4:g32:bf16"},
    {kSplit + 65, 19, "affine:8:g32:f16"},
};

Sequence Of(const Length& length, bool portable) {
  Sequence sequence;
  sequence.shape.query_heads = 4;
  sequence.shape.k_dim = sequence.shape.v_dim = 32;
  sequence.shape.k = sequence.shape.v = ParseKvFormat(WholeLine(length.format));
  sequence.shape.portable = portable;
  sequence.tokens = length.tokens;
  sequence.queries = length.queries;
  sequence.sinks = true;
  return sequence;
}

std::vector<uint32_t> AnswersOf(const Sequence& sequence, Asked* asked, int threads) {
  Attention attention(threads);
  const SequenceQueries queries = asked->Queries();
  attention.Run(sequence.shape, {&queries, 1});
  return asked->Answers();
}

TEST(AttentionSplitKv, GivesTheSameBitsInEveryLayoutOnEveryInstructionSet) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  EXPECT_GT(targets.size(), 1u);
  for (const Length& length : kLengths) {
    Sequence sequence = Of(length, true);
    Asked plain(sequence, Place::kHeadMajor);
    const std::vector<uint32_t> want = AnswersOf(sequence, &plain, 1);
    for (const Place place : {Place::kPadded, Place::kRing, Place::kScattered}) {
      Asked asked(sequence, place);
      int threads = 1;
      for (const int64_t target : targets) {
        const OnTarget forced(target);
        threads = threads == 1 ? 2 : threads == 2 ? 7 : 1;
        sequence.shape.portable = true;
        ASSERT_EQ(AnswersOf(sequence, &asked, threads), want)
            << hwy::TargetName(target) << " " << Name(place) << " " << Describe(sequence);
        // The other arithmetic has bits of its own on each.
        sequence.shape.portable = false;
        const std::vector<uint32_t> native = AnswersOf(sequence, &plain, 1);
        ASSERT_EQ(AnswersOf(sequence, &asked, threads), native)
            << hwy::TargetName(target) << " " << Name(place) << " " << Describe(sequence);
      }
      for (const bool portable : {true, false}) {
        sequence.shape.portable = portable;
        const std::vector<uint32_t> one = AnswersOf(sequence, &plain, 1);
        for (const int of : {2, 7}) {
          ASSERT_EQ(AnswersOf(sequence, &asked, of), one)
              << of << " threads " << Name(place) << " " << Describe(sequence);
        }
      }
    }
  }
}

TEST(AttentionSplitKv, IsBatchInvariantOverChunksOfQueries) {
  for (const Length& length : kLengths) {
    if (length.queries == 1) continue;
    for (const bool portable : {true, false}) {
      const Sequence sequence = Of(length, portable);
      Asked whole(sequence, Place::kHeadMajor);
      const std::vector<uint32_t> want = AnswersOf(sequence, &whole, 2);
      for (const int64_t chunk : {1, 7, 16}) {
        Asked asked(sequence, Place::kRing);
        Attention attention;
        for (int64_t first = 0; first < sequence.queries; first += chunk) {
          const SequenceQueries queries =
              asked.Queries(first, std::min(chunk, sequence.queries - first));
          attention.Run(sequence.shape, {&queries, 1});
        }
        ASSERT_EQ(asked.Answers(), want) << "chunks of " << chunk << " " << Describe(sequence);
      }
    }
  }
}

TEST(AttentionSplitKv, IsBatchInvariantOverSequences) {
  for (const char* format : {"f16", "affine:4:g32:f16", "affine:8:g32:f16"}) {
    for (const bool portable : {true, false}) {
      std::vector<Sequence> batch;
      std::vector<Asked> asked;
      for (const int64_t tokens : {kSplit + 1, int64_t{3}, 2 * kSplit + 64 + 1, kSplit - 1}) {
        Sequence sequence = Of({tokens, 2, format}, portable);
        sequence.seed = static_cast<uint64_t>(tokens);
        asked.emplace_back(sequence, kPlaces[(batch.size() + 2) % std::size(kPlaces)]);
        batch.push_back(sequence);
      }
      std::vector<SequenceQueries> queries;
      for (Asked& of : asked) queries.push_back(of.Queries());
      Attention attention(2);
      attention.Run(batch[0].shape, queries);
      for (size_t row = 0; row < batch.size(); ++row) {
        ASSERT_EQ(asked[row].Answers(), Solve(batch[row], Place::kHeadMajor))
            << "row " << row << " " << Describe(batch[row]);
      }
    }
  }
}

// What a worker found out about one sequence's blocks is not taken for another's, and neither is
// what it holds of them.
TEST(AttentionSplitKv, GivesTheSameBitsAfterOtherSequences) {
  for (const bool portable : {false, true}) {
    Attention one(1);
    for (const int64_t queries : {1, 40, 5, 70, 2}) {
      for (const int64_t tokens : {kSplit, int64_t{100}, kSplit}) {
        for (const char* format : {"f16", "affine:8:g32:f16"}) {
          Sequence sequence = Of({tokens, queries, format}, portable);
          // Codes in one group and in four, K with V of another format.
          sequence.shape.k_dim = tokens == 100 ? 128 : 32;
          if (queries == 2) sequence.shape.v = ParseKvFormat(WholeLine("affine:4:g32:f32"));
          sequence.causal = queries == 5;
          sequence.window = queries == 70 ? 20 : 0;
          Asked first(sequence, Place::kHeadMajor), again(sequence, Place::kHeadMajor);
          const std::vector<uint32_t> want = AnswersOf(sequence, &first, 1);
          const SequenceQueries asked = again.Queries();
          one.Run(sequence.shape, {&asked, 1});
          ASSERT_EQ(again.Answers(), want) << Describe(sequence);
        }
      }
    }
  }
}

// Heads of which L1 holds a whole transposed block of K, and larger ones.
TEST(AttentionSplitKv, GivesTheSameBitsForManyQueriesOfLargeHeads) {
  for (const int64_t dim : {64, 128, 192, 256, 512}) {
    for (const char* format : {"f32", "f16", "affine:8:g64:f16"}) {
      Sequence sequence = Of({200, 24, format}, false);
      sequence.shape.k_dim = sequence.shape.v_dim = dim;
      Asked together(sequence, Place::kHeadMajor), alone(sequence, Place::kHeadMajor);
      const std::vector<uint32_t> want = AnswersOf(sequence, &together, 1);
      Attention attention(1);
      for (int64_t query = 0; query < sequence.queries; ++query) {
        const SequenceQueries asked = alone.Queries(query, 1);
        attention.Run(sequence.shape, {&asked, 1});
      }
      ASSERT_EQ(alone.Answers(), want) << Describe(sequence);
    }
  }
}

}  // namespace
}  // namespace kvcheck
