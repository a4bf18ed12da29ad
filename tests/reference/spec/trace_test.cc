// Layouts, cache profiles and traces: both spellings, the round trip of random traces, and refusals
// with position and reason. Replay a failure with the RC_PARAMS line that RapidCheck prints.

#include "reference/spec/trace.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <ostream>

#include "reference/spec/cache_profile.h"
#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {

void showValue(const CacheCase& c, std::ostream& os) { os << PrintLines(c); }

namespace {

const std::string kSetup =
    "cache layout=linear k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 growth=8 observe=each "
    "data=tokens:1";

CacheCase WithOps(const std::string& ops) { return ParseCacheCase(kSetup + "; " + ops); }

TEST(TraceText, OperationsMeanWhatTheySay) {
  const CacheCase c = WithOps(
      "new C rows=2 pad=1,0 layout=ring:w=3 v=f16; append C 3 wrong=type; filter C 1,0,0; filter "
      "C; merge A,B -> D; extract D -1 -> E; damage s3 flip at=7; attend A window=2 sinks");
  ASSERT_EQ(c.ops.size(), 8u);
  EXPECT_EQ(c.ops[0].kind, CacheOpKind::kNew);
  EXPECT_EQ(c.ops[0].slot, 2);
  EXPECT_EQ(c.ops[0].count, 2);
  EXPECT_EQ(c.ops[0].numbers, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(c.ops[0].layout, (CacheLayout{LayoutKind::kRing, 3, 0, 0}));
  EXPECT_EQ(c.ops[0].k, std::nullopt);
  EXPECT_EQ(c.ops[0].v, KvFormat(PlainFormat{DType::kFloat16}));
  EXPECT_EQ(c.ops[1].wrong, WrongColumns::kType);
  EXPECT_EQ(c.ops[2].numbers, (std::vector<int64_t>{1, 0, 0}));
  EXPECT_TRUE(c.ops[3].numbers.empty());
  EXPECT_EQ(c.ops[4].operands, (std::vector<int>{0, 1}));
  EXPECT_EQ(c.ops[4].target, 3);
  EXPECT_EQ(c.ops[5].count, -1);
  EXPECT_EQ(c.ops[6].damage, Damage::kFlip);
  EXPECT_EQ(c.ops[6].at, 7);
  EXPECT_EQ(c.ops[7].window, 2);
  EXPECT_TRUE(c.ops[7].sinks);
  EXPECT_EQ(c.ops[7].scale, std::nullopt);
}

TEST(TraceText, BothSpellingsMeanTheSame) {
  const CacheCase c = WithOps("new A rows=1; append A 2; trim A 1");
  EXPECT_EQ(ParseCacheCase(PrintLines(c)), c);
  EXPECT_EQ(ParseCacheCase(Print(c)), c);
  EXPECT_EQ(ParseCacheCase(Print(c) + "\n"), c);
  EXPECT_EQ(ParseCacheCase(kSetup + "\nnew A rows=1; append A 2\ntrim A 1"), c);
  EXPECT_EQ(Print(ParseCase(Print(c))), Print(c));
  EXPECT_EQ(KindName(ParseCase(Print(c))), "cache");
  EXPECT_EQ(std::ranges::count(PrintLines(c), '\n'), 4);
}

TEST(TraceText, DefaultsAreThoseOfTheTable) {
  EXPECT_EQ(Print(ParseCacheCase("cache k=f32 dk=8 data=tokens:1")), kSetup);
  EXPECT_EQ(Print(ParseCacheCase("cache data=tokens:1 dk=64 k=affine:4:g64:f16 hkv=3").setup),
            "cache layout=linear k=affine:4:g64:f16 v=affine:4:g64:f16 x=f32 hkv=3 hq=3 dk=64 "
            "dv=64 growth=8 observe=each data=tokens:1");
  EXPECT_EQ(Print(WithOps("new A")), Print(WithOps("new A rows=1")));
}

struct Refused {
  std::string ops;
  std::string at;  // the first offending character is the first one of this piece; "": the end
  std::string reason;
};

TEST(MalformedTrace, IsRefusedWithItsPositionAndReason) {
  const std::vector<Refused> table = {
      {"", "", "an operation is missing"},
      {"new A; ", "", "an operation is missing"},
      {"new A;append A 1", "A;append", "'A;append' is not a slot"},
      {"grow A", "grow", "'grow' is not one of new, append"},
      {"new", "", "a slot is missing"},
      {"new F", "F", "slots are A, B, C, D, E"},
      {"new a", "a", "is not a slot"},
      {"new A 2", "2", "expected key=value"},
      {"new A rows=-1", "-1", "outside 0..65536"},
      {"new A rows=1 rows=2", "rows=2", "given twice"},
      {"new A pad=1,", "", "is not an integer"},
      {"new A layout=ring", "ring", "expected ring:w=W"},
      {"new A layout=paged:8", "paged", "is not a layout"},
      {"new A layout=linear:w=0", "w=0", "at least 1 token"},
      {"new A layout=linear:c=4", "c=4", "expected w=NUMBER"},
      {"new A q=f32", "q=f32", "unknown key 'q'; known: rows, pad, layout, k, v"},
      {"append A", "", "the number of columns is missing"},
      {"append A 0", "0", "outside 1.."},
      {"append A 1048577", "1048577", "outside 1.."},
      {"append A 1 wrong=dim", "dim", "is not one of rows, heads"},
      {"append A 1 2", "2", "expected key=value"},
      {"prepare A 1,x", "x", "is not an integer"},
      {"finalize A B", "B", "nothing may follow"},
      {"trim A", "", "the number of tokens is missing"},
      {"trim A 4294967296", "4294967296", "outside"},
      {"filter A 1, 0", ", 0", "is not an integer"},
      {"extend A", "", "a second slot is missing"},
      {"merge -> A", "->", "'->' is not a slot"},
      {"merge A, -> B", "", "is not a slot"},
      {"merge A B", "B", "expected ->"},
      {"extract A -> B", "-> B", "is not an integer"},
      {"to_quantized A", "", "'k=' is missing"},
      {"to_quantized A k=int4", "int4", "is not a format"},
      {"save A x", "x", "states are s0 to s9"},
      {"load s10 -> A", "s10", "is not a saved state"},
      {"damage s1", "", "a kind of damage is missing"},
      {"damage s1 burn", "burn", "is not one of truncate, flip, foreign, version"},
      {"attend A sinks window=2", "window", "nothing may follow"},
      {"attend A scale=1 window=2", "window", "in this order"},
      {"attend A scale=inf", "inf", "finite"},
      {"attend A q=1", "q=1", "attend knows"},
      {"drop A\v", "\v", "byte 0x0b"},
  };
  for (const Refused& row : table) {
    const std::string text = kSetup + "; " + row.ops;
    try {
      ParseCase(text);
      ADD_FAILURE() << "accepted: " << row.ops;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse) << error.what();
      const std::string reason = error.message().substr(0, error.message().rfind(" (in '"));
      EXPECT_NE(reason.find(row.reason), std::string::npos) << row.ops << "\n  " << error.what();
      // "merge A, -> B" and "new A pad=1,": the empty piece stands before the next word or the end.
      if (row.ops.starts_with("merge A,") || row.at == ", 0") continue;
      const size_t column = row.at.empty() ? text.size() : text.rfind(row.at);
      EXPECT_EQ(error.context(), "column " + std::to_string(column + 1)) << row.ops;
    }
  }
}

TEST(MalformedTrace, NamesTheLine) {
  try {
    ParseCacheCase(kSetup + "\nnew A\ntrim A x\n");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.context(), "line 3, column 8");
    EXPECT_NE(error.message().find("(in 'trim A x')"), std::string::npos) << error.what();
  }
}

TEST(IllegalTrace, IsRefusedWithItsReason) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      ParseCacheCase(text);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kIllegalCase ? error.what() : "";
    }
    return "";
  };
  const std::string rest = " data=tokens:1";
  EXPECT_NE(refusal("cache k=f32 dk=8 layout=ring:w=4:keep=4" + rest).find("K is less than W"),
            std::string::npos);
  EXPECT_NE(refusal("cache k=f32 dk=8 hkv=2 hq=3" + rest).find("not a multiple of hkv=2"),
            std::string::npos);
  EXPECT_NE(refusal("cache k=affine:4:g64:f16 dk=32" + rest).find("head_dim 32"),
            std::string::npos);
  EXPECT_NE(refusal("cache k=f32 dk=64 v=affine:4:g64:f16 dv=8" + rest).find("head_dim 8"),
            std::string::npos);
  // The same in an operation is for the cache to refuse.
  EXPECT_NO_THROW(WithOps("new A layout=ring:w=4:keep=4; new A k=affine:4:g64:f16"));
  CacheCase c = WithOps("merge A -> B");
  c.ops[0].operands.clear();
  EXPECT_THROW(ValidateCacheCase(c), Error);
  c.ops[0].operands = {kSlots};
  EXPECT_THROW(ValidateCacheCase(c), Error);
  c = WithOps("to_quantized A k=f16");
  c.ops[0].v.reset();
  EXPECT_THROW(ValidateCacheCase(c), Error);
  c = WithOps("append A 1");
  c.ops[0].count = 0;
  EXPECT_THROW(ValidateCacheCase(c), Error);
}

template <typename T>
T OneOf(const std::vector<T>& values) {
  return *rc::gen::elementOf(values);
}

CacheLayout AnyLayout(bool legal) {
  CacheLayout layout;
  const int64_t size = *rc::gen::inRange<int64_t>(legal ? 1 : 0, 100);
  switch (*rc::gen::inRange(0, 4)) {
    case 0:
      break;
    case 1:
      layout.window = std::max<int64_t>(size, 1);
      break;
    case 2:
      layout = {LayoutKind::kRing, size, *rc::gen::inRange<int64_t>(0, legal ? size : size + 5), 0};
      break;
    default:
      layout = {LayoutKind::kChunk, 0, 0, size};
  }
  return layout;
}

std::vector<int64_t> AnyNumbers() {
  return *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(-3, 9));
}

CacheOp AnyOp() {
  CacheOp op;
  op.kind = static_cast<CacheOpKind>(*rc::gen::inRange(0, kCacheOpKinds));
  const auto slot = [] { return *rc::gen::inRange(0, kSlots); };
  const auto number = [] {
    return OneOf<int64_t>({0, 1, -1, 17, -(int64_t{1} << 31), int64_t{1} << 31});
  };
  if (op.kind != CacheOpKind::kMerge && op.kind != CacheOpKind::kLoad &&
      op.kind != CacheOpKind::kDamage) {
    op.slot = slot();
  }
  switch (op.kind) {
    case CacheOpKind::kNew:
      op.count = *rc::gen::inRange<int64_t>(0, 65537);
      op.numbers = AnyNumbers();
      if (OneOf<bool>({true, false})) op.layout = AnyLayout(false);
      if (OneOf<bool>({true, false})) op.k = OneOf(CacheFormats());
      if (OneOf<bool>({true, false})) op.v = OneOf(CacheFormats());
      break;
    case CacheOpKind::kAppend:
      op.count = *rc::gen::inRange<int64_t>(1, (1 << 20) + 1);
      op.wrong = static_cast<WrongColumns>(*rc::gen::inRange(0, kWrongColumns + 1));
      break;
    case CacheOpKind::kPrepare:
    case CacheOpKind::kFilter:
      op.numbers = AnyNumbers();
      break;
    case CacheOpKind::kTrim:
      op.count = number();
      break;
    case CacheOpKind::kMerge:
      op.operands = {slot()};
      while (OneOf<bool>({true, false})) op.operands.push_back(slot());
      op.target = slot();
      break;
    case CacheOpKind::kExtract:
      op.count = number();
      op.target = slot();
      break;
    case CacheOpKind::kExtend:
    case CacheOpKind::kCopy:
      op.target = slot();
      break;
    case CacheOpKind::kToQuantized:
      op.k = OneOf(CacheFormats());
      op.v = OneOf(CacheFormats());
      break;
    case CacheOpKind::kSave:
      op.key = *rc::gen::inRange(0, kStateKeys);
      break;
    case CacheOpKind::kLoad:
      op.key = *rc::gen::inRange(0, kStateKeys);
      op.target = slot();
      break;
    case CacheOpKind::kDamage:
      op.key = *rc::gen::inRange(0, kStateKeys);
      op.damage = static_cast<Damage>(*rc::gen::inRange(0, 4));
      op.at = *rc::gen::inRange<int64_t>(0, 1000);
      break;
    case CacheOpKind::kAttend:
      if (OneOf<bool>({true, false})) op.window = number();
      if (OneOf<bool>({true, false})) op.scale = OneOf<double>({0.1, 0x1p-40, -3, 1e-300});
      op.sinks = OneOf<bool>({true, false});
      break;
    default:
      break;
  }
  return op;
}

CacheCase AnyCacheCase() {
  CacheCase c;
  CacheSetup& setup = c.setup;
  setup.layout = AnyLayout(true);
  setup.k = OneOf(CacheFormats());
  setup.v = OneOf(CacheFormats());
  setup.x = OneOf<DType>({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  setup.kv_heads = *rc::gen::inRange<int64_t>(1, 9);
  setup.query_heads = setup.kv_heads * *rc::gen::inRange<int64_t>(1, 9);
  setup.k_dim = OneOf<int64_t>({128, 256});
  setup.v_dim = OneOf<int64_t>({128, 256});
  setup.growth_tokens = *rc::gen::inRange<int64_t>(1, 300);
  setup.observe = OneOf<Observe>({Observe::kEach, Observe::kLast});
  setup.data = {"tokens", *rc::gen::arbitrary<uint64_t>(), ""};
  const int ops = *rc::gen::inRange(0, 20);
  for (int i = 0; i < ops; ++i) c.ops.push_back(AnyOp());
  return c;
}

RC_GTEST_PROP(TraceText, RoundTrips, ()) {
  const CacheCase c = AnyCacheCase();
  RC_ASSERT(ParseCacheCase(Print(c)) == c);
  RC_ASSERT(ParseCacheCase(PrintLines(c)) == c);
  RC_ASSERT(std::get<CacheCase>(ParseCase(Print(Case(c)))) == c);
}

TEST(TokenRange, CountsWhatItContains) {
  for (int64_t keep = 0; keep < 5; ++keep) {
    for (int64_t from = 0; from < 7; ++from) {
      for (int64_t end = 0; end < 7; ++end) {
        const TokenRange range = {keep, from, end};
        int64_t count = 0;
        for (int64_t position = -1; position < 9; ++position) count += range.Contains(position);
        EXPECT_EQ(range.Count(), count) << keep << " " << from << " " << end;
      }
    }
  }
}

TEST(CacheProfileText, RoundTripsAndRefuses) {
  for (const char* text : {"", "size=columns", "bytes=capacity empty=any trimmable=any",
                           "size=any bytes=any trim=shorter", "regroup=all reads=before",
                           "trim=shorter regroup=open"}) {
    EXPECT_EQ(Print(ParseCacheProfile(text)), text);
  }
  EXPECT_EQ(Print(ParseCacheProfile("size=tokens trim=longest regroup=never reads=after")), "");
  EXPECT_EQ(ParseCacheProfile("regroup=all reads=before").regroup, RegroupRule::kAll);
  EXPECT_TRUE(ParseCacheProfile("regroup=all reads=before").reads_before);
  EXPECT_THROW(ParseCacheProfile("regroup=full"), Error);
  EXPECT_THROW(ParseCacheProfile("size=bytes"), Error);
  EXPECT_THROW(ParseCacheProfile("count=any"), Error);
}

}  // namespace
}  // namespace kvcheck
