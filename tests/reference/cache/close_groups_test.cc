// Formats that code groups of tokens, in the model: which tokens are coded, with which bytes, and
// what a row can go back to (contract.md, section 4.1).

#include "reference/cache/close_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "reference/cache/model_cache.h"
#include "reference/data/token_rows.h"
#include "reference/formats/codec.h"
#include "reference/formats/error_bound.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

constexpr int64_t kDim = 8;
constexpr int64_t kHeads = 2;

KvFormat Format(const std::string& text) { return ParseKvFormat(WholeLine(text)); }

CacheSetup SetupOf(const KvFormat& k, const KvFormat& v) {
  CacheSetup setup;
  setup.kv_heads = kHeads;
  setup.query_heads = kHeads;
  setup.k_dim = setup.v_dim = kDim;
  setup.k = k;
  setup.v = v;
  return setup;
}

// Vectors of the tokens [first, first + count) of one row, (heads, count, channels) of f32.
std::vector<float> Vectors(TokenPart part, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(kHeads * count * kDim));
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t n = 0; n < count; ++n) {
      FillTokenVector(1, TokenId(0, 0, first + n), h, part, DType::kFloat32, kDim,
                      reinterpret_cast<std::byte*>(values.data() + (h * count + n) * kDim));
    }
  }
  return values;
}

void Append(Cache* cache, int64_t first, int64_t count) {
  const std::vector<float> k = Vectors(TokenPart::kKey, first, count);
  const std::vector<float> v = Vectors(TokenPart::kValue, first, count);
  TokenColumns columns;
  columns.rows = 1;
  columns.kv_heads = kHeads;
  columns.columns = count;
  columns.k_dim = columns.v_dim = kDim;
  columns.k = reinterpret_cast<const std::byte*>(k.data());
  columns.v = reinterpret_cast<const std::byte*>(v.data());
  columns.k_strides = columns.v_strides = {0, count * kDim * 4, kDim * 4};
  ASSERT_TRUE(cache->Append(columns).ok());
}

// The bytes that a view shows of one token of K, plane after plane.
std::vector<std::byte> Shown(const StepView& view, int64_t head, int64_t column) {
  std::vector<std::byte> bytes;
  const Planes planes = TokenPlanesOf(view.k.format, kDim);
  for (size_t i = 0; i < planes.size(); ++i) {
    const std::byte* at = view.k.planes[i].At(0, head, column);
    bytes.insert(bytes.end(), at, at + planes[i].Bytes());
  }
  return bytes;
}

class Row {
 public:
  Row(const std::string& k, const CacheRules& rules = {}) : factory_(rules) {
    const CacheSetup setup = SetupOf(Format(k), PlainFormat{});
    EXPECT_TRUE(factory_.Start(setup).ok());
    EXPECT_TRUE(factory_.New({}, setup.k, setup.v, 1, {}, &cache_).ok());
  }
  void Feed(const std::vector<int64_t>& counts) {
    for (const int64_t count : counts) {
      Append(cache_.get(), tokens_, count);
      tokens_ += count;
    }
  }
  StepView View() {
    StepView view;
    cache_->Observe(&view);
    return view;
  }
  Cache* cache() { return cache_.get(); }
  ModelFactory& factory() { return factory_; }

 private:
  ModelFactory factory_;
  std::unique_ptr<Cache> cache_;
  int64_t tokens_ = 0;
};

// Of 21 tokens 16 are coded, 4 by 4, wherever appends end.
TEST(CloseGroups, ClosedTokensHaveTheBytesOfTheirGroupAndOthersTheirOwn) {
  const KvFormat format = Format("channel:4:g4:r8:f32");
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{21}, {8, 8, 5}, {7, 1, 13}, {1, 1, 1, 17, 1}}) {
    Row row("channel:4:g4:r8:f32");
    row.Feed(counts);
    const StepView view = row.View();
    ASSERT_EQ(view.columns, 21);
    const std::vector<float> x = Vectors(TokenPart::kKey, 0, 21);
    for (int64_t h = 0; h < kHeads; ++h) {
      Tensor groups(DType::kFloat32, {{"", 4}, {"", 4 * kDim}});
      std::memcpy(groups.bytes.data(), x.data() + h * 21 * kDim, groups.bytes.size());
      const TensorMap coded = EncodeRows(format, {}, groups);
      for (int64_t t = 0; t < 21; ++t) {
        std::vector<std::byte> want;
        const auto take = [&](const std::byte* at, size_t bytes) {
          want.insert(want.end(), at, at + bytes);
        };
        if (t < 16) {
          // 8 codes of 4 bits a token; scales and zeros of its group.
          take(coded.at("codes").bytes.data() + 4 * t, 4);
          take(coded.at("scales").bytes.data() + t / 4 * kDim * 4, kDim * 4);
          take(coded.at("zeros").bytes.data() + t / 4 * kDim * 4, kDim * 4);
        } else {
          want.assign(4 + kDim * 4, std::byte{0});
          take(reinterpret_cast<const std::byte*>(x.data() + (h * 21 + t) * kDim), kDim * 4);
        }
        EXPECT_EQ(Shown(view, h, t), want) << "token " << t << " of head " << h;
      }
    }
    EXPECT_EQ(view.live_bytes,
              kHeads * (4 * (4 * kDim / 2 + 2 * kDim * 4) + 5 * kDim * 4 + 21 * kDim * 4));
    EXPECT_EQ(view.trimmable, Known::kYes);
  }
}

TEST(CloseGroups, TrimEndsInsideTheResidualOrBetweenResiduals) {
  for (const auto& [asked, got] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {5, 5}, {6, 5}, {12, 5}, {13, 13}, {20, 13}, {21, 21}, {30, 21}}) {
    Row row("channel:4:g4:r8:f32");
    row.Feed({21});
    int64_t trimmed = -1;
    ASSERT_TRUE(row.cache()->Trim(asked, &trimmed).ok());
    EXPECT_EQ(trimmed, got) << asked;
  }
  Row full("channel:4:g8:f32");
  full.Feed({8});
  EXPECT_EQ(full.View().trimmable, Known::kNo);
  int64_t trimmed = -1;
  ASSERT_TRUE(full.cache()->Trim(7, &trimmed).ok());
  EXPECT_EQ(trimmed, 0);
}

TEST(CloseGroups, OtherLayoutsRefuseThem) {
  ModelFactory factory;
  const KvFormat k = Format("channel:4:g8:f32");
  const KvFormat f32 = PlainFormat{};
  ASSERT_TRUE(factory.Start(SetupOf(f32, f32)).ok());
  std::unique_ptr<Cache> cache;
  for (const CacheLayout& layout :
       {CacheLayout{LayoutKind::kRing, 4, 1, 0}, CacheLayout{LayoutKind::kChunk, 0, 0, 8},
        CacheLayout{LayoutKind::kLinear, 4, 0, 0}}) {
    EXPECT_EQ(factory.New(layout, k, f32, 1, {}, &cache).status, OpStatus::kRefused);
    EXPECT_EQ(factory.New(layout, f32, k, 1, {}, &cache).status, OpStatus::kRefused);
    ASSERT_TRUE(factory.New(layout, f32, f32, 1, {}, &cache).ok());
    EXPECT_EQ(cache->ToQuantized(k, f32).status, OpStatus::kRefused);
  }
}

TEST(CloseGroups, QuantizedLaterIsTheSame) {
  Row early("channel:4:g4:r8:f32");
  early.Feed({21});
  Row late("f32");
  late.Feed({21});
  ASSERT_TRUE(late.cache()->ToQuantized(Format("channel:4:g4:r8:f32"), PlainFormat{}).ok());
  const StepView want = early.View();
  const StepView got = late.View();
  for (int64_t t = 0; t < 21; ++t) EXPECT_EQ(Shown(got, 1, t), Shown(want, 1, t)) << t;
}

TEST(CloseGroups, ARecordKeepsGroupsAndResidual) {
  Row row("channel:8:g4:r8:f32");
  row.Feed({21});
  MemoryStateStore store;
  ASSERT_TRUE(row.cache()->Save(&store, "a").ok());
  std::unique_ptr<Cache> loaded;
  ASSERT_TRUE(row.factory().Load(store, "a", &loaded).ok());
  Append(loaded.get(), 21, 3);
  row.Feed({3});
  StepView view;
  loaded->Observe(&view);
  const StepView want = row.View();
  for (int64_t t = 0; t < 24; ++t) EXPECT_EQ(Shown(view, 1, t), Shown(want, 1, t)) << t;
}

TEST(CloseGroups, AReplacedRuleChangesWhatIsStored) {
  CacheRules rules;
  rules.groups.groups = [](const KvFormat&, int64_t, std::vector<int64_t>* groups) {
    groups->clear();
  };
  Row right("channel:4:g8:f32");
  Row faulty("channel:4:g8:f32", rules);
  right.Feed({8});
  faulty.Feed({8});
  const StepView want = right.View();
  const std::vector<std::byte> coded = Shown(want, 0, 3);
  const StepView got = faulty.View();
  EXPECT_NE(Shown(got, 0, 3), coded);
}

CacheRules Stating(const std::string& profile, ChannelWriter writer = ChannelWriter::kKivi) {
  CacheRules rules;
  rules.profile = ParseCacheProfile(profile);
  rules.conventions.channel = writer;
  return rules;
}

// The stored form of one token and head in f32: a code, scale and zero per channel.
struct Stored {
  std::vector<float> codes, scales, zeros;
  // As it is read: rounded once.
  float Read(ChannelWriter writer, size_t c) const {
    if (writer == ChannelWriter::kKivi || scales[c] == 0) {
      return std::fma(codes[c], scales[c], zeros[c]);
    }
    return static_cast<float>((static_cast<double>(codes[c]) - zeros[c]) * scales[c]);
  }
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> bytes(kDim / 2);
    for (size_t c = 0; c < kDim; ++c) {
      bytes[c / 2] |= std::byte(static_cast<unsigned>(codes[c]) << c % 2 * 4);
    }
    for (const std::vector<float>* part : {&scales, &zeros}) {
      const auto* at = reinterpret_cast<const std::byte*>(part->data());
      bytes.insert(bytes.end(), at, at + kDim * 4);
    }
    return bytes;
  }
};

// 4 bits, by the formulas of formats.md, section G.
void Code(ChannelWriter writer, std::span<Stored> group) {
  for (size_t c = 0; c < kDim; ++c) {
    std::vector<float> x;
    for (const Stored& token : group) x.push_back(token.Read(writer, c));
    const auto [least, most] = std::minmax_element(x.begin(), x.end());
    const float minimum = *least;
    float scale = 0, zero = 0;
    if (writer == ChannelWriter::kKivi) {
      scale = (*most - minimum) / 15.0f;
      zero = minimum;
    } else {
      scale = (*most - minimum) * (1.0f / 15.0f);
      if (scale == 0) scale = 1e-4f;
      zero = -minimum / scale;
    }
    for (size_t t = 0; t < group.size(); ++t) {
      const float at = writer == ChannelWriter::kOpenvino ? std::fma(x[t], 1 / scale, zero)
                       : scale == 0                       ? 0.0f
                                                          : (x[t] - zero) / scale;
      group[t].codes[c] = std::clamp(std::nearbyint(at), 0.0f, 15.0f);
      group[t].scales[c] = scale;
      group[t].zeros[c] = zero;
    }
  }
}

// What a row of one head holds after appends of these counts, of groups of 4 and a residual of 8.
std::vector<Stored> HeldAfter(RegroupRule rule, ChannelWriter writer, int64_t head,
                              const std::vector<int64_t>& counts) {
  std::vector<Stored> held;
  size_t coded = 0;
  for (const int64_t count : counts) {
    const size_t before = held.size();
    const std::vector<float> x = Vectors(TokenPart::kKey, static_cast<int64_t>(before), count);
    for (int64_t n = 0; n < count; ++n) {
      const float* at = x.data() + (head * count + n) * kDim;
      held.push_back({std::vector<float>(kDim), std::vector<float>(kDim), {at, at + kDim}});
    }
    if (rule == RegroupRule::kOpen) {
      for (size_t first = before / 4 * 4; first < held.size(); first += 4) {
        Code(writer, {held.data() + first, std::min<size_t>(4, held.size() - first)});
      }
    } else if (before == 0 || held.size() - coded >= 8) {
      coded = held.size() / 4 * 4;
      for (size_t first = 0; first < coded; first += 4) Code(writer, {held.data() + first, 4});
    }
  }
  return held;
}

TEST(Regroup, AnAppendCodesAgainWhatTheProfileSaysAndNothingElse) {
  for (const auto& [profile, rule, writer] :
       {std::tuple{"regroup=all", RegroupRule::kAll, ChannelWriter::kKivi},
        {"regroup=all", RegroupRule::kAll, ChannelWriter::kOpenvino},
        {"regroup=open", RegroupRule::kOpen, ChannelWriter::kKivi},
        {"regroup=open", RegroupRule::kOpen, ChannelWriter::kOpenvino}}) {
    for (const std::vector<int64_t>& counts : {std::vector<int64_t>{1},
                                               {3, 1},
                                               {5, 3, 4, 1},
                                               {8, 7, 1, 8},
                                               {1, 1, 1, 1, 1, 1, 1, 1, 1},
                                               {2, 129}}) {
      Row row("channel:4:g4:r8:f32", Stating(profile, writer));
      row.Feed(counts);
      const StepView view = row.View();
      for (int64_t h = 0; h < kHeads; ++h) {
        const std::vector<Stored> held = HeldAfter(rule, writer, h, counts);
        ASSERT_EQ(view.columns, std::ssize(held));
        for (int64_t t = 0; t < view.columns; ++t) {
          ASSERT_EQ(Shown(view, h, t), held[static_cast<size_t>(t)].Bytes())
              << profile << " token " << t << " of " << held.size();
        }
      }
    }
  }
}

TEST(Regroup, NumbersAreThoseOfWhatIsCoded) {
  const int64_t vector = kDim * 4, codes = kDim / 2, shared = 2 * kDim * 4;
  // 5 tokens at once, of which 4 are coded, and 7 that do not fill the residual.
  Row all("channel:4:g4:r8:f32", Stating("regroup=all"));
  all.Feed({5, 6});
  EXPECT_EQ(all.View().live_bytes, kHeads * (4 * codes + shared + 7 * vector + 11 * vector));
  int64_t trimmed = -1;
  ASSERT_TRUE(all.cache()->Trim(8, &trimmed).ok());
  EXPECT_EQ(trimmed, 7);  // back to what is coded, or to nothing
  ASSERT_TRUE(all.cache()->Trim(3, &trimmed).ok());
  EXPECT_EQ(trimmed, 0);
  EXPECT_EQ(all.View().trimmable, Known::kNo);
  ASSERT_TRUE(all.cache()->Trim(9, &trimmed).ok());
  EXPECT_EQ(trimmed, 4);

  Row open("channel:4:g4:r8:f32", Stating("regroup=open"));
  open.Feed({5, 6});
  EXPECT_EQ(open.View().live_bytes, kHeads * (11 * codes + 3 * shared + 11 * vector));
  ASSERT_TRUE(open.cache()->Trim(2, &trimmed).ok());
  EXPECT_EQ(trimmed, 0);  // the last group was coded with them
  ASSERT_TRUE(open.cache()->Trim(6, &trimmed).ok());
  EXPECT_EQ(trimmed, 3);
}

TEST(Regroup, ARecordKeepsHowManyTokensAreCoded) {
  Row row("channel:4:g4:r8:f32", Stating("regroup=all"));
  row.Feed({5, 6});
  MemoryStateStore store;
  ASSERT_TRUE(row.cache()->Save(&store, "a").ok());
  std::unique_ptr<Cache> loaded;
  ASSERT_TRUE(row.factory().Load(store, "a", &loaded).ok());
  Append(loaded.get(), 11, 1);  // fills the residual
  StepView view;
  loaded->Observe(&view);
  const std::vector<Stored> held = HeldAfter(RegroupRule::kAll, ChannelWriter::kKivi, 1, {5, 6, 1});
  for (int64_t t = 0; t < 12; ++t) {
    EXPECT_EQ(Shown(view, 1, t), held[static_cast<size_t>(t)].Bytes()) << t;
  }
}

// Queries of an append that codes see what was there before, and the new vectors themselves.
TEST(Regroup, QueriesMayReadWhatWasThereBefore) {
  Row row("channel:4:g4:r8:f32", Stating("regroup=all reads=before"));
  row.Feed({5, 7});
  const StepView view = row.View();
  ASSERT_EQ(view.columns, 24);
  const std::vector<Stored> before = HeldAfter(RegroupRule::kAll, ChannelWriter::kKivi, 0, {5});
  const std::vector<Stored> after = HeldAfter(RegroupRule::kAll, ChannelWriter::kKivi, 0, {5, 7});
  for (int64_t t = 0; t < 12; ++t) {
    const auto at = static_cast<size_t>(t);
    if (t < 5) {
      EXPECT_EQ(Shown(view, 0, t), before[at].Bytes()) << t;
    }
    EXPECT_EQ(Shown(view, 0, 12 + t), after[at].Bytes()) << t;
    EXPECT_EQ(view.retained[0] >> t & 1u, 0u) << t;
    EXPECT_EQ(view.retained[0] >> (12 + t) & 1u, 1u) << t;
  }
  EXPECT_EQ(view.visible[6], 0xfffu);  // of the last of 7 queries
  // The step is over: what is stored alone.
  std::unique_ptr<Cache> copied;
  ASSERT_TRUE(row.cache()->CopyTo(&copied).ok());
  StepView shown;
  copied->Observe(&shown);
  EXPECT_EQ(shown.columns, 12);
}

// |x_m - x_0| <= b_1 + ... + b_m, the bounds of the round trips of the passes (contract.md, 4.1).
TEST(Regroup, ErrorsAddUpWithinTheSumOfTheBoundsOfThePasses) {
  for (const int bits : {4, 8}) {
    const KvFormat format = ChannelFormat{bits, 16, 0, DType::kFloat32};
    Row row(Print(format), Stating("regroup=open"));
    std::vector<double> sums, last;  // per token and channel
    std::vector<float> given, read;
    int64_t beyond_one_pass = 0;
    double largest = 0;
    for (int64_t n = 1; n <= 16; ++n) {
      row.Feed({1});
      const std::vector<float> x = Vectors(TokenPart::kKey, n - 1, 1);
      given.insert(given.end(), x.begin(), x.begin() + kDim);
      read.insert(read.end(), x.begin(), x.begin() + kDim);
      sums.resize(given.size());
      // One token is coded as two equal ones.
      std::vector<double> before(read.begin(), read.end());
      if (n == 1) before.insert(before.end(), read.begin(), read.end());
      const KvFormat group = OpenGroupOf(format, std::max<int64_t>(n, 2));
      const RowBound bound = RoundTripBound(group, Profile{}, DecodeRounding::kOneRounding,
                                            DType::kFloat32, std::nullopt, before);
      const StepView view = row.View();
      const std::unique_ptr<RowArithmetic> token =
          ArithmeticOf(TokenFormatOf(format))->MakeRows(Profile{}, kDim);
      for (int64_t t = 0; t < n; ++t) {
        std::vector<double> values(kDim);
        std::array<const std::byte*, 3> planes{};
        for (size_t i = 0; i < 3; ++i) planes[i] = view.k.planes[i].At(0, 0, t);
        token->DecodeToRowType({planes.data(), 3}, values);
        for (int64_t c = 0; c < kDim; ++c) {
          const auto i = static_cast<size_t>(t * kDim + c);
          const auto value = values[static_cast<size_t>(c)];
          ASSERT_LE(std::fabs(value - read[i]), bound.total[i]) << n << " " << t << " " << c;
          sums[i] += bound.total[i];
          const double error = std::fabs(value - given[i]);
          ASSERT_LE(error, sums[i]) << n << " " << t << " " << c;
          beyond_one_pass += error > bound.total[i] ? 1 : 0;
          largest = std::max(largest, error / sums[i]);
          read[i] = static_cast<float>(value);
        }
      }
    }
    // The bound of a single pass would not have done, and the sum is none of another size.
    EXPECT_GT(beyond_one_pass, 0) << bits;
    EXPECT_GT(largest, 0.5) << bits;
  }
}

}  // namespace
}  // namespace kvcheck
