// What must hold of caches whatever is in them, as properties over drawn layouts, formats and
// histories. Codes and attention are compared bitwise. Replay a failure with the RC_PARAMS line
// that RapidCheck prints.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

#include "reference/spec/token_groups.h"
#include "row_probe.h"

namespace kvcheck {
namespace {

// A run without RC_PARAMS draws the same every time.
const int kSeeded = setenv("RC_PARAMS", "seed=22 max_success=300", /*overwrite=*/0);

int64_t Draw(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

template <typename T>
T Pick(const std::vector<T>& values) {
  return values[static_cast<size_t>(Draw(0, static_cast<int64_t>(values.size()) - 1))];
}

// kAffine: and every other format whose vectors are coded as they come.
enum class Family { kPlain, kFp8, kAffine, kResidual };

Family FamilyOf(const KvFormat& format) {
  const auto* plain = std::get_if<PlainFormat>(&format);
  if (HasResidual(format)) return Family::kResidual;
  if (plain == nullptr) return Family::kAffine;
  return SizeInBytes(plain->dtype) == 1 ? Family::kFp8 : Family::kPlain;
}

// Residuals now and then, the others alike, whatever the sizes of families.
KvFormat DrawFormat() {
  const auto family = Draw(0, 5) == 0 ? Family::kResidual : static_cast<Family>(Draw(0, 2));
  std::vector<KvFormat> formats;
  for (const KvFormat& format : CacheFormats()) {
    if (FamilyOf(format) == family) formats.push_back(format);
  }
  return Pick(formats);
}

CacheSetup DrawSetup() {
  CacheSetup setup;
  const int64_t window = Draw(1, 8);
  const int64_t keep = Draw(0, window - 1);
  setup.layout = Pick(std::vector<CacheLayout>{{},
                                               {LayoutKind::kLinear, window, 0, 0},
                                               {LayoutKind::kRing, window, 0, 0},
                                               {LayoutKind::kRing, window, keep, 0},
                                               {LayoutKind::kChunk, 0, 0, window}});
  setup.k = DrawFormat();
  setup.v = DrawFormat();
  if (!KeepsGroups(setup.layout, setup.k) || !KeepsGroups(setup.layout, setup.v)) setup.layout = {};
  setup.x = Pick(std::vector<DType>{DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  setup.kv_heads = Draw(1, 2);
  setup.query_heads = 2 * setup.kv_heads;
  setup.k_dim = setup.v_dim = 128;
  setup.growth_tokens = Draw(1, 5);
  return setup;
}

// A cache of one row that has seen `tokens` tokens of the label, in drawn pieces.
std::unique_ptr<Cache> Grow(RowProbe* probe, int64_t label, int64_t tokens) {
  std::unique_ptr<Cache> cache = probe->New(1);
  for (int64_t at = 0; at < tokens;) {
    const int64_t count = Draw(1, tokens - at);
    probe->AppendRow(cache.get(), label, at, at + count);
    at += count;
  }
  return cache;
}

// The same rows, of these labels and lengths, and the same after further appends.
void ExpectSame(RowProbe* probe, Cache* a, Cache* b, std::vector<RowFeed> rows) {
  if (probe->States(a) != probe->States(b)) RC_FAIL("other tokens");
  for (const int64_t columns : {1, 3}) {
    for (RowFeed& row : rows) row.tokens = columns;
    if (probe->Append(a, rows, columns) != probe->Append(b, rows, columns)) RC_FAIL("other steps");
    for (RowFeed& row : rows) row.position += columns;
  }
  if (probe->States(a) != probe->States(b)) RC_FAIL("other tokens later");
}

// Rows of different histories in one batch.
struct Batch {
  std::unique_ptr<Cache> cache;
  std::vector<RowFeed> rows;
};
Batch DrawBatch(RowProbe* probe, int64_t least, int64_t first_label = 0) {
  Batch batch;
  std::vector<std::unique_ptr<Cache>> singles;
  std::vector<const Cache*> operands;
  const int64_t rows = Draw(least, 4);
  if (rows == 0) {
    batch.cache = probe->New(0);
    return batch;
  }
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t tokens = Draw(0, 20);
    batch.rows.push_back({first_label + b, tokens, 0, 0});
    singles.push_back(Grow(probe, first_label + b, tokens));
    operands.push_back(singles.back().get());
  }
  batch.cache = probe->Merge(operands);
  return batch;
}

// The setups of every law below.
TEST(CacheLaws, AreDrawnOverEveryLayoutAndFamilyOfFormats) {
  std::set<std::tuple<LayoutKind, bool, bool, Family, bool>> seen;
  EXPECT_TRUE(rc::check([&seen] {
    const CacheSetup setup = DrawSetup();
    for (const bool is_key : {true, false}) {
      seen.insert({setup.layout.kind, setup.layout.window > 0, setup.layout.keep > 0,
                   FamilyOf(is_key ? setup.k : setup.v), is_key});
    }
  }));
  // Layouts, families, K and V; groups of tokens in the linear layout alone, whose other part may
  // be of any family.
  EXPECT_EQ(seen.size(), 5u * 3 * 2 + 2);
}

RC_GTEST_PROP(CacheLaws, TrimmedTokensMightNeverHaveBeen, ()) {
  RowProbe probe(DrawSetup());
  const int64_t tokens = Draw(0, 25);
  const std::unique_ptr<Cache> a = Grow(&probe, 0, tokens);
  int64_t trimmed = 0;
  CheckOk(a->Trim(Draw(0, 25), &trimmed));
  const std::unique_ptr<Cache> b = Grow(&probe, 0, tokens - trimmed);
  RC_CLASSIFY(trimmed > 0);
  for (int64_t at = tokens - trimmed; at < tokens + 4; at += 2) {
    RC_ASSERT(probe.AppendRow(a.get(), 0, at, at + 2) == probe.AppendRow(b.get(), 0, at, at + 2));
  }
}

RC_GTEST_PROP(CacheLaws, TrimmedTokensOfABatchMightNeverHaveBeen, ()) {
  RowProbe probe(DrawSetup());
  const Batch batch = DrawBatch(&probe, 1);
  int64_t trimmed = 0;
  CheckOk(batch.cache->Trim(Draw(0, 20), &trimmed));
  RC_CLASSIFY(trimmed > 0);
  std::vector<std::unique_ptr<Cache>> singles;
  std::vector<const Cache*> operands;
  std::vector<RowFeed> rows = batch.rows;
  for (RowFeed& row : rows) {
    row.position = std::max<int64_t>(0, row.position - trimmed);
    singles.push_back(Grow(&probe, row.label, row.position));
    operands.push_back(singles.back().get());
  }
  const std::unique_ptr<Cache> fresh = probe.Merge(operands);
  for (const int64_t columns : {1, 3, 1}) {
    for (RowFeed& row : rows) row.tokens = columns;
    RC_ASSERT(probe.Append(batch.cache.get(), rows, columns) ==
              probe.Append(fresh.get(), rows, columns));
    for (RowFeed& row : rows) row.position += columns;
  }
}

// The vector as it is stored is what is encoded: where that is the appended one, a cache might have
// had the format from the beginning.
RC_GTEST_PROP(CacheLaws, QuantizedLaterIsQuantizedFromTheBeginning, ()) {
  CacheSetup setup = DrawSetup();
  const KvFormat k = setup.k;
  const KvFormat v = setup.v;
  RowProbe late_probe([&] {
    CacheSetup plain = setup;
    plain.k = plain.v = PlainFormat{setup.x};
    return plain;
  }());
  RowProbe probe(setup);
  const int64_t tokens = Draw(0, 25);
  const std::unique_ptr<Cache> late = Grow(&late_probe, 0, tokens);
  CheckOk(late->ToQuantized(k, v));
  const std::unique_ptr<Cache> early = Grow(&probe, 0, tokens);
  for (int64_t at = tokens; at < tokens + 4; at += 2) {
    RC_ASSERT(late_probe.AppendRow(late.get(), 0, at, at + 2) ==
              probe.AppendRow(early.get(), 0, at, at + 2));
  }
}

RC_GTEST_PROP(CacheLaws, ExtractGivesBackWhatWasMerged, ()) {
  RowProbe probe(DrawSetup());
  std::vector<std::unique_ptr<Cache>> singles;
  std::vector<const Cache*> operands;
  std::vector<int64_t> tokens;
  for (int64_t rows = Draw(1, 4); rows > 0; --rows) {
    tokens.push_back(Draw(0, 20));
    singles.push_back(Grow(&probe, rows, tokens.back()));
    // Some have no free columns after their tokens.
    if (Draw(0, 1) == 1) singles.back() = probe.Extract(*singles.back(), 0);
    operands.push_back(singles.back().get());
  }
  const std::unique_ptr<Cache> merged = probe.Merge(operands);
  for (size_t i = 0; i < singles.size(); ++i) {
    const std::unique_ptr<Cache> row = probe.Extract(*merged, static_cast<int64_t>(i));
    const auto label = static_cast<int64_t>(singles.size() - i);
    ExpectSame(&probe, row.get(), singles[i].get(), {{label, tokens[i], 0, 0}});
  }
}

RC_GTEST_PROP(CacheLaws, FiltersCompose, ()) {
  RowProbe probe(DrawSetup());
  const Batch batch = DrawBatch(&probe, 1);
  const auto draw_rows = [](int64_t rows) {
    std::vector<int64_t> chosen;
    for (int64_t n = rows == 0 ? 0 : Draw(0, 5); n > 0; --n) chosen.push_back(Draw(0, rows - 1));
    return chosen;
  };
  const auto rows = static_cast<int64_t>(batch.rows.size());
  const std::vector<int64_t> first = draw_rows(rows);
  const std::vector<int64_t> second = draw_rows(static_cast<int64_t>(first.size()));
  std::vector<int64_t> both;
  std::vector<RowFeed> feeds;
  for (const int64_t i : second) both.push_back(first[static_cast<size_t>(i)]);
  for (const int64_t i : both) feeds.push_back(batch.rows[static_cast<size_t>(i)]);
  const std::unique_ptr<Cache> once = probe.Copy(*batch.cache);
  CheckOk(once->Filter(both));
  CheckOk(batch.cache->Filter(first));
  CheckOk(batch.cache->Filter(second));
  ExpectSame(&probe, once.get(), batch.cache.get(), feeds);
}

RC_GTEST_PROP(CacheLaws, SplitsOfAnAppendDoNotMatter, ()) {
  RowProbe probe(DrawSetup());
  const int64_t tokens = Draw(1, 25);
  const std::unique_ptr<Cache> whole = probe.New(1);
  const RowStep step = probe.AppendRow(whole.get(), 0, 0, tokens);
  const std::unique_ptr<Cache> split = probe.New(1);
  RowStep joined;
  for (int64_t at = 0; at < tokens;) {
    const int64_t count = Draw(1, tokens - at);
    const RowStep piece = probe.AppendRow(split.get(), 0, at, at + count);
    joined.visible.insert(joined.visible.end(), piece.visible.begin(), piece.visible.end());
    joined.attention.insert(joined.attention.end(), piece.attention.begin(), piece.attention.end());
    at += count;
  }
  // A query reads what is stored when its append ends: tokens of a residual are then coded or not.
  const bool residual = HasResidual(probe.setup().k) || HasResidual(probe.setup().v);
  RC_ASSERT(residual || joined == step);
  RC_ASSERT(probe.AppendRow(whole.get(), 0, tokens, tokens + 2) ==
            probe.AppendRow(split.get(), 0, tokens, tokens + 2));
}

RC_GTEST_PROP(CacheLaws, ExtendByNothingChangesNothing, ()) {
  RowProbe probe(DrawSetup());
  const Batch batch = DrawBatch(&probe, 0);
  const std::unique_ptr<Cache> right = probe.Copy(*batch.cache);
  CheckOk(right->Extend(*probe.New(0)));
  ExpectSame(&probe, right.get(), probe.Copy(*batch.cache).get(), batch.rows);
  const std::unique_ptr<Cache> left = probe.New(0);
  CheckOk(left->Extend(*batch.cache));
  ExpectSame(&probe, left.get(), batch.cache.get(), batch.rows);
}

RC_GTEST_PROP(CacheLaws, ExtendPutsRowsBesideEachOther, ()) {
  RowProbe probe(DrawSetup());
  Batch a = DrawBatch(&probe, 0);
  const Batch b = DrawBatch(&probe, 0, 10);
  const std::unique_ptr<Cache> joined = probe.Copy(*a.cache);
  CheckOk(joined->Extend(*b.cache));
  for (size_t i = 0; i < a.rows.size() + b.rows.size(); ++i) {
    const bool own = i < a.rows.size();
    const size_t row = own ? i : i - a.rows.size();
    const std::unique_ptr<Cache> got = probe.Extract(*joined, static_cast<int64_t>(i));
    const std::unique_ptr<Cache> want =
        probe.Extract(own ? *a.cache : *b.cache, static_cast<int64_t>(row));
    ExpectSame(&probe, got.get(), want.get(), {own ? a.rows[row] : b.rows[row]});
  }
}

RC_GTEST_PROP(CacheLaws, LoadedCachesContinueBitIdentically, ()) {
  RowProbe probe(DrawSetup());
  const Batch batch = DrawBatch(&probe, 0);
  const std::unique_ptr<Cache> loaded = probe.SaveAndLoad(*batch.cache);
  ExpectSame(&probe, loaded.get(), batch.cache.get(), batch.rows);
}

RC_GTEST_PROP(CacheLaws, RowsOfABatchAreRowsAlone, ()) {
  // Left padding, then a right-padded prefill, then a token at a time.
  RowProbe probe(DrawSetup());
  const int64_t rows = Draw(1, 4);
  std::vector<int64_t> padding;
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < rows; ++b) {
    padding.push_back(Draw(0, 3));
    lengths.push_back(Draw(0, 12));
  }
  const std::unique_ptr<Cache> batch = probe.New(rows, padding);
  CheckOk(batch->Prepare(lengths, -1));
  std::vector<RowFeed> feeds;
  int64_t columns = 1;
  for (int64_t b = 0; b < rows; ++b) {
    const auto i = static_cast<size_t>(b);
    feeds.push_back({b, 0, padding[i], lengths[i]});
    columns = std::max(columns, padding[i] + lengths[i]);
  }
  probe.Feed(batch.get(), feeds, columns);
  CheckOk(batch->Finalize());
  std::vector<std::unique_ptr<Cache>> singles;
  for (int64_t b = 0; b < rows; ++b) {
    singles.push_back(Grow(&probe, b, lengths[static_cast<size_t>(b)]));
  }
  for (const int64_t count : {1, 1, 4, 1}) {
    for (size_t b = 0; b < feeds.size(); ++b) {
      feeds[b].position += feeds[b].tokens;
      feeds[b].padding = 0;
      feeds[b].tokens = count;
    }
    const std::vector<RowStep> steps = probe.Append(batch.get(), feeds, count);
    for (size_t b = 0; b < feeds.size(); ++b) {
      RC_ASSERT(probe.AppendRow(singles[b].get(), feeds[b].label, feeds[b].position,
                                feeds[b].position + count) == steps[b]);
    }
  }
}

}  // namespace
}  // namespace kvcheck
