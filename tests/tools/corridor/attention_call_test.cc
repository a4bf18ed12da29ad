// Calls as kernels have them: the order of axes, packed and paged sequences, scales and masks mean
// what they say, and what contradicts itself is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/tools/corridor/waves.h"
#include "tools/corridor/kvcheck.h"

namespace kvcheck {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kHq = 4, kHkv = 2, kL = 5, kT = 9, kD = 8;

// An array and the memory that it lies in.
struct Owned {
  std::vector<float> data;
  std::vector<int64_t> extents;
  Array View() const { return {DType::kFloat32, extents, data.data()}; }
};

// The axes of x in another order, moved in memory.
Owned Moved(const Owned& x, const std::vector<size_t>& order) {
  Owned moved;
  for (const size_t axis : order) moved.extents.push_back(x.extents[axis]);
  std::vector<int64_t> at(order.size());
  for (size_t i = 0; i < x.data.size(); ++i) {
    for (size_t axis = order.size(), rest = i; axis-- > 0;) {
      const auto extent = static_cast<size_t>(moved.extents[axis]);
      at[order[axis]] = static_cast<int64_t>(rest % extent);
      rest /= extent;
    }
    size_t from = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) {
      from = from * static_cast<size_t>(x.extents[axis]) + static_cast<size_t>(at[axis]);
    }
    moved.data.push_back(x.data[from]);
  }
  return moved;
}

Settings Plain() {
  Settings settings;
  settings.plan = "base=plain_f32";
  return settings;
}

// The right answer to a call, rounded once.
Owned Right(const AttentionCall& call) {
  AttentionCall asked = call;
  asked.out.dtype = DType::kFloat32;
  const ExpectedValues values = ReferenceAttention(asked, Plain()).at("out");
  Owned out{{}, values.extents};
  for (const double value : values.value) out.data.push_back(static_cast<float>(value));
  return out;
}

Outcome Judged(const AttentionCall& call) { return JudgeAttention(call, Plain()).outcome; }

class AttentionCalls : public ::testing::Test {
 protected:
  AttentionCall Call() const {
    AttentionCall call;
    call.q = q_.View(), call.k = k_.View(), call.v = v_.View();
    return call;
  }
  static ErrorCode CodeOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::kUsage;
  }
  static std::string MessageOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  Owned q_{Waves(kBatch * kHq * kL * kD, 0), {kBatch, kHq, kL, kD}};
  Owned k_{Waves(kBatch * kHkv * kT * kD, 1), {kBatch, kHkv, kT, kD}};
  Owned v_{Waves(kBatch * kHkv * kT * kD, 2), {kBatch, kHkv, kT, kD}};
};

TEST_F(AttentionCalls, TheReferenceIsInsideItsBoundAndOneStepBesideItIsNot) {
  AttentionCall call = Call();
  Owned out = Right(call);
  call.out = out.View();
  EXPECT_EQ(Judged(call), Outcome::kPass);
  const ExpectedValues values = ReferenceAttention(call, Plain()).at("out");
  out.data[7] = static_cast<float>(values.value[7] + 2 * values.bound[7] + 0x1p-24);
  EXPECT_EQ(Judged(call), Outcome::kFail);
}

TEST_F(AttentionCalls, LayoutsAreOrdersOfAxes) {
  const Owned out = Right(Call());
  const struct {
    const char* name;
    std::vector<size_t> order;
  } layouts[] = {{"bshd", {0, 2, 1, 3}}, {"sbhd", {2, 0, 1, 3}}, {"dhbs", {3, 1, 0, 2}}};
  for (const auto& [name, order] : layouts) {
    const Owned q = Moved(q_, order), k = Moved(k_, order), v = Moved(v_, order);
    const Owned moved = Moved(out, order);
    AttentionCall call;
    call.q = q.View(), call.k = k.View(), call.v = v.View(), call.out = moved.View();
    call.layout = name;
    EXPECT_EQ(Judged(call), Outcome::kPass) << name;
    EXPECT_EQ(ReferenceAttention(call, Plain()).at("out").extents, out.extents) << name;
  }
  AttentionCall call = Call();
  call.out = out.View();
  for (const char* name : {"", "bhs", "bhhd", "bhsdx", "bhsx"}) {
    call.layout = name;
    EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kParse) << name;
  }
  call.layout = "hsd";
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);
}

TEST_F(AttentionCalls, MaskArraysOfEveryShapeHideTheirKeys) {
  // Key 2 is hidden from everybody, whatever the axes of the mask.
  const auto mask_of = [](const std::vector<int64_t>& extents) {
    std::vector<uint8_t> mask;
    int64_t rows = 1;
    for (size_t axis = 0; axis + 1 < extents.size(); ++axis) rows *= extents[axis];
    for (int64_t i = 0; i < rows * kT; ++i) mask.push_back(i % kT == 2 ? 0 : 1);
    return mask;
  };
  std::optional<Owned> right;
  for (const std::vector<int64_t>& extents : {std::vector<int64_t>{kT},
                                              {kL, kT},
                                              {1, kT},
                                              {kBatch, kL, kT},
                                              {kBatch, kHq, kL, kT},
                                              {kBatch, 1, 1, kT},
                                              {kBatch, 1, kL, kT},
                                              {1, 1, kL, kT},
                                              {1, kHq, 1, kT},
                                              {1, 1, 1, kT}}) {
    const std::vector<uint8_t> mask = mask_of(extents);
    AttentionCall call = Call();
    call.mask_array = Array{DType::kBool, extents, mask.data()};
    if (!right) right = Right(call);
    call.out = right->View();
    EXPECT_EQ(Judged(call), Outcome::kPass) << extents.size();
    call.mask_array.reset();
    EXPECT_EQ(Judged(call), Outcome::kFail);
  }
  const std::vector<uint8_t> mask(static_cast<size_t>(kL * kT), 1);
  AttentionCall call = Call();
  call.out = right->View();
  call.mask_array = Array{DType::kBool, {kT, kL}, mask.data()};
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);
}

TEST_F(AttentionCalls, PackedSequencesAreCasesOfTheirOwn) {
  // Row 0 of the batch with 3 queries and 4 keys, row 1 with all.
  const std::vector<int32_t> q_starts = {0, 3, 3 + kL}, k_starts = {0, 4, 4 + kT};
  Owned q{{}, {3 + kL, kHq, kD}}, k{{}, {4 + kT, kHkv, kD}}, v = k, out = q;
  for (const int64_t row : {0, 1}) {
    const int64_t queries = row == 0 ? 3 : kL, keys = row == 0 ? 4 : kT;
    const auto cut = [&](const Owned& x, int64_t heads, int64_t from, int64_t count) {
      Owned part{{}, {1, heads, count, kD}};
      for (int64_t h = 0; h < heads; ++h) {
        const auto first = x.data.begin() + ((row * heads + h) * from) * kD;
        part.data.insert(part.data.end(), first, first + count * kD);
      }
      return part;
    };
    const Owned part[] = {cut(q_, kHq, kL, queries), cut(k_, kHkv, kT, keys),
                          cut(v_, kHkv, kT, keys)};
    AttentionCall call;
    call.q = part[0].View(), call.k = part[1].View(), call.v = part[2].View();
    call.mask = "causal_bottom_right";
    const auto append = [](const Owned& from, Owned* to) {
      const Owned moved = Moved(from, {0, 2, 1, 3});
      to->data.insert(to->data.end(), moved.data.begin(), moved.data.end());
    };
    append(part[0], &q), append(part[1], &k), append(part[2], &v), append(Right(call), &out);
  }
  AttentionCall call;
  call.q = q.View(), call.k = k.View(), call.v = v.View(), call.out = out.View();
  call.layout = "shd";
  call.mask = "causal_bottom_right";
  call.cu_seqlens_q = Array{DType::kInt32, {3}, q_starts.data()};
  call.cu_seqlens_k = Array{DType::kInt32, {3}, k_starts.data()};
  const Verdict verdict = JudgeAttention(call, Plain());
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << TextOf(verdict);
  ASSERT_EQ(verdict.outputs.size(), 2U);
  EXPECT_EQ(verdict.outputs[1].name, "sequence 1: out");
  out.data.back() += 1;
  EXPECT_THAT(TextOf(JudgeAttention(call, Plain())),
              HasSubstr("sequence 1: out[b=0, hq=3, l=4, dv=7]"));
  // With padding of NaN between the sequences, which no one reads; each starts where it is said to.
  out.data.back() -= 1;
  const auto padded = [](const Owned& x, int64_t first_rows, int64_t start, int64_t rows,
                         float with = NAN) {
    const auto row = static_cast<size_t>(x.extents[1] * x.extents[2]);
    Owned longer{std::vector<float>(static_cast<size_t>(rows) * row, with),
                 {rows, x.extents[1], x.extents[2]}};
    const auto split =
        x.data.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first_rows) * row);
    std::copy(x.data.begin(), split, longer.data.begin());
    std::copy(split, x.data.end(),
              longer.data.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(start) * row));
    return longer;
  };
  const std::vector<int32_t> q_padded = {0, 5, 5 + kL}, k_padded = {0, 4 + 3, 4 + 3 + kT + 2};
  const Owned wide[] = {padded(q, 3, 5, 5 + kL + 1), padded(k, 4, 7, 7 + kT + 2),
                        padded(v, 4, 7, 7 + kT + 2), padded(out, 3, 5, 5 + kL + 1)};
  AttentionCall apart = call;
  apart.q = wide[0].View(), apart.k = wide[1].View(), apart.v = wide[2].View();
  apart.out = wide[3].View();
  apart.cu_seqlens_q_padded = Array{DType::kInt32, {3}, q_padded.data()};
  apart.cu_seqlens_k_padded = Array{DType::kInt32, {3}, k_padded.data()};
  const Verdict judged = JudgeAttention(apart, Plain());
  EXPECT_EQ(judged.outcome, Outcome::kPass) << TextOf(judged);
  EXPECT_EQ(judged.outputs.size(), 2U);
  EXPECT_THAT(TextOf(judged), HasSubstr("2 of 11 tokens are padding between sequences"));
  AttentionCall unsaid = apart;
  unsaid.cu_seqlens_q_padded.reset();
  unsaid.cu_seqlens_k_padded.reset();
  // Another sequence than was computed, with padding among its keys: of NaN, nothing of it is
  // defined, and nothing was judged; of zeros, which are keys like others, the answer is wrong.
  EXPECT_EQ(Judged(unsaid), Outcome::kMistrusted);
  const std::string undefined = TextOf(JudgeAttention(unsaid, Plain()));
  EXPECT_THAT(undefined, HasSubstr("sequence 1: out: nothing was judged: 160 elements, "
                                   "0 unconstrained, 160 undefined"));
  EXPECT_THAT(undefined, HasSubstr("3 of 11 tokens are behind the last sequence"));
  const Owned zeros[] = {padded(q, 3, 5, 5 + kL + 1, 0), padded(k, 4, 7, 7 + kT + 2, 0),
                         padded(v, 4, 7, 7 + kT + 2, 0), padded(out, 3, 5, 5 + kL + 1, 0)};
  unsaid.q = zeros[0].View(), unsaid.k = zeros[1].View(), unsaid.v = zeros[2].View();
  unsaid.out = zeros[3].View();
  EXPECT_EQ(Judged(unsaid), Outcome::kFail);
  EXPECT_THAT(TextOf(JudgeAttention(unsaid, Plain())), HasSubstr("FAIL  attention  sequence 1: "));
  unsaid = apart;
  unsaid.cu_seqlens_q.reset();
  EXPECT_EQ(CodeOf([&] { Judged(unsaid); }), ErrorCode::kMissingData);
  const std::vector<int32_t> narrow = {0, 2, 5 + kL};
  unsaid = apart;
  unsaid.cu_seqlens_q_padded = Array{DType::kInt32, {3}, narrow.data()};
  EXPECT_EQ(CodeOf([&] { Judged(unsaid); }), ErrorCode::kIllegalCase);
  out.data.back() += 1;
  // Arrays that are shorter than their sequences are not read beyond their end.
  for (Array* shorter : {&call.v, &call.out}) {
    shorter->extents[0] -= 1;
    EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);
    shorter->extents[0] += 1;
  }
  const std::vector<int32_t> falling = {0, 8, 3};
  call.cu_seqlens_q = Array{DType::kInt32, {3}, falling.data()};
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);
}

TEST_F(AttentionCalls, PagesAreReadByTheirTable) {
  // Pages of 3 tokens, those of the two sequences interleaved; of sequence 1 five tokens are there.
  constexpr int64_t kPage = 3;
  const std::vector<int32_t> table = {4, 0, 2, 1, 5, 3}, lens = {kT, 5};
  Owned pages[] = {{std::vector<float>(6 * kPage * kHkv * kD, NAN), {6, kPage, kHkv, kD}}, {}};
  pages[1] = pages[0];
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t t = 0; t < kT; ++t) {
      for (int64_t at = 0; at < kHkv * kD; ++at) {
        const int64_t page = table[static_cast<size_t>(b * 3 + t / kPage)];
        const auto to = static_cast<size_t>((page * kPage + t % kPage) * kHkv * kD + at);
        const auto from = static_cast<size_t>(((b * kHkv + at / kD) * kT + t) * kD + at % kD);
        pages[0].data[to] = k_.data[from];
        pages[1].data[to] = v_.data[from];
      }
    }
  }
  AttentionCall plain = Call();
  // Five keys of sequence 1: the others are hidden.
  std::vector<uint8_t> seen(static_cast<size_t>(kBatch * kT), 1);
  std::fill(seen.begin() + kT + 5, seen.end(), uint8_t{0});
  plain.mask_array = Array{DType::kBool, {kBatch, 1, 1, kT}, seen.data()};
  const Owned q = Moved(q_, {0, 2, 1, 3}), out = Moved(Right(plain), {0, 2, 1, 3});
  AttentionCall call;
  call.q = q.View(), call.k = pages[0].View(), call.v = pages[1].View(), call.out = out.View();
  call.layout = "bshd";
  call.block_table = Array{DType::kInt32, {2, 3}, table.data()};
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kMissingData);  // without kv_lens
  call.kv_lens = Array{DType::kInt32, {2}, lens.data()};
  const Verdict verdict = JudgeAttention(call, Plain());
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << TextOf(verdict);
  // The same pages as one list; of sequence 1 those behind its five keys are not listed.
  AttentionCall listed = call;
  const std::vector<int32_t> list(table.begin(), table.end() - 1), starts = {0, 3, 5};
  listed.block_table = Array{DType::kInt32, {5}, list.data()};
  EXPECT_EQ(CodeOf([&] { Judged(listed); }), ErrorCode::kIllegalCase);  // without the starts
  listed.block_starts = Array{DType::kInt32, {3}, starts.data()};
  EXPECT_EQ(Judged(listed), Outcome::kPass);
  const std::vector<int32_t> shifted = {0, 2, 5}, beyond = {0, 3, 6};
  for (const auto& wrong : {shifted, beyond}) {
    listed.block_starts->data = wrong.data();
    EXPECT_EQ(CodeOf([&] { Judged(listed); }), ErrorCode::kIllegalCase);
  }
  const std::vector<int32_t> others = {kT, 6}, many = {kT, 10}, outside = {4, 0, 2, 1, 6, 3};
  call.kv_lens->data = others.data();
  EXPECT_EQ(Judged(call), Outcome::kFail);
  call.kv_lens->data = many.data();
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);
  call.kv_lens->data = lens.data();
  call.out.extents[0] = 1;
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);
  call.out.extents[0] = kBatch;
  call.kv_lens->data = lens.data();
  call.block_table->data = outside.data();
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);
}

TEST_F(AttentionCalls, PagesWithHeadsAndTokensExchangedAreRefusedByTheirOrder) {
  // One sequence of 7 tokens in 2 pages of 4, of 2 heads; q has 4 heads.
  constexpr int64_t kPage = 4;
  const Owned pages{Waves(2 * kPage * kHkv * kD, 1), {2, kPage, kHkv, kD}};
  const Owned q{Waves(kHq * kD, 0), {1, 1, kHq, kD}};
  const std::vector<int32_t> table = {0, 1}, lens = {7};
  AttentionCall call;
  call.q = call.out = q.View();
  call.k = call.v = pages.View();
  call.layout = "bshd";
  call.block_table = Array{DType::kInt32, {1, 2}, table.data()};
  call.kv_lens = Array{DType::kInt32, {1}, lens.data()};
  EXPECT_EQ(Judged(call), Outcome::kFail);  // q is no answer, but the pages are read
  call.k.extents = call.v.extents = {2, kHkv, kPage, kD};
  const std::string said = MessageOf([&] { Judged(call); });
  EXPECT_THAT(said, HasSubstr("layout 'bshd' reads the pages as 2 tokens of 4 heads"));
  EXPECT_THAT(said, HasSubstr("(pages, heads, tokens, D), which FlashInfer calls HND"));
  EXPECT_THAT(said, HasSubstr("k.swapaxes(-3, -2)"));
  call.layout = "bhsd";
  call.q.extents = call.out.extents = {1, kHq, 1, kD};
  EXPECT_EQ(Judged(call), Outcome::kFail);
  call.k.extents = call.v.extents = {2, kPage, kHkv, kD};
  EXPECT_THAT(MessageOf([&] { Judged(call); }), HasSubstr("FlashInfer calls NHD"));
}

TEST_F(AttentionCalls, AnLseOfAnotherTypeOrOrderIsAMistakeOfTheCall) {
  AttentionCall call = Call();
  const Owned out = Right(call);
  call.out = out.View();
  const Owned lse{Waves(kBatch * kHq * kL, 0), {kBatch, kL, kHq}};
  call.lse = lse.View();
  const std::string said = MessageOf([&] { Judged(call); });
  EXPECT_THAT(said, HasSubstr("extents 2 x 5 x 4, where lse_layout 'bhs'"));
  EXPECT_THAT(said, HasSubstr("ask for 2 x 4 x 5; lse_layout 'bsh' fits"));
  call.lse_layout = "bsh";
  EXPECT_EQ(Judged(call), Outcome::kFail);
  call.lse->extents = {kBatch, kL, kHq - 1};
  EXPECT_THAT(MessageOf([&] { Judged(call); }), HasSubstr("no order of its axes fits"));
  call.lse = lse.View();
  call.lse->dtype = DType::kInt32;
  EXPECT_THAT(MessageOf([&] { Judged(call); }),
              HasSubstr("has type int32, where a log-sum-exp beside an output in float32 is "
                        "float32, float64, float16 or bfloat16"));
}

TEST_F(AttentionCalls, QueriesOfASequenceWithoutKeysAreFullyMasked) {
  AttentionCall call = Call();
  call.mask = "causal_bottom_right";
  Owned out = Right(call);
  std::fill(out.data.begin() + kHq * kL * kD, out.data.end(), 0.0f);
  AttentionCall asked = call;
  asked.lse.emplace();
  ExpectedValues lse = ReferenceAttention(asked, Plain()).at("lse");
  call.out = out.View();
  const std::vector<int32_t> lens = {kT, 0}, none = {0, 0};
  call.kv_lens = Array{DType::kInt32, {2}, lens.data()};
  EXPECT_EQ(Judged(call), Outcome::kPass);
  // Their lse is that of an empty sum.
  std::fill(lse.value.begin() + kHq * kL, lse.value.end(), -INFINITY);
  AttentionCall with_lse = call;
  with_lse.lse = Array{DType::kFloat64, lse.extents, lse.value.data()};
  const Verdict verdict = JudgeAttention(with_lse, Plain());
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << TextOf(verdict);
  ExpectedValues wrong = lse;
  for (const double value : {5.0, std::numeric_limits<double>::quiet_NaN()}) {
    wrong.value.back() = value;
    with_lse.lse->data = wrong.value.data();
    EXPECT_THAT(TextOf(JudgeAttention(with_lse, Plain())), HasSubstr("sequence 1: lse"));
  }
  with_lse.kv_lens->data = none.data();
  std::fill(wrong.value.begin(), wrong.value.end(), -std::numeric_limits<double>::infinity());
  std::fill(out.data.begin(), out.data.end(), 0.0f);
  EXPECT_EQ(Judged(with_lse), Outcome::kMistrusted);
  call.kv_lens->data = none.data();
  EXPECT_EQ(Judged(call), Outcome::kMistrusted);
  out.data.back() = 1;
  EXPECT_THAT(TextOf(JudgeAttention(call, Plain())),
              HasSubstr("sequence 1: out[b=0, hq=3, l=4, dv=7]"));
}

TEST_F(AttentionCalls, AnLseInF64BesideNarrowerOutputsIsTheF32NextToIt) {
  AttentionCall call = Call();
  const Owned out = Right(call);
  call.out = out.View();
  call.lse.emplace();
  ExpectedValues lse = ReferenceAttention(call, Plain()).at("lse");
  call.lse = Array{DType::kFloat64, lse.extents, lse.value.data()};
  EXPECT_EQ(Judged(call), Outcome::kPass);
  // More than the bound and what rounding to f32 may take back.
  lse.value[3] += 2 * lse.bound[3] + 0x1p-23 * std::fabs(lse.value[3]);
  EXPECT_EQ(Judged(call), Outcome::kFail);
}

TEST_F(AttentionCalls, PackedSequencesHaveTheirMasksInOneList) {
  // Each sequence alone, under a mask of its own.
  AttentionCall packed = Call();
  const Owned q = Moved(q_, {0, 2, 1, 3}), k = Moved(k_, {0, 2, 1, 3}), v = Moved(v_, {0, 2, 1, 3});
  std::vector<uint8_t> masks(static_cast<size_t>(kBatch * kL * kT));
  for (size_t i = 0; i < masks.size(); ++i) masks[i] = i % 3 != 1;
  AttentionCall plain = Call();
  plain.mask_array = Array{DType::kBool, {kBatch, kL, kT}, masks.data()};
  const Owned out = Moved(Right(plain), {0, 2, 1, 3});
  const auto flat = [](const Owned& x) {
    return Array{
        DType::kFloat32, {x.extents[0] * x.extents[1], x.extents[2], x.extents[3]}, x.data.data()};
  };
  packed.layout = "shd";
  packed.q = flat(q), packed.k = flat(k), packed.v = flat(v), packed.out = flat(out);
  const std::vector<int32_t> q_starts = {0, kL, 2 * kL}, k_starts = {0, kT, 2 * kT};
  packed.cu_seqlens_q = Array{DType::kInt32, {3}, q_starts.data()};
  packed.cu_seqlens_k = Array{DType::kInt32, {3}, k_starts.data()};
  const auto elements = static_cast<int64_t>(masks.size());
  packed.mask_array = Array{DType::kBool, {elements}, masks.data()};
  EXPECT_EQ(Judged(packed), Outcome::kPass);
  // One key of the last query of sequence 1.
  masks.back() = masks.back() ? 0 : 1;
  EXPECT_EQ(Judged(packed), Outcome::kFail);
  for (const int64_t count : {elements - 1, elements + 1, int64_t{0}}) {
    std::vector<uint8_t> other(static_cast<size_t>(count) + 1, 1);
    packed.mask_array = Array{DType::kBool, {count}, other.data()};
    EXPECT_EQ(CodeOf([&] { Judged(packed); }), ErrorCode::kIllegalCase) << count;
  }
}

TEST_F(AttentionCalls, ScalesMultiplyTheirCodes) {
  std::vector<int8_t> codes[2];
  Owned wide[] = {k_, v_};
  const std::vector<float> by_head[] = {{0.25f, 0.5f}, {0.125f, 2.0f}};
  for (size_t of = 0; of < 2; ++of) {
    for (size_t i = 0; i < wide[of].data.size(); ++i) {
      const size_t head = i / (kT * kD) % kHkv;
      codes[of].push_back(static_cast<int8_t>(std::lround(20 * wide[of].data[i])));
      wide[of].data[i] = by_head[of][head] * static_cast<float>(codes[of][i]);
    }
  }
  AttentionCall plain = Call();
  plain.k = wide[0].View(), plain.v = wide[1].View();
  const Owned out = Right(plain);
  AttentionCall call = Call();
  call.out = out.View();
  call.k = Array{DType::kInt8, k_.extents, codes[0].data()};
  call.v = Array{DType::kInt8, v_.extents, codes[1].data()};
  EXPECT_EQ(CodeOf([&] { Judged(call); }), ErrorCode::kIllegalCase);  // integers without a scale
  call.k_scale = Array{DType::kFloat32, {2}, by_head[0].data()};
  call.v_scale = Array{DType::kFloat32, {2}, by_head[1].data()};
  Settings settings;
  EXPECT_EQ(JudgeAttention(call, settings).outcome, Outcome::kPass);
  call.v_scale->data = by_head[0].data();
  EXPECT_EQ(JudgeAttention(call, settings).outcome, Outcome::kFail);
  call.v_scale->extents = {1};
  EXPECT_EQ(JudgeAttention(call, settings).outcome, Outcome::kFail);
  call.v_scale->extents = {0};
  EXPECT_EQ(CodeOf([&] { JudgeAttention(call, settings); }), ErrorCode::kIllegalCase);
}

TEST_F(AttentionCalls, AFailureIsSavedAndAPassIsNot) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "attention_call_test.h5").string();
  std::filesystem::remove(path);
  AttentionCall call = Call();
  Owned out = Right(call);
  call.out = out.View();
  Settings settings = Plain();
  settings.save = path;
  EXPECT_EQ(JudgeAttention(call, settings).command, "");
  EXPECT_FALSE(std::filesystem::exists(path));
  out.data[3] += 1;
  const Verdict verdict = JudgeAttention(call, settings);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_THAT(verdict.command, HasSubstr("kvcheck run --data"));
  EXPECT_THAT(verdict.command, HasSubstr("attention_call_test.h5#case"));
  std::filesystem::remove(path);
}

TEST(Rows, AreEncodedAndDecodedInEveryFormatOfTheirPlanes) {
  const std::vector<float> x = Waves(3 * 128, 0);
  const Array rows{DType::kFloat32, {3, 128}, x.data()};
  for (const char* format : {"bf16", "q8_0", "affine:8:g64:f32", "fp8:e4m3fn:inline:f32"}) {
    const TensorMap planes = EncodeRows(rows, format);
    Arrays stored;
    for (const auto& [name, tensor] : planes) {
      stored[name] = {tensor.dtype, {3, tensor.shape.RowLength()}, tensor.bytes.data()};
    }
    const Tensor y = DecodeRows(stored, format, DType::kFloat32, 0);
    EXPECT_EQ(y.shape.RowLength(), 128) << format;
    Arrays outputs = {{"y", {DType::kFloat32, {3, 128}, y.bytes.data()}}};
    const std::string text =
        std::string("codec op=round_trip format=") + format + " x=f32 rows=3 d=128 data=file";
    EXPECT_EQ(JudgeCase(text, {{"x", rows}}, outputs).outcome, Outcome::kPass) << format;
    stored.begin()->second.extents[1] -= 1;
    EXPECT_THROW(DecodeRows(stored, format, DType::kFloat32, 128), Error) << format;
  }
  EXPECT_THROW(EncodeRows({DType::kFloat32, {384}, x.data()}, "bf16"), Error);
}

TEST(DrawnCases, AreAnsweredByImplementationsOfThisProgramAlone) {
  const std::string text =
      "attention hq=2 hkv=1 l=3 t=5 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1";
  EXPECT_EQ(DrawInputs(text).at("q").ElementCount(), 2 * 3 * 8);
  Arrays outputs;
  TensorMap answer = AnswerCase(text, {}, "simulated:base=plain_f32", Plain());
  const auto judge = [&] {
    const Tensor& out = answer.at("out");
    return JudgeCase(text, {}, {{"out", {out.dtype, {1, 2, 3, 8}, out.bytes.data()}}}, Plain())
        .outcome;
  };
  EXPECT_EQ(judge(), Outcome::kPass);
  answer = AnswerCase(text, {}, "fault:last_key_dropped", Plain());
  EXPECT_EQ(judge(), Outcome::kFail);
  EXPECT_THROW(AnswerCase(text, {}, "/bin/true"), Error);
  EXPECT_THROW(AnswerCase(text, {}, "nobody"), Error);
}

}  // namespace
}  // namespace kvcheck
