// Values behind a residual, in the model: which tokens are codes and which are vectors, with which
// bytes, under KIVI's schedule and transformers' (contract.md, section 4.1).

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "reference/cache/model_cache.h"
#include "reference/data/token_rows.h"
#include "reference/formats/codec.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

constexpr int64_t kChannels = 64;
constexpr int64_t kValueHeads = 2;
constexpr size_t kVector = kChannels * 4;
const char* const kFormat = "affine:4:g32:r3:f32";

KvFormat FormatNamed(const std::string& text) { return ParseKvFormat(WholeLine(text)); }

Profile OfKivi() {
  Profile profile;
  profile.encode = AffineEncoder::kKivi;
  return profile;
}

// (heads, count, channels) of f32.
std::vector<float> ValuesOf(TokenPart part, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(kValueHeads * count * kChannels));
  for (int64_t h = 0; h < kValueHeads; ++h) {
    for (int64_t n = 0; n < count; ++n) {
      FillTokenVector(1, TokenId(0, 0, first + n), h, part, DType::kFloat32, kChannels,
                      reinterpret_cast<std::byte*>(values.data() + (h * count + n) * kChannels));
    }
  }
  return values;
}

class ValueRow {
 public:
  explicit ValueRow(const std::string& v, const std::string& profile = "")
      : factory_(Rules(profile)) {
    CacheSetup setup;
    setup.kv_heads = setup.query_heads = kValueHeads;
    setup.k_dim = setup.v_dim = kChannels;
    setup.v = FormatNamed(v);
    EXPECT_TRUE(factory_.Start(setup).ok());
    EXPECT_TRUE(factory_.New({}, setup.k, setup.v, 1, {}, &cache_).ok());
  }
  void Feed(const std::vector<int64_t>& counts) {
    for (const int64_t count : counts) {
      const std::vector<float> k = ValuesOf(TokenPart::kKey, tokens_, count);
      const std::vector<float> v = ValuesOf(TokenPart::kValue, tokens_, count);
      TokenColumns columns;
      columns.rows = 1;
      columns.kv_heads = kValueHeads;
      columns.columns = count;
      columns.k_dim = columns.v_dim = kChannels;
      columns.k = reinterpret_cast<const std::byte*>(k.data());
      columns.v = reinterpret_cast<const std::byte*>(v.data());
      columns.k_strides = columns.v_strides = {0, count * kChannels * 4, kChannels * 4};
      ASSERT_TRUE(cache_->Append(columns).ok());
      tokens_ += count;
    }
  }
  StepView View() {
    StepView view;
    cache_->Observe(&view);
    return view;
  }
  // Of one token of V, plane after plane.
  std::vector<std::byte> Shown(int64_t head, int64_t column) {
    const StepView view = View();
    std::vector<std::byte> bytes;
    const Planes planes = TokenPlanesOf(view.v.format, kChannels);
    for (size_t i = 0; i < planes.size(); ++i) {
      const std::byte* at = view.v.planes[i].At(0, head, column);
      bytes.insert(bytes.end(), at, at + planes[i].Bytes());
    }
    return bytes;
  }
  Cache* cache() { return cache_.get(); }

 private:
  static CacheRules Rules(const std::string& profile) {
    CacheRules rules;
    rules.profile = ParseCacheProfile(profile);
    rules.conventions.decode = DecodeRounding::kTwoRoundings;
    return rules;
  }
  ModelFactory factory_;
  std::unique_ptr<Cache> cache_;
  int64_t tokens_ = 0;
};

std::vector<float> ValueOf(int64_t head, int64_t token) {
  const std::vector<float> x = ValuesOf(TokenPart::kValue, token, 1);
  return {x.begin() + head * kChannels, x.begin() + (head + 1) * kChannels};
}

// A token that is coded once, or `passes` times, each time from what it reads as.
std::vector<std::byte> CodedToken(std::vector<float> x, int passes = 1) {
  const KvFormat affine = FormatNamed("affine:4:g32:f32");
  std::vector<std::byte> bytes;
  for (int pass = 0; pass < passes; ++pass) {
    Tensor row(DType::kFloat32, {{"", 1}, {"", kChannels}});
    std::memcpy(row.bytes.data(), x.data(), kVector);
    const TensorMap stored = EncodeRows(affine, OfKivi(), row);
    bytes.clear();
    for (const char* plane : {"codes", "scales", "biases"}) {
      const std::vector<std::byte>& part = stored.at(plane).bytes;
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    Profile reads = OfKivi();
    reads.decode = DecodeRounding::kTwoRoundings;
    const std::vector<double> read =
        DecodeToRowType(affine, reads, CodecRows(affine, stored), 0, 1);
    x.assign(read.begin(), read.end());
  }
  bytes.resize(bytes.size() + kVector);
  return bytes;
}

std::vector<std::byte> KeptToken(const std::vector<float>& x) {
  std::vector<std::byte> bytes(CodedToken(x).size());
  std::memcpy(bytes.data() + bytes.size() - kVector, x.data(), kVector);
  return bytes;
}

// Of 11 tokens the newest 3 are vectors, wherever appends end.
TEST(ResidualValues, AreVectorsWhileTheyAreTheNewest) {
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{11}, {3, 8}, {2, 2, 7}, {1, 1, 1, 1, 1, 6}, {10, 1}}) {
    ValueRow row(kFormat);
    row.Feed(counts);
    for (int64_t h = 0; h < kValueHeads; ++h) {
      for (int64_t t = 0; t < 11; ++t) {
        const std::vector<float> x = ValueOf(h, t);
        EXPECT_EQ(row.Shown(h, t), t < 8 ? CodedToken(x) : KeptToken(x)) << "token " << t;
      }
    }
    const auto coded = static_cast<int64_t>(CodedToken(ValueOf(0, 0)).size() - kVector);
    const auto vector = static_cast<int64_t>(kVector);
    EXPECT_EQ(row.View().live_bytes, kValueHeads * (8 * coded + 3 * vector + 11 * vector));
    EXPECT_EQ(row.View().trimmable, Known::kNo);
  }
}

TEST(ResidualValues, ATrimGoesBackWhereNothingIsCoded) {
  for (const auto& [fed, asked, got] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {3, 1, 1}, {3, 2, 2}, {3, 9, 3}, {4, 1, 0}, {4, 3, 0}, {4, 4, 4}, {11, 10, 0}}) {
    ValueRow row(kFormat);
    row.Feed({fed});
    int64_t trimmed = -1;
    ASSERT_TRUE(row.cache()->Trim(asked, &trimmed).ok());
    EXPECT_EQ(trimmed, got) << fed << " " << asked;
  }
}

TEST(ResidualValues, QuantizedLaterAreTheSame) {
  ValueRow early(kFormat);
  ValueRow late("f32");
  early.Feed({11});
  late.Feed({11});
  ASSERT_TRUE(late.cache()->ToQuantized(PlainFormat{}, FormatNamed(kFormat)).ok());
  for (int64_t t = 0; t < 11; ++t) EXPECT_EQ(late.Shown(1, t), early.Shown(1, t)) << t;
}

// transformers: the first update codes all, and so does each that fills the residual.
TEST(ResidualValues, UnderRegroupAllNoneOfTheNewestIsLeftWhenTheResidualIsFull) {
  const auto expect = [](const std::vector<int64_t>& counts, const std::vector<int>& passes) {
    ValueRow row(kFormat, "regroup=all reads=before");
    row.Feed(counts);
    std::unique_ptr<Cache> copied;  // without what the queries of the last append see
    ASSERT_TRUE(row.cache()->CopyTo(&copied).ok());
    StepView view;
    copied->Observe(&view);
    ASSERT_EQ(view.columns, std::ssize(passes));
    for (int64_t t = 0; t < view.columns; ++t) {
      const int times = passes[static_cast<size_t>(t)];
      const std::vector<float> x = ValueOf(0, t);
      std::vector<std::byte> got;
      const Planes planes = TokenPlanesOf(view.v.format, kChannels);
      for (size_t i = 0; i < planes.size(); ++i) {
        const std::byte* at = view.v.planes[i].At(0, 0, t);
        got.insert(got.end(), at, at + planes[i].Bytes());
      }
      EXPECT_EQ(got, times == 0 ? KeptToken(x) : CodedToken(x, times)) << t;
    }
  };
  expect({5}, {1, 1, 1, 1, 1});
  expect({1}, {1});
  expect({2, 1, 1}, {1, 1, 0, 0});
  expect({2, 1, 1, 1}, {2, 2, 1, 1, 1});
  expect({2, 3, 2}, {2, 2, 1, 1, 1, 0, 0});
}

// An append whose queries are asked about what was there before shows both.
TEST(ResidualValues, ReadsBeforeShowsWhatWasThere) {
  ValueRow row(kFormat, "regroup=all reads=before");
  row.Feed({2, 3});
  ASSERT_EQ(row.View().columns, 10);
  EXPECT_EQ(row.Shown(0, 0), CodedToken(ValueOf(0, 0), 1));
  EXPECT_EQ(row.Shown(0, 2), KeptToken(ValueOf(0, 2)));
  EXPECT_EQ(row.Shown(0, 5), CodedToken(ValueOf(0, 0), 2));
  EXPECT_EQ(row.Shown(0, 7), CodedToken(ValueOf(0, 2), 1));
}

// What a token reads as is in its bytes.
TEST(ResidualValues, AGroupWithoutScaleAndBiasIsReadFromTheVector) {
  const KvFormat token = TokenFormatOf(FormatNamed(kFormat));
  const auto rows = ArithmeticOf(token)->MakeRows(Profile{}, kChannels);
  const Planes planes = PlanesOf(token, kChannels);
  const auto read = [&](std::vector<std::byte> bytes) {
    std::array<const std::byte*, kMaxPlanes> at{};
    const std::byte* next = bytes.data();
    for (size_t i = 0; i < planes.size(); next += planes[i++].Bytes()) at[i] = next;
    std::vector<double> exact(kChannels), rounded(kChannels);
    rows->DecodeExact({at.data(), planes.size()}, exact, {});
    rows->DecodeToRowType({at.data(), planes.size()}, rounded);
    for (size_t c = 0; c < exact.size(); ++c) {
      EXPECT_EQ(static_cast<float>(exact[c]), static_cast<float>(rounded[c])) << c;
    }
    return std::vector<float>(rounded.begin(), rounded.end());
  };
  std::vector<float> x = ValueOf(0, 3);
  EXPECT_EQ(read(KeptToken(x)), x);
  // The second group alone has codes: the vector there is not read.
  for (size_t c = 0; c < 32; ++c) x[c] = 0;
  std::vector<std::byte> mixed = CodedToken(x);
  const std::vector<float> coded = read(mixed);
  for (size_t c = 0; c < 64; ++c) {
    const float beside = 3.5f;
    std::memcpy(mixed.data() + mixed.size() - kVector + 4 * c, &beside, 4);
  }
  const std::vector<float> beside = read(mixed);
  for (size_t c = 0; c < 64; ++c) EXPECT_EQ(beside[c], c < 32 ? 3.5f : coded[c]) << c;
}

}  // namespace
}  // namespace kvcheck
