// Ranges of keys whose rows stand in no tensor of the case: how they are searched, and the systems
// of equations that their numbers solve.

#ifndef REFERENCE_ATTENTION_STALE_RANGE_H_
#define REFERENCE_ATTENTION_STALE_RANGE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvcheck {

// The lower triangle L of L L^T, in place of a symmetric matrix in rows of n; false: not positive.
inline bool Decompose(std::vector<double>* matrix, size_t n) {
  std::vector<double>& a = *matrix;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      if (i != j) {
        a[i * n + j] = sum / a[j * n + j];
      } else if (sum > 0 && std::isfinite(sum)) {
        a[i * n + i] = std::sqrt(sum);
      } else {
        return false;
      }
    }
  }
  return true;
}

// x becomes L^-1 x.
inline void SolveLower(const std::vector<double>& l, size_t n, std::vector<double>* x) {
  for (size_t i = 0; i < n; ++i) {
    double sum = (*x)[i];
    for (size_t k = 0; k < i; ++k) sum -= l[i * n + k] * (*x)[k];
    (*x)[i] = sum / l[i * n + i];
  }
}

// x becomes L^-T x.
inline void SolveUpper(const std::vector<double>& l, size_t n, std::vector<double>* x) {
  for (size_t i = n; i-- > 0;) {
    double sum = (*x)[i];
    for (size_t k = i + 1; k < n; ++k) sum -= l[k * n + i] * (*x)[k];
    (*x)[i] = sum / l[i * n + i];
  }
}

struct StaleRange {
  int64_t from = 0, to = 0;
  double charged = HUGE_VAL;  // twice the negative log-likelihood, and what the choice costs

  int64_t size() const { return to - from; }
  bool Overlaps(const StaleRange& other) const { return from < other.to && other.from < to; }
};

// Among so many ranges: any, or pages of a size.
inline double ChoicesOf(int64_t from, int64_t to, int64_t kv_len) {
  const auto n = static_cast<double>(kv_len);
  double choices = 0.5 * n * n + 1;
  for (const int64_t page : {16, 32, 64, 128, 256}) {
    if (from % page == 0 && (to == kv_len || to == from + page) && to - from <= page) {
      choices = std::min(choices, 5 * n / static_cast<double>(page));
    }
  }
  return choices;
}

// Aligned blocks of all sizes, the best few of each; charged(from, to) -> StaleRange::charged.
template <typename Charged>
std::vector<StaleRange> BestBlocks(int64_t kv_len, int64_t largest, const Charged& charged) {
  constexpr size_t kKept = 6;
  std::vector<StaleRange> kept;
  for (int64_t size = kv_len <= (1 << 14) ? 4 : 16; size <= largest && size < kv_len; size *= 2) {
    std::vector<StaleRange> blocks;
    for (int64_t from = 0; from < kv_len; from += size) {
      const int64_t to = std::min(from + size, kv_len);
      blocks.push_back({from, to, charged(from, to)});
    }
    const size_t count = std::min(kKept, blocks.size());
    std::partial_sort(
        blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count), blocks.end(),
        [](const StaleRange& x, const StaleRange& y) { return x.charged < y.charged; });
    for (size_t i = 0; i < count; ++i) {
      if (blocks[i].charged < HUGE_VAL) kept.push_back(blocks[i]);
    }
  }
  return kept;
}

// Moves the edges as long as it gets better, by ever smaller steps.
template <typename Charged>
StaleRange RefinedRange(StaleRange range, int64_t kv_len, int64_t most, const Charged& charged) {
  for (int64_t by = std::max<int64_t>(1, range.size() / 2); by > 0; by /= 2) {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [first, second] : {std::pair{-by, int64_t{0}},
                                          {by, int64_t{0}},
                                          {int64_t{0}, -by},
                                          {int64_t{0}, by},
                                          {by, by},
                                          {-by, -by}}) {
        StaleRange other = {std::max<int64_t>(range.from + first, 0),
                            std::min(range.to + second, kv_len)};
        if (other.from >= other.to || other.size() > most) continue;
        if (other.from == range.from && other.to == range.to) continue;
        other.charged = charged(other.from, other.to);
        if (!(other.charged < range.charged)) continue;
        range = other;
        moved = true;
      }
    }
  }
  return range;
}

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_STALE_RANGE_H_
