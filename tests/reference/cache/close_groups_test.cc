// Formats that code groups of tokens, in the model: which tokens are coded, with which bytes, and
// what a row can go back to (contract.md, section 4.1).

#include "reference/cache/close_groups.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "reference/cache/model_cache.h"
#include "reference/data/token_rows.h"
#include "reference/formats/codec.h"
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

}  // namespace
}  // namespace kvcheck
