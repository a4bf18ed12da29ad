// Rows are batch-invariant: the bits of a query's result depend on its visible keys alone, not on
// the layout, other queries or the number of threads.

#include "optimized/attention/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/optimized/attention/stored_sequence.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::Attention;
using optimized::AttentionShape;
using optimized::SequenceQueries;

std::vector<KvFormat> Formats() {
  std::vector<KvFormat> formats = AllKvFormats();
  std::erase_if(formats, [](const KvFormat& format) { return !optimized::CanAttend(format); });
  return formats;
}

AttentionShape ShapeOf(int64_t heads, int64_t kv_heads, int64_t k_dim, int64_t v_dim,
                       const KvFormat& k, const KvFormat& v) {
  AttentionShape shape;
  shape.query_heads = heads;
  shape.kv_heads = kv_heads;
  shape.k_dim = k_dim;
  shape.v_dim = v_dim;
  shape.k = k;
  shape.v = v;
  return shape;
}

// Sequences of every kind, of which `index` chooses one.
Sequence DrawSequence(uint32_t index) {
  std::mt19937 random(index);
  const auto of = [&](auto... values) {
    const int64_t all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  const std::vector<KvFormat> formats = Formats();
  Sequence s;
  const KvFormat k = formats[random() % formats.size()];
  const KvFormat v = formats[random() % formats.size()];
  const int64_t kv_heads = of(1, 2);
  // Codes of several groups, an odd number of them too.
  const auto dim_of = [&](const KvFormat& format) {
    if (IsPlain(format)) return of(1, 2, 8, 15, 16, 17, 72, 129);
    return BlockOf(format) * of(1, 2, 3, 4, 5);
  };
  const int64_t k_dim = dim_of(k);
  const int64_t v_dim = dim_of(v);
  s.shape = ShapeOf(kv_heads * of(1, 2, 3, 4, 5, 8), kv_heads, k_dim, v_dim, k, v);
  s.tokens = of(1, 2, 63, 64, 65, 129, 200);
  s.queries = std::min(s.tokens, of(1, 1, 2, 5, 17, 33));
  s.seed = index;
  s.causal = random() % 4 != 0;
  if (random() % 3 == 0) s.window = of(1, 7, 64, 100);
  if (s.window > 0 && random() % 2 == 0) s.keep = of(1, 4, 70);
  if (random() % 3 == 0) s.holes = 0.3;
  s.bias = random() % 3 == 0;
  s.alibi = random() % 4 == 0;
  s.sinks = random() % 3 == 0;
  if (random() % 6 == 0) s.shape.softcap = 5;
  s.shape.portable = random() % 2 == 0;
  return s;
}

constexpr uint32_t kDraws = 120;

TEST(Attention, GivesTheSameBitsInEveryLayout) {
  for (uint32_t i = 0; i < kDraws; ++i) {
    const Sequence sequence = DrawSequence(i);
    const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
    for (const Place place : kPlaces) {
      ASSERT_EQ(Solve(sequence, place), want) << Name(place) << " " << Describe(sequence);
    }
  }
}

TEST(Attention, IsBatchInvariantOverChunksOfQueries) {
  for (uint32_t i = 0; i < kDraws; ++i) {
    Sequence sequence = DrawSequence(1000 + i);
    sequence.queries = std::min<int64_t>(sequence.tokens, 40);
    const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
    for (const int64_t chunk : {1, 7, 16}) {
      Asked asked(sequence, Place::kHeadMajor);
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

// More rows than a tile has: 128, or 256 where several heads have tiles enough and L2 holds them.
// Also one row more, and a border between tiles within the heads of a query.
TEST(Attention, IsBatchInvariantOverTilesOfManyQueries) {
  const KvFormat formats[] = {PlainFormat{DType::kFloat32},
                              PlainFormat{DType::kFloat16},
                              AffineFormat{8, 64, DType::kFloat16},
                              AffineFormat{4, 64, DType::kFloat32},
                              AffineFormat{3, 32, DType::kBFloat16},
                              Q8_0Format{},
                              Q4_1Format{}};
  uint32_t index = 0;
  for (const int64_t group : {1, 3, 4, 5}) {
    for (const int64_t rows : {int64_t{128} + group, int64_t{257}, int64_t{273}, int64_t{529}}) {
      const int64_t queries = rows / group;
      // Tiles enough for one worker, of rows that fit an L2 of 512 KiB too.
      const bool large = rows == 529;
      const int64_t heads = large ? 2 : 1;
      for (const KvFormat& k : formats) {
        Sequence sequence;
        sequence.shape = ShapeOf(group * heads, heads, large ? 64 : 128, 64, k,
                                 formats[(index + 2) % std::size(formats)]);
        sequence.tokens = queries + 37;
        sequence.queries = queries;
        sequence.seed = ++index;
        sequence.causal = index % 4 != 0;
        sequence.shape.portable = index % 7 == 0;
        sequence.bias = index % 3 == 0;
        const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
        Asked asked(sequence, Place::kHeadMajor);
        Attention attention;
        for (int64_t first = 0; first < queries; first += 3) {
          const SequenceQueries some = asked.Queries(first, std::min<int64_t>(3, queries - first));
          attention.Run(sequence.shape, {&some, 1});
        }
        ASSERT_EQ(asked.Answers(), want) << Describe(sequence);
      }
    }
  }
}

// The queries of a tile see prefixes of a block: what only later queries see is read by the
// kernels, and may be anything.
TEST(Attention, IgnoresKeysThatOnlyLaterQueriesSee) {
  for (const int64_t group : {1, 3, 4}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const int64_t hidden : {1, 5, 20, 63}) {
        Sequence sequence;
        sequence.shape = ShapeOf(group, 1, 16, 16, PlainFormat{dtype}, PlainFormat{dtype});
        sequence.tokens = sequence.queries = 100;
        const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
        Asked asked(sequence, Place::kHeadMajor);
        const SequenceQueries all = asked.Queries();
        // The last tokens become NaN; head-major and contiguous.
        const int64_t first = sequence.tokens - hidden;
        for (const optimized::StoredHeads& heads : {all.k, all.v}) {
          std::memset(const_cast<std::byte*>(heads.codes) + first * heads.code_stride, 0xff,
                      static_cast<size_t>(hidden * heads.code_stride));
        }
        Attention attention;
        attention.Run(sequence.shape, {&all, 1});
        const std::vector<uint32_t> got = asked.Answers();
        for (int64_t h = 0; h < group; ++h) {
          for (int64_t l = 0; l < sequence.queries; ++l) {
            const auto at = static_cast<size_t>((h * sequence.queries + l) * 16);
            const float out = std::bit_cast<float>(got[at]);
            ASSERT_EQ(std::isnan(out), l >= first) << "query " << l << " of head " << h;
            if (l >= first) continue;
            for (size_t c = at; c < at + 16; ++c) ASSERT_EQ(got[c], want[c]) << "query " << l;
          }
        }
      }
    }
  }
}

TEST(Attention, KeepsNothingOfAnEarlierCall) {
  const KvFormat formats[] = {PlainFormat{DType::kFloat32}, PlainFormat{DType::kFloat16},
                              AffineFormat{8, 64, DType::kFloat32},
                              AffineFormat{4, 64, DType::kFloat16}};
  for (const KvFormat& format : formats) {
    Sequence sequence;
    sequence.shape = ShapeOf(4, 1, 128, 128, format, format);
    Attention attention;
    // Whole blocks of NaN, of few queries and of many.
    for (const int64_t queries : {1, 40}) {
      sequence.tokens = 128;
      sequence.queries = queries;
      Asked noise(sequence, Place::kHeadMajor);
      const SequenceQueries all = noise.Queries();
      for (const optimized::StoredHeads& heads : {all.k, all.v}) {
        const auto codes = static_cast<size_t>(sequence.tokens * heads.code_stride);
        const auto scales = static_cast<size_t>(sequence.tokens * heads.scale_stride);
        std::memset(const_cast<std::byte*>(heads.codes), 0xff, codes);
        if (scales == 0) continue;
        std::memset(const_cast<std::byte*>(heads.scales), 0xff, scales);
        std::memset(const_cast<std::byte*>(heads.biases), 0xff, scales);
      }
      attention.Run(sequence.shape, {&all, 1});
      ASSERT_TRUE(std::isnan(std::bit_cast<float>(noise.Answers()[0])));
    }
    for (const int64_t tokens : {1, 3, 8, 9, 15, 17, 30, 65, 70}) {
      for (const int64_t queries : {int64_t{1}, std::min<int64_t>(tokens, 20)}) {
        sequence.tokens = tokens;
        sequence.queries = queries;
        Asked asked(sequence, Place::kHeadMajor);
        const SequenceQueries all = asked.Queries();
        attention.Run(sequence.shape, {&all, 1});
        const std::vector<uint32_t> got = asked.Answers();
        ASSERT_EQ(got, Solve(sequence, Place::kHeadMajor)) << Describe(sequence);
        for (const uint32_t bits : got) ASSERT_FALSE(std::isnan(std::bit_cast<float>(bits)));
      }
    }
  }
}

TEST(Attention, IsBatchInvariantOverSequences) {
  for (uint32_t i = 0; i < kDraws; ++i) {
    const Sequence first = DrawSequence(2000 + i);
    std::vector<Asked> asked;
    std::vector<Sequence> batch;
    for (const int64_t tokens : {first.tokens, int64_t{1}, int64_t{130}}) {
      Sequence sequence = first;
      sequence.tokens = tokens;
      sequence.queries = std::min(sequence.queries, tokens);
      sequence.seed += static_cast<uint64_t>(batch.size());
      batch.push_back(sequence);
      asked.emplace_back(sequence, kPlaces[(i + batch.size()) % std::size(kPlaces)]);
    }
    std::vector<SequenceQueries> queries;
    for (Asked& of : asked) queries.push_back(of.Queries());
    Attention attention(2);
    attention.Run(first.shape, queries);
    for (size_t row = 0; row < batch.size(); ++row) {
      ASSERT_EQ(asked[row].Answers(), Solve(batch[row], Place::kHeadMajor))
          << "row " << row << " " << Describe(batch[row]);
    }
  }
}

TEST(Attention, GivesTheSameBitsForMasksAsRangesAndAsBits) {
  for (uint32_t i = 0; i < kDraws; ++i) {
    Sequence sequence = DrawSequence(3000 + i);
    sequence.holes = 0;
    const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
    sequence.bits_for_all = true;
    ASSERT_EQ(Solve(sequence, Place::kHeadMajor), want) << Describe(sequence);
  }
}

TEST(Attention, GivesTheSameBitsOnEveryNumberOfThreads) {
  const KvFormat f16 = PlainFormat{DType::kFloat16};
  for (const int64_t tokens : {100, 2048, 2049, 6200}) {
    Sequence sequence;
    sequence.shape = ShapeOf(4, 2, 16, 16, f16, f16);
    sequence.tokens = tokens;
    for (const int64_t queries : {1, 40}) {
      for (const double holes : {0.0, 0.9}) {
        sequence.queries = queries;
        sequence.holes = holes;
        const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
        for (const int threads : {2, 7}) {
          EXPECT_EQ(Solve(sequence, Place::kRing, threads), want)
              << threads << " threads " << Describe(sequence);
        }
      }
    }
  }
}

TEST(Attention, GivesTheSameBitsOnEveryInstructionSetWherePortable) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  EXPECT_GT(targets.size(), 1u);
  int differing = 0;  // the other arithmetic
  for (uint32_t i = 0; i < kDraws; ++i) {
    Sequence sequence = DrawSequence(4000 + i);
    sequence.shape.portable = true;
    const std::vector<uint32_t> want = Solve(sequence, Place::kHeadMajor);
    for (const int64_t target : targets) {
      const OnTarget forced(target);
      ASSERT_EQ(Solve(sequence, Place::kScattered), want)
          << hwy::TargetName(target) << " " << Describe(sequence);
    }
    sequence.shape.portable = false;
    if (Solve(sequence, Place::kHeadMajor) != want) ++differing;
  }
  EXPECT_GT(differing, 0) << "the parameter does nothing";
}

// Keys of equal weight are not read at all, nor staged, whatever their format; beside queries that
// do read them, in a group that a kernel takes at once, each gets its own answer.
TEST(Attention, ReadsNoKeysOfUniformQueries) {
  for (const char* format : {"f16", "affine:4:g32:f16", "affine:3:g32:f32", "q8_0"}) {
    for (const int64_t queries : {1, 20}) {
      for (const bool portable : {false, true}) {
        Sequence sequence;
        const KvFormat stored = ParseKvFormat(WholeLine(format));
        sequence.shape = ShapeOf(4, 1, 32, 32, stored, stored);
        sequence.shape.portable = portable;
        sequence.tokens = 130;
        sequence.queries = queries;
        // Of every query and head: of all, of every second one, of none.
        const auto solve = [&](auto is_uniform, bool hide_keys) {
          Asked asked(sequence, Place::kHeadMajor);
          SequenceQueries question = asked.Queries();
          std::vector<optimized::VisibleKeys> visible;
          for (int64_t head = 0; head < 4; ++head) {
            for (int64_t l = 0; l < queries; ++l) {
              visible.push_back(question.visible[l]);
              visible.back().end = sequence.tokens - 1;
              visible.back().uniform = is_uniform(head);
            }
          }
          question.visible = visible.data();
          question.visible_head_stride = queries;
          const GuardedBytes page(1);
          const std::byte* hidden = page.data() + 1;  // may not be read
          if (hide_keys) question.k.codes = question.k.scales = question.k.biases = hidden;
          Attention attention;
          attention.Run(sequence.shape, {&question, 1});
          return asked.Answers();
        };
        const auto all = solve([](int64_t) { return true; }, true);
        const auto some = solve([](int64_t head) { return head % 2 == 1; }, false);
        const auto none = solve([](int64_t) { return false; }, false);
        EXPECT_NE(all, none);
        for (size_t i = 0; i < some.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const int64_t of_head = int64_t{32} * queries;
          const int64_t head =
              at < 4 * of_head ? at / of_head : (at - 4 * of_head) / static_cast<int64_t>(queries);
          ASSERT_EQ(some[i], head % 2 == 1 ? all[i] : none[i]) << i << " " << Describe(sequence);
        }
      }
    }
  }
}

TEST(Attention, GivesZerosWhereNothingIsVisible) {
  Sequence sequence;
  sequence.shape = ShapeOf(4, 2, 16, 24, PlainFormat{}, PlainFormat{});
  sequence.tokens = 70;
  sequence.queries = 3;
  sequence.holes = 2;  // all of them
  const std::vector<uint32_t> answers = Solve(sequence, Place::kHeadMajor);
  constexpr size_t kOutputs = size_t{4} * 3 * 24;
  for (size_t i = 0; i < kOutputs; ++i) ASSERT_EQ(answers[i], 0u);
  for (size_t i = kOutputs; i < answers.size(); ++i) {
    ASSERT_EQ(std::bit_cast<float>(answers[i]), -std::numeric_limits<float>::infinity());
  }
}

TEST(Attention, PassesOnANaNThatIsVisible) {
  Sequence sequence;
  sequence.shape = ShapeOf(4, 1, 16, 16, PlainFormat{}, PlainFormat{});
  sequence.tokens = 70;
  Asked asked(sequence, Place::kPadded);
  SequenceQueries queries = asked.Queries();
  const optimized::ColumnRun shifted = {0, 0, 70};  // the padding, which is NaN, among the keys
  queries.columns = {&shifted, 1};
  Attention attention;
  attention.Run(sequence.shape, {&queries, 1});
  for (const uint32_t bits : asked.Answers()) ASSERT_TRUE(std::isnan(std::bit_cast<float>(bits)));
}

}  // namespace
}  // namespace kvcheck
