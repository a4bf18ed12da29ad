// The judge of traces on hand-made views: what is right passes in any order of columns, every
// departure fails by its own name, and what cannot be told is not judged.

#include "reference/trace/step_compare.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

namespace kvcheck {
namespace {

constexpr int64_t kHeads = 2;
constexpr size_t kVector = 8;  // two f32 channels

// One row of five tokens under a window of three: two of them were appended last, after one column
// of padding. Handles 2t and 2t + 1 are K and V of token t.
struct Step {
  std::vector<std::byte> table;
  std::vector<uint32_t> offsets;
  std::vector<StoredToken> tokens;
  std::vector<TokenRange> visible = {{0, 1, 4}, {0, 2, 5}};
  std::vector<ExpectedRow> rows;
  ExpectedStep expected;

  std::vector<int64_t> order;  // column -> token; -1: nothing
  std::vector<std::byte> k, v;
  std::vector<uint64_t> retained, seen;
  std::vector<int64_t> row_offsets = {5};
  std::vector<int64_t> unfed = {0};
  CacheLayout layout = {LayoutKind::kLinear, 3, 0, 0};
  StepView view;

  explicit Step(std::vector<int64_t> columns = {-1, 1, 2, 3, 4}) : order(std::move(columns)) {
    for (uint32_t handle = 0; handle < 10; ++handle) {
      offsets.push_back(static_cast<uint32_t>(table.size()));
      for (size_t i = 0; i < kHeads * kVector; ++i) {
        table.push_back(static_cast<std::byte>(16 * handle + i));
      }
    }
    for (int32_t t = 0; t < 5; ++t) tokens.push_back({2 * t, 2 * t + 1});
    rows.resize(1);
    rows[0].offset = 5;
    rows[0].required = {0, 3, 5};
    rows[0].required_before = {0, 2, 4};
    rows[0].newest_visible = {0, 2, 5};
    rows[0].first_query = 1;
    expected.layout = layout;
    expected.kv_heads = kHeads;
    expected.k_dim = expected.v_dim = 2;
    expected.queries = 3;

    const auto n = order.size();
    k.assign(kHeads * n * kVector, std::byte{0xff});
    v = k;
    retained.assign((n + 63) / 64, 0);
    seen.assign(3 * retained.size(), 0);
    for (size_t c = 0; c < n; ++c) {
      if (order[c] < 0) continue;
      Put(c, 2 * order[c], &k);
      Put(c, 2 * order[c] + 1, &v);
      retained[c / 64] |= uint64_t{1} << (c % 64);
      for (size_t l = 0; l < 2; ++l) {
        if (visible[l].Contains(order[c])) See(l + 1, c);
      }
    }
    view.rows = 1;
    view.columns = static_cast<int64_t>(n);
    view.queries = 3;
    const auto column = static_cast<int64_t>(kVector);
    view.k.planes[0].strides = view.v.planes[0].strides = {0, view.columns * column, column};
    view.size = 3;
    view.live_bytes = 4 * kHeads * 2 * column;
    view.capacity_bytes = 8 * kHeads * 2 * column;
    view.empty = Known::kNo;
    view.trimmable = Known::kYes;
    view.pending = Known::kNo;
  }
  // Head h of column c becomes head h of a vector of the table.
  void Put(size_t c, int64_t handle, std::vector<std::byte>* to) {
    for (size_t h = 0; h < kHeads; ++h) {
      std::memcpy(to->data() + (h * order.size() + c) * kVector,
                  table.data() + offsets[static_cast<size_t>(handle)] + h * kVector, kVector);
    }
  }
  void See(size_t query, size_t c) {
    seen[query * ((order.size() + 63) / 64) + c / 64] |= uint64_t{1} << c % 64;
  }

  StepFault Judge(const CacheProfile& profile = {}, StepFailure* failure = nullptr) {
    rows[0].tokens = tokens;
    rows[0].visible = visible;
    expected.rows = rows;
    expected.table = {table.data(), offsets.data(), std::ssize(offsets)};
    view.k.planes[0].bytes = k.data();
    view.v.planes[0].bytes = v.data();
    view.retained = retained.empty() ? nullptr : retained.data();
    view.visible = seen.empty() ? nullptr : seen.data();
    view.offsets = row_offsets.empty() ? nullptr : row_offsets.data();
    view.unfed_padding = unfed.empty() ? nullptr : unfed.data();
    view.layout = &layout;
    StepFailure found;
    const bool passed = StepComparer().Compare(expected, view, profile, &found);
    EXPECT_EQ(passed, found.fault == StepFault::kNone);
    EXPECT_EQ(passed, found.message.empty());
    if (failure != nullptr) *failure = found;
    return found.fault;
  }
};

using Change = std::function<void(Step*)>;

TEST(StepComparer, AcceptsAnyOrderOfColumns) {
  EXPECT_EQ(Step().Judge(), StepFault::kNone);
  EXPECT_EQ(Step({1, 2, 3, 4}).Judge(), StepFault::kNone);
  EXPECT_EQ(Step({3, 4, 1, 2}).Judge(), StepFault::kNone);
  EXPECT_EQ(Step({4, -1, 3, 2, -1, -1, 1}).Judge(), StepFault::kNone);
  // Beyond one word of the bit rows.
  std::vector<int64_t> wide(130, -1);
  for (int64_t t = 1; t < 5; ++t) wide[static_cast<size_t>(61 + t)] = t;
  EXPECT_EQ(Step(wide).Judge(), StepFault::kNone);
  std::swap(wide[62], wide[129]);
  EXPECT_EQ(Step(wide).Judge(), StepFault::kNone);
}

struct NamesOfTable : TokenNames {
  std::string Describe(int32_t handle) const override { return "vector " + std::to_string(handle); }
  bool IsKey(int32_t handle) const override { return handle % 2 == 0; }
  KvFormat FormatOf(int32_t) const override { return PlainFormat{}; }
};

TEST(StepComparer, NamesEveryDeparture) {
  const std::vector<std::pair<StepFault, Change>> table = {
      {StepFault::kRows, [](Step* s) { s->view.rows = 2; }},
      {StepFault::kLayout, [](Step* s) { s->layout.window = 4; }},
      {StepFault::kFormat, [](Step* s) { s->view.k.format = PlainFormat{DType::kFloat16}; }},
      {StepFault::kFormat,
       [](Step* s) { s->view.v.format = AffineFormat{4, 64, DType::kFloat32}; }},
      {StepFault::kQueries, [](Step* s) { s->view.queries = 0; }},
      {StepFault::kPending, [](Step* s) { s->view.pending = Known::kYes; }},
      {StepFault::kPending, [](Step* s) { s->expected.pending = true; }},
      {StepFault::kOffset, [](Step* s) { s->row_offsets[0] = 6; }},
      {StepFault::kUnfedPadding, [](Step* s) { s->unfed[0] = 1; }},
      {StepFault::kVisibleMissing, [](Step* s) { s->seen[1] ^= 1u << 2; }},
      {StepFault::kVisibleExtra, [](Step* s) { s->See(2, 1); }},
      {StepFault::kVisibleExtra, [](Step* s) { s->See(1, 4); }},  // the future
      {StepFault::kVisiblePadding, [](Step* s) { s->See(2, 0); }},
      {StepFault::kVisiblePadding, [](Step* s) { s->See(2, 40); }},
      {StepFault::kRetainedMissing, [](Step* s) { s->retained[0] ^= 1u << 4; }},
      {StepFault::kVisiblePadding, [](Step* s) { s->retained[0] |= 1; }},
      {StepFault::kTokenTwice,
       [](Step* s) {
         s->Put(0, 2, &s->k);
         s->Put(0, 3, &s->v);
         s->retained[0] |= 1;
       }},
      {StepFault::kKvMismatch, [](Step* s) { s->Put(3, 2 * 2 + 1, &s->v); }},
      {StepFault::kHeadMismatch,
       [](Step* s) {
         std::byte* first = s->k.data() + 3 * kVector;
         std::swap_ranges(first, first + kVector, s->k.data() + (5 + 3) * kVector);
       }},
      {StepFault::kWrongPart,
       [](Step* s) {
         s->Put(3, 2 * 3 + 1, &s->k);
         s->Put(3, 2 * 3, &s->v);
       }},
      {StepFault::kWrongBytes, [](Step* s) { s->k[3 * kVector] ^= std::byte{1}; }},
      {StepFault::kNeverForgets, [](Step* s) { s->rows[0].most_retained = 3; }},
      {StepFault::kSize, [](Step* s) { s->view.size = 4; }},
      {StepFault::kEmpty, [](Step* s) { s->view.empty = Known::kYes; }},
      {StepFault::kTrimmable, [](Step* s) { s->view.trimmable = Known::kNo; }},
      {StepFault::kTrimmable, [](Step* s) { s->rows[0].required_before = {0, 0, 4}; }},
      {StepFault::kLiveBytes, [](Step* s) { s->view.live_bytes -= 1; }},
      {StepFault::kCapacity, [](Step* s) { s->view.capacity_bytes = s->view.live_bytes - 1; }},
      {StepFault::kCapacity, [](Step* s) { s->expected.no_tail = true; }},
  };
  const NamesOfTable names;
  for (size_t i = 0; i < table.size(); ++i) {
    Step step;
    step.expected.names = &names;
    table[i].second(&step);
    StepFailure failure;
    EXPECT_EQ(Name(step.Judge({}, &failure)), Name(table[i].first)) << i << failure.message;
  }
}

TEST(StepComparer, SaysWhoseAForeignVectorIs) {
  const NamesOfTable names;
  Step step;
  step.expected.names = &names;
  step.tokens.resize(4);  // token 4 was trimmed, and is still shown
  step.rows[0].offset = step.row_offsets[0] = 4;
  step.visible = {{0, 1, 4}};
  step.rows[0].required = {0, 2, 4};
  StepFailure failure;
  EXPECT_EQ(step.Judge({}, &failure), StepFault::kRetainedExtra);
  EXPECT_EQ(failure.row, 0);
  EXPECT_NE(failure.message.find("K of head 0 of vector 8"), std::string::npos) << failure.message;
}

TEST(StepComparer, WhatCannotBeToldIsNotJudged) {
  Step step;
  step.row_offsets.clear();
  step.unfed.clear();
  step.retained.clear();
  step.view.size = step.view.live_bytes = step.view.capacity_bytes = StepView::kUnknown;
  step.view.empty = step.view.trimmable = step.view.pending = Known::kCannotTell;
  EXPECT_EQ(step.Judge(), StepFault::kNone);
  // What queries see is judged all the same.
  step.See(2, 1);
  EXPECT_EQ(step.Judge(), StepFault::kVisibleExtra);
  step.seen.clear();
  EXPECT_EQ(step.Judge(), StepFault::kNone);
  // Without retained tokens a size is bounded by what must and what may be there.
  for (int64_t size : {1, 2, 3, 4}) {
    step.view.size = size;
    EXPECT_EQ(step.Judge(), size == 2 || size == 3 ? StepFault::kNone : StepFault::kSize) << size;
  }
}

TEST(StepComparer, FollowsTheProfile) {
  CacheProfile profile = ParseCacheProfile("size=columns bytes=capacity empty=any trimmable=any");
  Step step;
  step.view.size = 5;
  step.view.live_bytes = step.view.capacity_bytes;
  step.view.empty = Known::kYes;
  step.view.trimmable = Known::kNo;
  EXPECT_EQ(step.Judge(profile), StepFault::kNone);
  step.view.size = 6;
  EXPECT_EQ(step.Judge(profile), StepFault::kSize);
  step.view.size = 2;
  EXPECT_EQ(step.Judge(profile), StepFault::kSize);
  step.view.size = 5;
  step.view.live_bytes = 4 * kHeads * 2 * 8 - 1;
  EXPECT_EQ(step.Judge(profile), StepFault::kLiveBytes);
  EXPECT_EQ(step.Judge(ParseCacheProfile("size=any bytes=any empty=any trimmable=any")),
            StepFault::kNone);
}

TEST(StepComparer, EveryFaultHasANameAndAProperty) {
  for (int fault = 1; fault <= static_cast<int>(StepFault::kInputChanged); ++fault) {
    EXPECT_FALSE(Name(static_cast<StepFault>(fault)).empty()) << fault;
    EXPECT_EQ(PropertyOf(static_cast<StepFault>(fault)).substr(0, 1), "P") << fault;
  }
}

TEST(StepComparer, ScalesAndBiasesArePartOfAVector) {
  for (int part = 0; part < 3; ++part) {
    // One token of one head: 32 channels of 4 bits, a scale and a bias of f16.
    std::vector<std::byte> table(16 + 2 + 2);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::byte>(i);
    std::vector<std::byte> shown = table;
    const std::vector<uint32_t> offsets = {0};
    const std::vector<StoredToken> tokens = {{0, 0}};
    std::vector<ExpectedRow> rows(1);
    rows[0].tokens = tokens;
    rows[0].offset = 1;
    rows[0].required = rows[0].newest_visible = {0, 0, 1};
    ExpectedStep expected;
    expected.k = expected.v = AffineFormat{4, 32, DType::kFloat16};
    expected.k_dim = expected.v_dim = 32;
    expected.rows = rows;
    expected.table = {table.data(), offsets.data(), 1};
    const uint64_t one = 1;
    StepView view;
    view.rows = view.columns = 1;
    view.retained = &one;
    for (StoredVectors* vectors : {&view.k, &view.v}) {
      vectors->format = expected.k;
      vectors->planes = {{{shown.data(), {}}, {shown.data() + 16, {}}, {shown.data() + 18, {}}}};
    }
    StepFailure failure;
    EXPECT_TRUE(StepComparer().Compare(expected, view, {}, &failure)) << failure.message;
    shown[part == 0 ? 15 : part == 1 ? 17 : 19] ^= std::byte{1};
    EXPECT_FALSE(StepComparer().Compare(expected, view, {}, &failure)) << part;
  }
}

// A probe shows what the next query sees, tokens 3 and 4 of the four that are there.
TEST(StepComparer, WhatAProbeSawIsTheLeastThatIsRetained) {
  const auto judged = [](bool probed, const Change& change) {
    Step step({3, 4});
    step.seen.clear();
    step.view.probed = probed;
    if (change) change(&step);
    return step.Judge();
  };
  EXPECT_NE(judged(false, {}), StepFault::kNone);
  EXPECT_EQ(judged(true, {}), StepFault::kNone);
  EXPECT_EQ(judged(true, [](Step* s) { s->view.trimmable = Known::kNo; }), StepFault::kNone);
  EXPECT_EQ(judged(true, [](Step* s) { s->view.size = 2; }), StepFault::kNone);
  // Less than what it saw cannot be.
  EXPECT_EQ(judged(true, [](Step* s) { s->view.size = 1; }), StepFault::kSize);
  EXPECT_EQ(judged(true, [](Step* s) { s->view.size = 4; }), StepFault::kSize);
  EXPECT_EQ(judged(true, [](Step* s) { s->view.live_bytes = 2 * kHeads * 2 * 8 - 1; }),
            StepFault::kLiveBytes);
  EXPECT_EQ(judged(true, [](Step* s) { s->view.capacity_bytes = 2 * kHeads * 2 * 8 - 1; }),
            StepFault::kCapacity);
  EXPECT_EQ(judged(true, [](Step* s) { s->retained[0] = 1; }), StepFault::kRetainedMissing);
}

}  // namespace
}  // namespace kvcheck
