// How many roundings a term of a sum passes: depths of runs, blocks and splits, and how the visible
// keys of a row fall into them (bound.md, section 3).

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention/arithmetic.h"

namespace kvcheck {
namespace {

double CeilDiv(double a, double b) { return std::ceil(a / b); }
double CeilLog2(double n) { return n <= 1 ? 0 : std::ceil(std::log2(n)); }

}  // namespace

double Gamma(double k, double u) {
  const double product = k * u;
  return product >= 1 ? std::numeric_limits<double>::infinity() : product / (1 - product);
}

double RotationRoundings(size_t n) {
  const double levels = std::log2(static_cast<double>(n));
  return levels + (std::fmod(levels, 2) == 0 ? 0 : 2);
}

double SumDepth(const SumPlan& sum, double terms, const KeyPlaces& places, bool products_exact) {
  const double joins = places.blocks - 1;  // of a block's sum with the running one
  // Adding zero is exact: no more roundings than nonzero addends less one.
  const double tree =
      std::min(CeilLog2(std::min<double>(sum.width, places.extent)), places.longest - 1);
  double depth = 0;
  switch (sum.order) {
    case SumOrder::kSequential:
      depth = sum.chained ? terms - 1 : places.longest - 1 + joins;
      break;
    case SumOrder::kLanes:
      depth = sum.chained ? places.fullest * places.blocks - 1 + tree
                          : places.fullest - 1 + tree + joins;
      break;
    case SumOrder::kPairwise:
      depth = std::min(CeilLog2(places.extent), places.longest - 1) + joins;
      break;
    case SumOrder::kTensorCore:
      // Each call cuts its products and the accumulator once, and normalises once; cutting zero is
      // exact.
      return sum.chained ? terms + 2 * places.calls * places.blocks
                         : places.longest + 2 * places.calls + joins;
    case SumOrder::kDepth:
      return sum.width;
  }
  // A product is rounded in the accumulator's type: on its own, or (fused) where it meets zero.
  return depth + (products_exact ? 0 : 1);
}

double SumDepth(const SumPlan& sum, double terms, bool products_exact) {
  KeyPlaces places;
  places.longest = places.extent = terms;
  const double width = std::max(sum.width, 1);
  places.fullest = places.calls = CeilDiv(terms, width);
  return SumDepth(sum, terms, places, products_exact);
}

KeyPlaces PlaceKeys(std::span<const int32_t> keys, int64_t kv_len, int64_t block, int64_t range,
                    int64_t width, int64_t first_column) {
  KeyPlaces places;
  width = std::clamp<int64_t>(width, 1, std::max<int64_t>(kv_len, 1));
  const int64_t columns = block > 0 ? block : std::max<int64_t>(kv_len, 1);
  places.extent = static_cast<double>(std::min(columns, std::min(range, kv_len)));
  std::vector<int64_t> on_lane(static_cast<size_t>(width));
  // The same of keys without a gap, block by block.
  const auto place_run = [&](int64_t origin, int64_t restart) {
    int64_t blocks = 0, last_split = -1;
    const int64_t end = keys.back() - origin + 1;
    for (int64_t column = keys.front() - origin; column < end;) {
      const int64_t split = column / restart;
      const int64_t within = column % restart;
      const int64_t first = within % columns;
      const int64_t count = std::min({end - column, restart - within, columns - first});
      blocks = split == last_split ? blocks + 1 : 1;
      last_split = split;
      const double packed = CeilDiv(static_cast<double>(count), static_cast<double>(width));
      const int64_t calls = (first + count - 1) / width - first / width + 1;
      places.blocks = std::max(places.blocks, static_cast<double>(blocks));
      places.longest = std::max(places.longest, static_cast<double>(count));
      places.fullest = std::max(places.fullest, packed);
      places.calls = std::max({places.calls, static_cast<double>(calls), packed});
      column += count;
    }
  };
  const bool has_gaps = !keys.empty() && keys.back() - keys.front() + 1 != std::ssize(keys);
  // Counts the keys under one numbering of the columns, restarting at multiples of `restart`.
  const auto place = [&](int64_t origin, int64_t restart) {
    if (!has_gaps) return place_run(origin, restart);
    int64_t blocks = 0, keys_here = 0, calls = 0, fullest = 0;
    int64_t last_split = -1, last_block = -1, last_call = -1;
    for (const int32_t key : keys) {
      const int64_t column = key - origin;
      const int64_t split = column / restart;
      const int64_t within = column % restart;
      if (split != last_split) blocks = 0, last_block = -1;
      if (split != last_split || within / columns != last_block) {
        ++blocks;
        keys_here = calls = fullest = 0;
        last_call = -1;
        std::fill(on_lane.begin(), on_lane.end(), 0);
      }
      last_split = split, last_block = within / columns;
      const int64_t place_in_block = within % columns;
      ++keys_here;
      fullest = std::max(fullest, ++on_lane[static_cast<size_t>(place_in_block % width)]);
      calls += place_in_block / width != last_call;
      last_call = place_in_block / width;
      const double packed = CeilDiv(static_cast<double>(keys_here), static_cast<double>(width));
      places.blocks = std::max(places.blocks, static_cast<double>(blocks));
      places.longest = std::max(places.longest, static_cast<double>(keys_here));
      places.fullest = std::max({places.fullest, static_cast<double>(fullest), packed});
      places.calls = std::max({places.calls, static_cast<double>(calls), packed});
    }
  };
  if (keys.empty()) return places;
  place(0, std::numeric_limits<int32_t>::max());
  if (range < kv_len) place(0, range);
  if (first_column > 0 && first_column < keys.front()) {
    place(first_column, std::numeric_limits<int32_t>::max());
    if (range < kv_len) place(first_column, range);
  }
  if (keys.front() > 0) place(keys.front(), std::numeric_limits<int32_t>::max());
  if (block > 0 && (keys.front() > 0 || range < kv_len)) places.blocks += 1;
  places.blocks = std::min(places.blocks, static_cast<double>(keys.size()));
  return places;
}

KeyDepths Arithmetic::Depths(std::span<const int32_t> keys, int64_t kv_len,
                             int64_t first_column) const {
  KeyDepths depths;
  double n = std::max(1.0, static_cast<double>(keys.size()));
  const int64_t block = *plan.block;
  int64_t range = std::max<int64_t>(kv_len, 1);
  if (merge != MergeKind::kNone) {
    depths.splits = std::min<double>(*plan.splits, n);
    // Ranges end on blocks where there are blocks.
    const int64_t unit = std::max<int64_t>(block, 1);
    const int64_t units = (range + unit - 1) / unit;
    range = std::min(range, (units + *plan.splits - 1) / *plan.splits * unit);
    n = std::min(n, static_cast<double>(range));
  }
  const auto places = [&](const SumPlan& sum) {
    KeyPlaces p = PlaceKeys(keys, kv_len, block, range, sum.width, first_column);
    if (block > 0 && merge != MergeKind::kNone) {
      p.blocks =
          std::min(p.blocks, CeilDiv(static_cast<double>(range), static_cast<double>(block)) + 1);
    }
    p.longest = std::clamp(p.longest, 1.0, n);
    return p;
  };
  const KeyPlaces pv_places = places(*plan.pv);
  depths.pv = PassDepth(*plan.pv, SumDepth(*plan.pv, n, pv_places, pv_exact), cut_pv.passes);
  depths.l = SumDepth(*plan.l, n, places(*plan.l), l_exact) + (has_sinks ? 1 : 0);
  depths.rescales = pv_places.blocks - 1 + (merge == MergeKind::kNone ? 0 : 1);
  if (has_sinks && *plan.late_sink) depths.rescales += 1;
  return depths;
}

}  // namespace kvcheck
