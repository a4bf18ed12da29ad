#include "reference/trace/step_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

// Vectors are short: a call of memcmp would cost more than the comparison.
bool EqualBytes(const std::byte* a, const std::byte* b, size_t size) {
  for (; size >= 8; a += 8, b += 8, size -= 8) {
    uint64_t x = 0;
    uint64_t y = 0;
    std::memcpy(&x, a, 8);
    std::memcpy(&y, b, 8);
    if (x != y) return false;
  }
  for (size_t i = 0; i < size; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

bool TestBit(const uint64_t* bits, int64_t i) { return (bits[i / 64] >> (i % 64)) & 1u; }

// Sets bits [begin, end) of a bit row.
void SetBits(uint64_t* bits, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end;) {
    const int64_t stop = std::min(end, (i / 64 + 1) * 64);
    const auto count = static_cast<uint64_t>(stop - i);
    const uint64_t ones = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    bits[i / 64] |= ones << (i % 64);
    i = stop;
  }
}

int64_t CountBits(const uint64_t* bits, size_t words) {
  int64_t count = 0;
  for (size_t w = 0; w < words; ++w) count += std::popcount(bits[w]);
  return count;
}

}  // namespace

bool StepComparer::Fail(StepFault fault, int64_t row, std::string message) {
  failure_->fault = fault;
  failure_->row = row;
  failure_->message = row < 0 ? std::move(message) : fmt::format("row {}: {}", row, message);
  return false;
}

void StepComparer::Measure() {
  k_ = TokenPlanesOf(expected_->k, expected_->k_dim);
  v_ = TokenPlanesOf(expected_->v, expected_->v_dim);
  k_bytes_ = k_.RowBytes();
  v_bytes_ = v_.RowBytes();
  words_ = static_cast<size_t>(view_->WordsPerRow());
}

bool StepComparer::Compare(const ExpectedStep& expected, const StepView& view,
                           const CacheProfile& profile, StepFailure* failure) {
  expected_ = &expected;
  view_ = &view;
  profile_ = &profile;
  failure_ = failure;
  if (!CompareShape()) return false;
  Measure();
  live_ = 0;
  live_bytes_ = 0;
  room_bytes_ = 0;
  exact_ = true;
  size_ = 0;
  size_most_ = 0;
  trimmable_ = true;
  for (size_t b = 0; b < expected.rows.size(); ++b) {
    if (!CompareRow(b)) return false;
  }
  return CompareNumbers();
}

bool StepComparer::CompareShape() {
  const ExpectedStep& e = *expected_;
  const StepView& view = *view_;
  if (view.rows != static_cast<int64_t>(e.rows.size())) {
    return Fail(StepFault::kRows, -1,
                fmt::format("the cache has {} rows, {} are expected", view.rows, e.rows.size()));
  }
  if (view.layout != nullptr && !(*view.layout == e.layout)) {
    return Fail(
        StepFault::kLayout, -1,
        fmt::format("the layout is {}, {} is expected", Print(*view.layout), Print(e.layout)));
  }
  for (const bool is_key : {true, false}) {
    const KvFormat& got = is_key ? view.k.format : view.v.format;
    const KvFormat& want = is_key ? e.k : e.v;
    if (!(got == want)) {
      return Fail(StepFault::kFormat, -1,
                  fmt::format("{} is stored as {}, {} is expected", is_key ? "K" : "V", Print(got),
                              Print(want)));
    }
  }
  if (view.queries != e.queries) {
    return Fail(StepFault::kQueries, -1,
                fmt::format("the step has {} queries, {} are expected", view.queries, e.queries));
  }
  if (view.pending != Known::kCannotTell && (view.pending == Known::kYes) != e.pending) {
    return Fail(StepFault::kPending, -1,
                e.pending ? "a prepared prefill is pending, and the cache does not say so"
                          : "the cache says that a prefill is pending");
  }
  return true;
}

bool StepComparer::PartMatches(size_t b, int64_t c, bool is_key, int64_t head,
                               const std::byte* vector) const {
  const StoredVectors& stored = is_key ? view_->k : view_->v;
  const Planes& planes = is_key ? k_ : v_;
  for (size_t i = 0; i < planes.size(); ++i) {
    if (planes[i].scope != PlaneScope::kRow) continue;
    const size_t bytes = planes[i].Bytes();
    if (!EqualBytes(stored.planes[i].At(static_cast<int64_t>(b), head, c), vector, bytes)) {
      return false;
    }
    vector += bytes;
  }
  return true;
}

bool StepComparer::Matches(size_t b, int64_t c, StoredToken token) const {
  const std::byte* k = expected_->table.Vector(token.k);
  const std::byte* v = expected_->table.Vector(token.v);
  for (int64_t h = 0; h < expected_->kv_heads; ++h, k += k_bytes_, v += v_bytes_) {
    if (!PartMatches(b, c, true, h, k) || !PartMatches(b, c, false, h, v)) return false;
  }
  return true;
}

int64_t StepComparer::Identify(size_t b, std::span<const StoredToken> tokens, int64_t c,
                               int64_t guess) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (guess >= 0 && guess < count && Matches(b, c, tokens[static_cast<size_t>(guess)])) {
    return guess;
  }
  for (int64_t p = count - 1; p >= 0; --p) {
    if (Matches(b, c, tokens[static_cast<size_t>(p)])) return p;
  }
  return -1;
}

bool StepComparer::CompareRow(size_t b) {
  const ExpectedRow& row = expected_->rows[b];
  const StepView& view = *view_;
  const auto r = static_cast<int64_t>(b);
  if (view.offsets != nullptr && view.offsets[b] != row.offset) {
    return Fail(StepFault::kOffset, r,
                fmt::format("the offset is {}, {} tokens were seen", view.offsets[b], row.offset));
  }
  if (view.unfed_padding != nullptr && view.unfed_padding[b] != row.unfed_padding) {
    return Fail(StepFault::kUnfedPadding, r,
                fmt::format("{} columns of padding are to come, {} are expected",
                            view.unfed_padding[b], row.unfed_padding));
  }
  const uint64_t* retained = view.retained == nullptr ? nullptr : view.retained + b * words_;
  const auto first = static_cast<size_t>(row.first_query);
  const auto queries = static_cast<size_t>(view.queries);
  const uint64_t* visible =
      view.visible == nullptr ? nullptr : view.visible + (b * queries + first) * words_;
  if (row.seen.empty()) {
    if (!Locate(b, row.tokens, retained, visible)) return false;
    if (visible != nullptr && !CompareQueries(b, retained)) return false;
  } else {
    // Queries of this append see other vectors than those that are stored now.
    if (visible != nullptr &&
        !(Locate(b, row.seen, nullptr, visible) && CompareQueries(b, nullptr))) {
      return false;
    }
    if (!Locate(b, row.tokens, retained, nullptr)) return false;
  }
  if (retained != nullptr) return CompareRetained(b);
  live_ = -1;
  if (row.offset > 0) {
    const TokenRange& newest = row.newest_visible;
    const TokenRange both = {std::min(newest.keep, row.required.keep),
                             std::max(newest.from, row.required.from), newest.end};
    size_ = std::max(size_, both.Count());
    size_most_ = std::max(size_most_, newest.Count());
  }
  return true;
}

bool StepComparer::Locate(size_t b, std::span<const StoredToken> tokens, const uint64_t* retained,
                          const uint64_t* visible) {
  const ExpectedRow& row = expected_->rows[b];
  const StepView& view = *view_;
  const auto r = static_cast<int64_t>(b);
  positions_.assign(static_cast<size_t>(view.columns), -1);
  seen_.assign(row.tokens.size() / 64 + 1, 0);
  shifted_ = true;
  shift_ = 0;
  bool first_column = true;
  int64_t guess = retained == nullptr ? 0 : row.offset - CountBits(retained, words_);
  for (size_t w = 0; w < words_; ++w) {
    uint64_t used = retained == nullptr ? 0 : retained[w];
    if (visible != nullptr) {
      for (size_t l = 0; l < row.visible.size(); ++l) used |= visible[l * words_ + w];
    }
    for (; used != 0; used &= used - 1) {
      const int64_t c = static_cast<int64_t>(w) * 64 + std::countr_zero(used);
      if (c >= view.columns) {
        return Fail(StepFault::kVisiblePadding, r,
                    fmt::format("a mask names column {} of {}", c, view.columns));
      }
      const int64_t position = Identify(b, tokens, c, guess);
      if (position < 0) return ExplainColumn(b, c, -1);
      uint64_t& word = seen_[static_cast<size_t>(position) / 64];
      const uint64_t bit = uint64_t{1} << (position % 64);
      if ((word & bit) != 0) {
        failure_->position = position;
        return Fail(
            StepFault::kTokenTwice, r,
            fmt::format("{} stands in two columns, the second is {}", TokenText(b, position), c));
      }
      word |= bit;
      positions_[static_cast<size_t>(c)] = static_cast<int32_t>(position);
      if (first_column) {
        shift_ = c - position;
        first_column = false;
      } else if (c - position != shift_) {
        shifted_ = false;
      }
      guess = position + 1;
    }
  }
  return true;
}

bool StepComparer::CompareQueries(size_t b, const uint64_t* retained) {
  const ExpectedRow& row = expected_->rows[b];
  const auto first = static_cast<size_t>(row.first_query);
  const auto queries = static_cast<size_t>(view_->queries);
  for (size_t l = 0; l < row.visible.size(); ++l) {
    const uint64_t* bits = view_->visible + (b * queries + first + l) * words_;
    const TokenRange& want = row.visible[l];
    const auto query = static_cast<int64_t>(first + l);
    for (size_t w = 0; retained != nullptr && w < words_; ++w) {
      const uint64_t lost = bits[w] & ~retained[w];
      if (lost == 0) continue;
      failure_->query = query;
      return Fail(StepFault::kRetainedMissing, static_cast<int64_t>(b),
                  fmt::format("query {} sees column {}, which is not said to be retained", query,
                              w * 64 + static_cast<size_t>(std::countr_zero(lost))));
    }
    if (shifted_) {
      // Columns are positions, shifted: the expected bit row can be written down.
      const int64_t kept = std::min(want.keep, want.end);
      const int64_t from = std::max(want.from, kept);
      const bool fits = want.Count() == 0 || ((kept > 0 ? 0 : from) + shift_ >= 0 &&
                                              want.end + shift_ <= view_->columns);
      if (fits) {
        wanted_.assign(words_, 0);
        if (kept > 0) SetBits(wanted_.data(), shift_, kept + shift_);
        if (from < want.end) SetBits(wanted_.data(), from + shift_, want.end + shift_);
        if (std::equal(wanted_.begin(), wanted_.end(), bits)) continue;
      }
    }
    int64_t count = 0;
    for (size_t w = 0; w < words_; ++w) {
      for (uint64_t rest = bits[w]; rest != 0; rest &= rest - 1) {
        const int64_t c = static_cast<int64_t>(w) * 64 + std::countr_zero(rest);
        const int64_t position = positions_[static_cast<size_t>(c)];
        if (!want.Contains(position)) {
          failure_->query = query;
          failure_->position = position;
          return Fail(StepFault::kVisibleExtra, static_cast<int64_t>(b),
                      fmt::format("query {} (position {}) still sees {}, column {}", query,
                                  want.end - 1, TokenText(b, position), c));
        }
        ++count;
      }
    }
    if (count != want.Count()) {
      for (int64_t p = 0; p < want.end; ++p) {
        if (!want.Contains(p)) continue;
        bool there = false;
        for (int64_t c = 0; c < view_->columns; ++c) {
          there = there || (positions_[static_cast<size_t>(c)] == p && TestBit(bits, c));
        }
        if (there) continue;
        failure_->query = query;
        failure_->position = p;
        return Fail(StepFault::kVisibleMissing, static_cast<int64_t>(b),
                    fmt::format("query {} (position {}) does not see {}", query, want.end - 1,
                                TokenText(b, p)));
      }
    }
  }
  return true;
}

bool StepComparer::CompareRetained(size_t b) {
  const ExpectedRow& row = expected_->rows[b];
  const auto r = static_cast<int64_t>(b);
  // Columns that are only visible were refused above: what is seen is what is retained.
  const auto lacks = [&](const TokenRange& range, int64_t* position) {
    for (int64_t p = 0; p < range.end; ++p) {
      if (p >= range.keep && p < range.from) {
        p = range.from - 1;
        continue;
      }
      if (!TestBit(seen_.data(), p)) {
        *position = p;
        return true;
      }
    }
    return false;
  };
  int64_t missing = -1;
  if (lacks(row.required, &missing)) {
    failure_->position = missing;
    return Fail(StepFault::kRetainedMissing, r,
                fmt::format("{} is gone, and the next query must see it", TokenText(b, missing)));
  }
  int64_t count = 0;
  for (uint64_t word : seen_) count += std::popcount(word);
  if (row.most_retained >= 0 && count > row.most_retained) {
    return Fail(StepFault::kNeverForgets, r,
                fmt::format("{} tokens are retained, {} at most are expected of {}", count,
                            row.most_retained, Print(expected_->layout)));
  }
  if (live_ >= 0) {
    live_ += count;
    const ExpectedStep& e = *expected_;
    // A cache whose groups are coded keeps all of a row.
    const auto add = [&](const KvFormat& format, int64_t dim, int64_t coded) {
      const int64_t in_groups = std::min(coded, count);
      live_bytes_ += e.kv_heads * StoredBytes(format, dim, count, in_groups);
      room_bytes_ += e.kv_heads * RoomBytes(format, dim, count, in_groups);
    };
    add(e.k, e.k_dim, row.k_coded);
    add(e.v, e.v_dim, row.v_coded);
  }
  // What a probe does not see may be retained all the same.
  const bool all = !view_->probed || count == row.offset;
  exact_ = exact_ && all;
  if (row.offset > 0) {
    const int64_t most = row.newest_visible.Count();
    int64_t size = most;
    if (lacks(row.newest_visible, &missing)) {
      size = 0;
      for (int64_t p = 0; p < row.offset; ++p) {
        size += row.newest_visible.Contains(p) && TestBit(seen_.data(), p) ? 1 : 0;
      }
    }
    size_ = std::max(size_, size);
    size_most_ = std::max(size_most_, all ? size : most);
  }
  if (row.offset == 0 || !row.returns_before ||
      (trimmable_ && lacks(row.required_before, &missing))) {
    trimmable_ = false;
  }
  return true;
}

bool StepComparer::CompareNumbers() {
  const StepView& view = *view_;
  const ExpectedStep& e = *expected_;
  bool empty = true;
  for (const ExpectedRow& row : e.rows) empty = empty && row.offset == 0;
  if (!profile_->any_empty && view.empty != Known::kCannotTell &&
      (view.empty == Known::kYes) != empty) {
    return Fail(
        StepFault::kEmpty, -1,
        empty ? "the cache is empty, and does not say so" : "the cache says that it is empty");
  }
  if (view.size != StepView::kUnknown && profile_->size != SizeRule::kAny) {
    const int64_t most =
        profile_->size == SizeRule::kColumns ? std::max(size_, view.columns) : size_most_;
    if (view.size < size_ || view.size > most) {
      return Fail(
          StepFault::kSize, -1,
          most == size_
              ? fmt::format("the size is {}, the longest row has {}", view.size, size_)
              : fmt::format("the size is {}, {} to {} are expected", view.size, size_, most));
    }
  }
  const bool retained_known = view.retained != nullptr;
  if (!profile_->any_trimmable && retained_known && view.trimmable != Known::kCannotTell) {
    const bool trimmable = empty || trimmable_;
    const bool known = trimmable || exact_;
    if (known && (view.trimmable == Known::kYes) != trimmable) {
      return Fail(StepFault::kTrimmable, -1,
                  trimmable
                      ? "trim(1) would give back 1, and the cache says that it is not trimmable"
                      : "the cache says that it is trimmable, and trim(1) cannot give back 1");
    }
  }
  const int64_t live = live_bytes_;
  if (live_ < 0 || !retained_known) return true;
  if (view.capacity_bytes != StepView::kUnknown) {
    if (view.capacity_bytes < live || (exact_ && e.no_tail && view.capacity_bytes > room_bytes_)) {
      return Fail(StepFault::kCapacity, -1,
                  fmt::format("{} bytes are allocated, the {} retained tokens take {}{}",
                              view.capacity_bytes, live_, live,
                              e.no_tail ? ", and an extracted row has no tail" : ""));
    }
  }
  if (view.live_bytes == StepView::kUnknown || profile_->bytes == BytesRule::kAny) return true;
  const bool at_least = profile_->bytes == BytesRule::kCapacity || !exact_;
  if (at_least ? view.live_bytes < live : view.live_bytes != live) {
    return Fail(StepFault::kLiveBytes, -1,
                fmt::format("{} bytes are said to be live, the {} retained tokens take {}",
                            view.live_bytes, live_, live));
  }
  return true;
}

}  // namespace kvcheck
