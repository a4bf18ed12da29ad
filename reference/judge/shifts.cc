#include "reference/judge/shifts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>

#include "reference/judge/heat_map.h"
#include "reference/judge/hints.h"

namespace kvcheck {
namespace {

// What bounds the work per axis: slices, elements of a slice, and distances of a shift.
constexpr size_t kMostSlices = 256;
constexpr size_t kMostSamples = 1024;
// Of as many slices none is expected to be explained by chance.
constexpr double kChance = 1.0 / kMostSlices;
constexpr int64_t kAllDistances = 128;  // axes up to this extent: every other slice
constexpr int64_t kMostDistance = 32;   // longer ones
constexpr size_t kMostListed = 4;

int64_t StrideOf(const Window& window, size_t axis) {
  int64_t stride = 1;
  for (size_t a = axis + 1; a < window.extent.size(); ++a) stride *= window.extent[a];
  return stride;
}

template <typename T>
std::vector<T> EvenSample(const std::vector<T>& all, size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

bool Matches(const Window& window, int64_t index, int64_t like) {
  const size_t i = static_cast<size_t>(index);
  const size_t j = static_cast<size_t>(like);
  if (window.judged[j] == 0) return false;
  return std::fabs(window.got[i] - window.expected[j]) <= window.tolerance[j];
}

// Along one axis: failing slice -> the slice whose expected values it shows, where one explains
// more than half of the failing elements.
struct SliceMap {
  size_t tried = 0;
  std::map<int64_t, int64_t> like;
};

// As many of `others` slices as would explain at least `best` of `samples` elements, if elements
// were explained as often as those slices explain them: codes of few bits agree by chance.
double ByChance(int64_t others, size_t samples, size_t best, size_t matches) {
  const auto n = static_cast<double>(samples), k = static_cast<double>(best);
  const double trials = static_cast<double>(others) * n;
  const double p = std::min(1.0, (static_cast<double>(matches - best) + 1) / (trials + 1));
  double chance = std::log(static_cast<double>(others));  // its logarithm
  for (double i = 1; i <= k; ++i) chance += std::log(p * (n - k + i) / i);
  return std::exp(chance);
}

SliceMap FindLikeSlices(const Window& window, size_t axis) {
  SliceMap result;
  const int64_t extent = window.extent[axis];
  if (extent < 2) return result;
  const int64_t stride = StrideOf(window, axis);
  std::vector<std::vector<int64_t>> failing(static_cast<size_t>(extent));
  for (int64_t i = 0; i < window.Size(); ++i) {
    if (window.failed[static_cast<size_t>(i)] != 0) {
      failing[static_cast<size_t>(i / stride % extent)].push_back(i);
    }
  }
  std::vector<int64_t> slices;
  for (int64_t c = 0; c < extent; ++c) {
    if (!failing[static_cast<size_t>(c)].empty()) slices.push_back(c);
  }
  slices = EvenSample(slices, kMostSlices);
  const int64_t farthest = extent <= kAllDistances ? extent - 1 : kMostDistance;
  result.tried = slices.size();
  for (const int64_t c : slices) {
    const std::vector<int64_t> samples = EvenSample(failing[static_cast<size_t>(c)], kMostSamples);
    size_t best = 0, all_matches = 0;
    int64_t best_slice = -1, others = 0;
    for (int64_t distance = 1; distance <= farthest; ++distance) {
      for (const int64_t other : {c + distance, c - distance}) {
        if (other < 0 || other >= extent) continue;
        size_t matches = 0;
        for (const int64_t i : samples) {
          matches += Matches(window, i, i + (other - c) * stride) ? 1 : 0;
        }
        ++others;
        all_matches += matches;
        if (matches > best) {
          best = matches;
          best_slice = other;
        }
      }
    }
    if (2 * best > samples.size() &&
        ByChance(others, samples.size(), best, all_matches) < kChance) {
      result.like[c] = best_slice;
    }
  }
  return result;
}

std::optional<std::string> DescribeMap(const std::string& label, const SliceMap& map,
                                       int64_t first) {
  if (map.like.empty() || 2 * map.like.size() <= map.tried) return std::nullopt;
  const auto name = [&](int64_t slice) { return fmt::format("{}={}", label, slice + first); };
  const auto [from, to] = *map.like.begin();
  if (map.like.size() == 1) {
    return fmt::format("{} looks like expected {}", name(from), name(to));
  }
  const bool swapped =
      map.like.size() == 2 && map.like.rbegin()->first == to && map.like.rbegin()->second == from;
  if (swapped) return fmt::format("{} and {} are swapped", name(from), name(to));
  std::map<int64_t, size_t> distances;
  for (const auto& [slice, other] : map.like) ++distances[other - slice];
  for (const auto& [distance, count] : distances) {
    if (2 * count > map.tried) {
      return fmt::format("shifted by {} along {}: {} looks like expected {} ({} of {} failing {})",
                         std::llabs(distance), label, label, fmt::format("{}{:+}", label, distance),
                         count, map.tried, label);
    }
  }
  std::vector<std::string> pairs;
  for (const auto& [slice, other] : map.like) {
    if (pairs.size() == kMostListed) break;
    pairs.push_back(fmt::format("{} like expected {}", name(slice), name(other)));
  }
  return fmt::format("{} in another order: {}{}", label, fmt::join(pairs, ", "),
                     map.like.size() > kMostListed ? ", ..." : "");
}

void DescribeValues(const Window& window, std::vector<std::string>* lines) {
  int64_t failing = 0;
  int64_t zeros = 0;
  int64_t not_finite = 0;
  int64_t negated = 0;
  double error_squared = 0;
  double expected_squared = 0;
  double got_squared = 0;
  double product = 0;
  double got_product = 0;
  int64_t finite = 0;
  for (size_t i = 0; i < window.failed.size(); ++i) {
    if (window.failed[i] == 0) continue;
    ++failing;
    if (!std::isfinite(window.got[i])) {
      ++not_finite;
      continue;
    }
    zeros += window.got[i] == 0 ? 1 : 0;
    negated += std::fabs(window.got[i] + window.expected[i]) <= window.tolerance[i] ? 1 : 0;
    if (!std::isfinite(window.expected[i])) continue;
    ++finite;
    const double error = window.got[i] - window.expected[i];
    error_squared += error * error;
    expected_squared += window.expected[i] * window.expected[i];
    got_squared += window.got[i] * window.got[i];
    product += error * window.expected[i];
    got_product += window.got[i] * window.expected[i];
  }
  if (failing == 0) return;
  if (not_finite == failing) {
    lines->push_back("no failing value is finite");
  } else if (2 * zeros > failing) {
    lines->push_back(zeros == failing
                         ? "every failing value is 0: never written?"
                         : fmt::format("{} of {} failing values are 0", zeros, failing));
  } else if (2 * negated > failing) {
    lines->push_back("failing values have the opposite sign");
  } else if (expected_squared > 0 && error_squared > 0 && got_squared > 0) {
    // Of the error, and of the values themselves: any values that have nothing to do with the
    // expected ones explain half of their error as "0 times".
    const double share = (product / expected_squared) * (product / error_squared);
    const double likeness = (got_product / expected_squared) * (got_product / got_squared);
    if (IsExplained(share, finite, 1) && IsExplained(likeness, finite, 1)) {
      lines->push_back(fmt::format(
          "failing values are about {:.4g} times the expected ones ({:.0f} % of the error)",
          got_product / expected_squared, 100 * share));
    }
  }
}

}  // namespace

int64_t Window::Size() const {
  int64_t size = 1;
  for (const int64_t e : extent) size *= e;
  return size;
}

int64_t Window::IndexOf(int64_t element) const {
  const std::vector<int64_t> at = shape.Coordinates(element);
  int64_t index = 0;
  for (size_t a = 0; a < at.size(); ++a) {
    const int64_t inside = at[a] - first[a];
    if (inside < 0 || inside >= extent[a]) return -1;
    index = index * extent[a] + inside;
  }
  return index;
}

Window MakeWindow(const Shape& shape, int64_t around, int64_t most_elements) {
  Window window;
  window.shape = shape;
  for (const Axis& axis : shape.axes) {
    window.first.push_back(0);
    window.extent.push_back(axis.extent);
  }
  const std::vector<int64_t> at = shape.Coordinates(around);
  while (window.Size() > most_elements) {
    const size_t a = static_cast<size_t>(
        std::max_element(window.extent.begin(), window.extent.end()) - window.extent.begin());
    window.extent[a] = (window.extent[a] + 1) / 2;
    const int64_t last_first = shape.axes[a].extent - window.extent[a];
    window.first[a] = std::clamp<int64_t>(at[a] - window.extent[a] / 2, 0, last_first);
  }
  const size_t size = static_cast<size_t>(window.Size());
  window.expected.resize(size);
  window.got.resize(size);
  window.tolerance.resize(size);
  window.judged.resize(size);
  window.failed.resize(size);
  return window;
}

std::vector<std::string> DescribeLikeness(const Window& window) {
  std::vector<std::string> lines;
  for (size_t a = 0; a < window.extent.size(); ++a) {
    const SliceMap map = FindLikeSlices(window, a);
    if (auto text = DescribeMap(AxisLabel(window.shape, a), map,
                                window.shape.axes[a].first + window.first[a])) {
      lines.push_back(*text);
    }
  }
  DescribeValues(window, &lines);
  return lines;
}

}  // namespace kvcheck
