// Software prefetch: every line of both streams once and in order, evenly over the steps.

#include "optimized/attention/prefetcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <vector>

namespace kvcheck::optimized {
namespace {

struct Line {
  uintptr_t at;
  bool to_l2;
  bool operator==(const Line&) const = default;
};
std::vector<Line> prefetched;
void Record(uintptr_t at, bool to_l2) { prefetched.push_back({at, to_l2}); }

std::vector<Line> LinesOf(const PrefetchRows& rows) {
  std::vector<Line> lines;
  if (rows.count == 0) return lines;
  const auto from = reinterpret_cast<uintptr_t>(rows.from);
  // Contiguous rows are one, whose lines need not begin with a row.
  const bool one = rows.bytes == rows.stride;
  const int64_t bytes = one ? rows.bytes * rows.count : rows.bytes;
  for (int64_t i = 0; i < (one ? 1 : rows.count); ++i) {
    for (int64_t at = 0; at < bytes; at += kLineBytes) {
      lines.push_back({from + static_cast<uintptr_t>(i * rows.stride + at), rows.to_l2});
    }
  }
  return lines;
}

// The lines of the first stream, or of the second.
std::vector<Line> Of(const std::vector<Line>& lines, bool first, uintptr_t second_from) {
  std::vector<Line> of;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(of),
               [&](const Line& line) { return (line.at < second_from) == first; });
  return of;
}

TEST(AttentionPrefetcher, PrefetchesEveryLineOnceInOrderAndEvenly) {
  std::mt19937 random(1);
  const auto drawn = [&](const std::vector<int64_t>& of) { return of[random() % of.size()]; };
  constexpr uintptr_t kFirst = uintptr_t{1} << 30, kSecond = uintptr_t{1} << 40;
  const auto stream = [&](uintptr_t from) {
    PrefetchRows rows;
    if (random() % 4 == 0) return rows;
    rows.from = reinterpret_cast<const std::byte*>(from + random() % 100);
    rows.bytes = drawn({1, 63, 64, 68, 128, 256, 512, 1000});
    rows.stride = random() % 2 == 0 ? rows.bytes : drawn({64, 256, 1024, 4096, -512});
    rows.count = drawn({0, 1, 2, 31, 32, 64});
    rows.to_l2 = random() % 2 == 0;
    return rows;
  };
  int alike = 0;
  for (int i = 0; i < 20000; ++i) {
    PrefetchRows streams[2] = {stream(kFirst), stream(kSecond)};
    if (random() % 3 == 0) {  // K and V of one format
      streams[1].bytes = streams[0].bytes;
      streams[1].stride = streams[0].stride;
      streams[1].count = streams[0].count;
      streams[1].from = reinterpret_cast<const std::byte*>(kSecond);
      alike += streams[0].count > 0 ? 1 : 0;
    }
    const auto first = LinesOf(streams[0]), second = LinesOf(streams[1]);
    const int64_t steps = drawn({1, 2, 3, 7, 16, 64, 300, 5000});
    PrefetchStreams<Record> lines(streams, steps);
    prefetched.clear();
    const auto all = static_cast<int64_t>(first.size() + second.size());
    int64_t most = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const auto before = std::ssize(prefetched);
      lines.Step();
      most = std::max<int64_t>(most, std::ssize(prefetched) - before);
    }
    const std::vector<Line> during = prefetched;
    for (int more = 0; more < 3; ++more) lines.Step();
    EXPECT_EQ(std::ssize(prefetched), std::ssize(during)) << "after the last step";
    const bool pair = streams[0].bytes == streams[1].bytes &&
                      streams[0].stride == streams[1].stride &&
                      streams[0].count == streams[1].count;
    const int64_t rounds = pair ? all / 2 : all;  // a pair's lines are interleaved
    EXPECT_LE(most, (rounds + steps - 1) / steps * (pair ? 2 : 1)) << all << " in " << steps;
    ASSERT_EQ(Of(during, true, kSecond / 2), first);
    ASSERT_EQ(Of(during, false, kSecond / 2), second);
  }
  EXPECT_GT(alike, 1000);
}

TEST(AttentionPrefetcher, DoesNothingWithoutStepsOrStreams) {
  prefetched.clear();
  const PrefetchRows nothing[2] = {};
  PrefetchStreams<Record>(nothing, 5).Step();
  const PrefetchRows some[2] = {{reinterpret_cast<const std::byte*>(64), 64, 64, 3, false}, {}};
  PrefetchStreams<Record>(some, 0).Step();
  EXPECT_TRUE(prefetched.empty());
}

}  // namespace
}  // namespace kvcheck::optimized
