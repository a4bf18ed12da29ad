// What is fetched ahead: every line of both streams once and in order, evenly over the steps.

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
  bool far;
  bool operator==(const Line&) const = default;
};
std::vector<Line> fetched;
void Record(uintptr_t at, bool far) { fetched.push_back({at, far}); }

std::vector<Line> LinesOf(const AheadRows& rows) {
  std::vector<Line> lines;
  if (rows.count == 0) return lines;
  const auto from = reinterpret_cast<uintptr_t>(rows.from);
  // Rows that stand together are one, whose lines need not begin with a row.
  const bool one = rows.bytes == rows.stride;
  const int64_t bytes = one ? rows.bytes * rows.count : rows.bytes;
  for (int64_t i = 0; i < (one ? 1 : rows.count); ++i) {
    for (int64_t at = 0; at < bytes; at += kLineBytes) {
      lines.push_back({from + static_cast<uintptr_t>(i * rows.stride + at), rows.far});
    }
  }
  return lines;
}

// Those of a stream that begins below the other one.
std::vector<Line> Of(const std::vector<Line>& lines, bool first, uintptr_t second_from) {
  std::vector<Line> of;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(of),
               [&](const Line& line) { return (line.at < second_from) == first; });
  return of;
}

TEST(AttentionFetchInOrder, FetchesEveryLineOnceInOrderAndEvenly) {
  std::mt19937 random(1);
  const auto drawn = [&](const std::vector<int64_t>& of) { return of[random() % of.size()]; };
  constexpr uintptr_t kFirst = uintptr_t{1} << 30, kSecond = uintptr_t{1} << 40;
  const auto stream = [&](uintptr_t from) {
    AheadRows rows;
    if (random() % 4 == 0) return rows;
    rows.from = reinterpret_cast<const std::byte*>(from + random() % 100);
    rows.bytes = drawn({1, 63, 64, 68, 128, 256, 512, 1000});
    rows.stride = random() % 2 == 0 ? rows.bytes : drawn({64, 256, 1024, 4096, -512});
    rows.count = drawn({0, 1, 2, 31, 32, 64});
    rows.far = random() % 2 == 0;
    return rows;
  };
  int alike = 0;
  for (int i = 0; i < 20000; ++i) {
    AheadRows ahead[2] = {stream(kFirst), stream(kSecond)};
    if (random() % 3 == 0) {  // K and V of one format
      ahead[1].bytes = ahead[0].bytes;
      ahead[1].stride = ahead[0].stride;
      ahead[1].count = ahead[0].count;
      ahead[1].from = reinterpret_cast<const std::byte*>(kSecond);
      alike += ahead[0].count > 0 ? 1 : 0;
    }
    const auto first = LinesOf(ahead[0]), second = LinesOf(ahead[1]);
    const int64_t steps = drawn({1, 2, 3, 7, 16, 64, 300, 5000});
    LinesInOrder<Record> lines(ahead, steps);
    fetched.clear();
    const auto all = static_cast<int64_t>(first.size() + second.size());
    int64_t most = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const auto before = std::ssize(fetched);
      lines.Step();
      most = std::max<int64_t>(most, std::ssize(fetched) - before);
    }
    const std::vector<Line> during = fetched;
    for (int more = 0; more < 3; ++more) lines.Step();
    EXPECT_EQ(std::ssize(fetched), std::ssize(during)) << "after the last step";
    const bool pair = ahead[0].bytes == ahead[1].bytes && ahead[0].stride == ahead[1].stride &&
                      ahead[0].count == ahead[1].count;
    const int64_t rounds = pair ? all / 2 : all;  // those of a pair go a line of each
    EXPECT_LE(most, (rounds + steps - 1) / steps * (pair ? 2 : 1)) << all << " in " << steps;
    ASSERT_EQ(Of(during, true, kSecond / 2), first);
    ASSERT_EQ(Of(during, false, kSecond / 2), second);
  }
  EXPECT_GT(alike, 1000);
}

TEST(AttentionFetchInOrder, WithoutStepsOrStreamsNothingIsFetched) {
  fetched.clear();
  const AheadRows nothing[2] = {};
  LinesInOrder<Record>(nothing, 5).Step();
  const AheadRows some[2] = {{reinterpret_cast<const std::byte*>(64), 64, 64, 3, false}, {}};
  LinesInOrder<Record>(some, 0).Step();
  EXPECT_TRUE(fetched.empty());
}

}  // namespace
}  // namespace kvcheck::optimized
