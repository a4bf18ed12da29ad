// The contract's formulas against their definitions, written out over sets of positions.

#include "reference/cache/model_state.h"

#include <gtest/gtest.h>

#include <set>

namespace kvcheck {
namespace {

std::vector<CacheLayout> Layouts() {
  std::vector<CacheLayout> layouts = {{}};
  for (int64_t w = 1; w <= 5; ++w) {
    layouts.push_back({LayoutKind::kLinear, w, 0, 0});
    layouts.push_back({LayoutKind::kChunk, 0, 0, w});
    for (int64_t keep = 0; keep < w; ++keep) layouts.push_back({LayoutKind::kRing, w, keep, 0});
  }
  return layouts;
}

using Positions = std::set<int64_t>;

// contract.md, section 2, word for word.
Positions VisibleByDefinition(const CacheLayout& layout, int64_t t) {
  Positions all;
  for (int64_t u = 0; u <= t; ++u) all.insert(u);
  const auto newest = [&](int64_t n) {
    Positions some;
    for (auto it = all.rbegin(); it != all.rend() && n > 0; ++it, --n) some.insert(*it);
    return some;
  };
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return layout.window == 0 ? all : newest(layout.window);
    case LayoutKind::kRing: {
      Positions some = newest(layout.window - layout.keep);
      for (int64_t u = 0; u < layout.keep && u <= t; ++u) some.insert(u);
      return some;
    }
    case LayoutKind::kChunk: {
      Positions some;
      for (int64_t u : all) {
        if (u / layout.chunk == t / layout.chunk) some.insert(u);
      }
      return some;
    }
  }
  return {};
}

// What some future query may see of the tokens that are there.
Positions RequiredByDefinition(const CacheLayout& layout, int64_t offset) {
  Positions required;
  for (int64_t t = offset; t < offset + 12; ++t) {
    for (int64_t u : VisibleByDefinition(layout, t)) {
      if (u < offset) required.insert(u);
    }
  }
  return required;
}

Positions SetOf(const TokenRange& range) {
  Positions positions;
  for (int64_t p = 0; p < range.end; ++p) {
    if (range.Contains(p)) positions.insert(p);
  }
  return positions;
}

bool Includes(const Positions& outer, const Positions& inner) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

TEST(ModelState, VisibleIsTheLayoutsRule) {
  for (const CacheLayout& layout : Layouts()) {
    for (int64_t t = 0; t < 14; ++t) {
      EXPECT_EQ(SetOf(Visible(layout, t)), VisibleByDefinition(layout, t))
          << Print(layout) << " " << t;
      EXPECT_EQ(Visible(layout, t).Count(), std::ssize(VisibleByDefinition(layout, t)));
    }
  }
}

TEST(ModelState, WindowAtAttendLeavesTheFirstTokensOfARing) {
  for (const CacheLayout& layout : Layouts()) {
    for (int64_t t = 0; t < 12; ++t) {
      for (int64_t w = 1; w < 8; ++w) {
        Positions want;
        for (int64_t u : VisibleByDefinition(layout, t)) {
          if (u > t - w || (layout.kind == LayoutKind::kRing && u < layout.keep)) want.insert(u);
        }
        EXPECT_EQ(SetOf(VisibleInWindow(layout, t, w)), want) << Print(layout) << " " << t;
      }
    }
  }
}

TEST(ModelState, RequiredIsWhatFutureQueriesSee) {
  for (const CacheLayout& layout : Layouts()) {
    for (int64_t offset = 0; offset < 14; ++offset) {
      EXPECT_EQ(SetOf(Required(layout, offset)), RequiredByDefinition(layout, offset))
          << Print(layout) << " " << offset;
    }
  }
}

TEST(ModelState, HoldsIsInclusion) {
  for (int64_t keep = 0; keep < 4; ++keep) {
    for (int64_t from = 0; from < 7; ++from) {
      for (int64_t end = from; end < 7; ++end) {
        const TokenRange retained = {keep, from, end};
        for (int64_t k = 0; k < 4; ++k) {
          for (int64_t f = 0; f < 8; ++f) {
            for (int64_t e = 0; e <= end; ++e) {
              const TokenRange required = {k, f, e};
              EXPECT_EQ(Holds(retained, required), Includes(SetOf(retained), SetOf(required)))
                  << keep << " " << from << " " << end << " / " << k << " " << f << " " << e;
            }
          }
        }
      }
    }
  }
}

// n' is the largest number <= n for which every row can reach the state of never having appended
// the tokens that it loses.
TEST(ModelState, TrimReachIsTheLargestThatEveryRowCanReach) {
  for (const CacheLayout& layout : Layouts()) {
    for (int64_t offset_a = 0; offset_a < 8; ++offset_a) {
      for (int64_t offset_b = 0; offset_b < 8; offset_b += 3) {
        for (int64_t from_a = 0; from_a <= Required(layout, offset_a).from; ++from_a) {
          ModelState state;
          New(layout, state.k, state.v, 2, {}, &state);
          const int64_t offsets[2] = {offset_a, offset_b};
          const int64_t froms[2] = {std::min(from_a, offset_a), 0};
          for (size_t b = 0; b < 2; ++b) {
            ModelRow& row = state.rows[b];
            row.offset = offsets[b];
            row.tokens.resize(static_cast<size_t>(offsets[b]));
            row.retained = {layout.keep, froms[b], offsets[b]};
          }
          for (int64_t n = 0; n < 10; ++n) {
            int64_t want = 0;
            for (int64_t m = 0; m <= std::min({n, offset_a, offset_b}); ++m) {
              bool every = true;
              for (size_t b = 0; b < 2; ++b) {
                every = every && Includes(SetOf(state.rows[b].retained),
                                          RequiredByDefinition(layout, offsets[b] - m));
              }
              if (every) want = m;
            }
            EXPECT_EQ(TrimReach(state, n, {}), want)
                << Print(layout) << " " << offset_a << " " << offset_b << " " << from_a << " " << n;
          }
        }
      }
    }
  }
  ModelState none;
  New({}, none.k, none.v, 0, {}, &none);
  EXPECT_EQ(TrimReach(none, 5, {}), 0);
}

TEST(ModelState, ColumnsFallToPaddingThenTokensThenPadding) {
  ModelState state;
  const std::vector<int64_t> padding = {2, 0, 5};
  New({}, state.k, state.v, 3, padding, &state);
  const auto split = [&](size_t row, int64_t columns) {
    const ColumnSplit s = SplitColumns(state, row, columns);
    return std::pair(s.padding, s.tokens);
  };
  EXPECT_EQ(split(0, 3), std::pair(int64_t{2}, int64_t{1}));
  EXPECT_EQ(split(1, 3), std::pair(int64_t{0}, int64_t{3}));
  EXPECT_EQ(split(2, 3), std::pair(int64_t{3}, int64_t{0}));
  const std::vector<int64_t> lengths = {4, 1, 0};
  EXPECT_EQ(RefusePrepare(state, lengths), "");
  Prepare(lengths, &state);
  EXPECT_EQ(split(0, 3), std::pair(int64_t{2}, int64_t{1}));
  EXPECT_EQ(split(0, 9), std::pair(int64_t{2}, int64_t{4}));
  EXPECT_EQ(split(1, 3), std::pair(int64_t{0}, int64_t{1}));
  EXPECT_EQ(split(2, 9), std::pair(int64_t{5}, int64_t{0}));
}

TEST(ModelState, OnlyAppendAndFinalizeAreLegalWhilePending) {
  CacheSetup setup;
  ModelState state;
  New({}, state.k, state.v, 1, {}, &state);
  const std::vector<int64_t> lengths = {1};
  const std::vector<int64_t> rows = {0};
  Prepare(lengths, &state);
  EXPECT_NE(RefusePrepare(state, lengths), "");
  EXPECT_NE(RefuseTrim(state, 0), "");
  EXPECT_NE(RefuseFilter(state, rows), "");
  EXPECT_NE(RefuseExtend(state, state), "");
  const ModelState* operand = &state;
  EXPECT_NE(RefuseMerge({&operand, 1}), "");
  EXPECT_NE(RefuseExtract(state, 0), "");
  EXPECT_NE(RefuseToQuantized(setup, state, state.k, state.v), "");
  EXPECT_NE(RefuseWhilePending(state), "");
  EXPECT_NE(RefuseFinalize(state), "");
  TokenColumns columns;
  columns.rows = 1;
  columns.kv_heads = 1;
  columns.columns = 1;
  columns.k_dim = columns.v_dim = 64;
  EXPECT_EQ(RefuseAppend(setup, state, columns), "");
  StartAppend(&state, 0, 1, SplitColumns(state, 0, 1), false);
  EXPECT_EQ(RefuseFinalize(state), "");
  AttendRequest request;
  request.rows = request.query_heads = request.queries = 1;
  EXPECT_NE(RefuseAttend(setup, state, request), "");
  Finalize(&state);
  EXPECT_EQ(RefuseWhilePending(state), "");
  EXPECT_NE(RefuseAttend(setup, state, request), "");  // the step has ended
}

TEST(ModelState, QuantizingIsLegalFromPlainOrToTheSame) {
  CacheSetup setup;
  const KvFormat f32 = PlainFormat{DType::kFloat32};
  const KvFormat f16 = PlainFormat{DType::kFloat16};
  const KvFormat codes = AffineFormat{4, 64, DType::kFloat16};
  const KvFormat other = AffineFormat{8, 64, DType::kFloat16};
  const KvFormat wide = AffineFormat{8, 128, DType::kFloat16};
  const auto legal = [&](const KvFormat& k0, const KvFormat& v0, const KvFormat& k1,
                         const KvFormat& v1) {
    ModelState state;
    New({}, k0, v0, 1, {}, &state);
    return RefuseToQuantized(setup, state, k1, v1).empty();
  };
  EXPECT_TRUE(legal(f32, f32, codes, codes));
  EXPECT_TRUE(legal(f32, f32, codes, f32));
  EXPECT_TRUE(legal(f32, f32, f16, f32));
  EXPECT_TRUE(legal(codes, other, codes, other));
  EXPECT_TRUE(legal(codes, f32, codes, other));
  EXPECT_FALSE(legal(codes, f32, other, f32));
  EXPECT_FALSE(legal(codes, f32, f32, f32));
  EXPECT_FALSE(legal(f32, codes, codes, other));
  EXPECT_FALSE(legal(f32, f32, wide, f32));
}

TEST(ModelState, NumbersAreThoseOfTheLongestRow) {
  ModelState state;
  const CacheLayout ring = {LayoutKind::kRing, 4, 1, 0};
  const std::vector<int64_t> padding = {0, 3};
  New(ring, state.k, state.v, 2, padding, &state);
  EXPECT_TRUE(IsEmpty(state));
  EXPECT_TRUE(IsTrimmable(state));
  EXPECT_EQ(SizeOf(state), 0);
  const auto append = [&](int64_t columns) {
    for (size_t b = 0; b < 2; ++b) {
      const ColumnSplit split = SplitColumns(state, b, columns);
      StartAppend(&state, b, columns, split, true);
      state.rows[b].tokens.resize(state.rows[b].tokens.size() + static_cast<size_t>(split.tokens));
      Appended(&state, b, split);
    }
  };
  append(3);
  EXPECT_FALSE(IsEmpty(state));
  EXPECT_EQ(SizeOf(state), 3);
  EXPECT_FALSE(IsTrimmable(state));  // row 1 has nothing to lose
  append(1);
  EXPECT_EQ(SizeOf(state), 4);
  EXPECT_TRUE(IsTrimmable(state));
  append(1);
  EXPECT_EQ(SizeOf(state), 4);
  EXPECT_EQ(state.rows[0].retained, (TokenRange{1, 2, 5}));
  EXPECT_TRUE(IsTrimmable(state));
  Trim(TrimReach(state, 1, {}), &state);
  EXPECT_EQ(SizeOf(state), 3);
  EXPECT_FALSE(IsTrimmable(state));
}

}  // namespace
}  // namespace kvcheck
