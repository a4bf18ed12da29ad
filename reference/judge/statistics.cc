#include "reference/judge/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string GroupName(const OutputInfo& info, int group) {
  const size_t index = static_cast<size_t>(group);
  return index < info.groups.size() ? info.groups[index] : fmt::format("group {}", group);
}

std::string At(const std::vector<std::string>& names, size_t index) {
  return index < names.size() ? names[index] : std::string();
}

struct MeanAndVariance {
  double mean;
  double variance;
};

MeanAndVariance OfReplicates(const std::array<double, kReplicates>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / kReplicates;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, squares / (kReplicates - 1)};
}

// The strongest line of each statistic, with the number of groups that are over its limit.
class WarningLines {
 public:
  explicit WarningLines(int64_t groups) : groups_(groups) {}

  void Add(int statistic, double excess, std::string line) {
    if (std::isnan(excess)) excess = kInfinity;
    Strongest& strongest = by_statistic_[statistic];
    ++strongest.count;
    if (strongest.count == 1 || excess > strongest.excess) {
      strongest.excess = excess;
      strongest.line = std::move(line);
    }
  }

  std::vector<std::string> Take() {
    std::vector<Strongest> sorted;
    for (auto& [statistic, strongest] : by_statistic_) sorted.push_back(std::move(strongest));
    std::sort(sorted.begin(), sorted.end(), [](const Strongest& a, const Strongest& b) {
      return std::tie(b.excess, a.line) < std::tie(a.excess, b.line);
    });
    std::vector<std::string> lines;
    for (const Strongest& s : sorted) {
      lines.push_back(fmt::format("{} ({} of {} groups)", s.line, s.count, groups_));
    }
    return lines;
  }

 private:
  struct Strongest {
    int64_t count = 0;
    double excess = 0;
    std::string line;
  };
  int64_t groups_;
  std::map<int, Strongest> by_statistic_;
};

}  // namespace

double TailExponent(int64_t tests, double false_alarm) {
  return std::log(2 * static_cast<double>(std::max<int64_t>(1, tests)) / false_alarm);
}

double DirectionLimit(int64_t tests, double false_alarm) {
  return std::sqrt(2 * TailExponent(tests, false_alarm));
}

void StatisticsAccumulator::AddRow(const TileStatistics& statistics, size_t row, size_t row_length,
                                   std::span<const double> errors, GroupSums* group) {
  const size_t begin = row * row_length;
  group->directions.resize(statistics.effect.size());
  for (size_t i = begin; i < begin + row_length; ++i) {
    const double sigma_squared = statistics.sigma_squared[i];
    // Without modelled noise any error would be infinitely significant: that is the bound's matter.
    if (!(sigma_squared > 0)) {
      ++skipped_;
      continue;
    }
    ++group->elements;
    group->q += errors[i] / sigma_squared * errors[i];
    for (size_t k = 0; k < statistics.effect.size(); ++k) {
      const double weight = statistics.effect[k][i] / sigma_squared;
      group->directions[k].z += weight * errors[i];
      group->directions[k].weighted_effect += weight * statistics.effect[k][i];
    }
  }
  const double gram = statistics.gram_norm[row];
  group->gram_squared += gram * gram;
  group->gram_largest = std::max(group->gram_largest, gram);
  group->slack_squared += statistics.slack_squared[row];
  for (size_t k = 0; k < statistics.effect.size(); ++k) {
    DirectionSums& sums = group->directions[k];
    sums.variance += statistics.variance[k][row];
    sums.slack += statistics.slack[k][row];
    for (size_t r = 0; r < kReplicates; ++r) {
      sums.replicates[r] += statistics.replicate_z[k][row * kReplicates + r];
    }
  }
}

void StatisticsAccumulator::Add(const ExpectedTile& tile, const OutputInfo& info,
                                std::span<const double> errors, std::span<const uint8_t> use) {
  if (!tile.statistics.has_value() || tile.group.empty()) return;
  const TileStatistics& statistics = *tile.statistics;
  const size_t rows = static_cast<size_t>(tile.row_count);
  const size_t length = static_cast<size_t>(info.row_length);
  KVCHECK_CHECK(statistics.sigma_squared.size() == rows * length &&
                    statistics.gram_norm.size() == rows &&
                    statistics.slack_squared.size() == rows &&
                    statistics.slack.size() == statistics.effect.size() &&
                    statistics.variance.size() == statistics.effect.size() &&
                    statistics.replicate_z.size() == statistics.effect.size(),
                "statistics of another size than their tile");
  for (size_t k = 0; k < statistics.effect.size(); ++k) {
    KVCHECK_CHECK(statistics.effect[k].size() == rows * length &&
                      statistics.variance[k].size() == rows && statistics.slack[k].size() == rows &&
                      statistics.replicate_z[k].size() == rows * kReplicates,
                  "a fault direction of another size than its tile");
  }
  for (size_t row = 0; row < rows; ++row) {
    const auto row_use = use.subspan(row * length, length);
    if (std::find(row_use.begin(), row_use.end(), 0) != row_use.end()) {
      skipped_ += info.row_length;
      continue;
    }
    AddRow(statistics, row, length, errors, &groups_[tile.group[row]]);
  }
}

void StatisticsAccumulator::Merge(const StatisticsAccumulator& other) {
  skipped_ += other.skipped_;
  for (const auto& [key, from] : other.groups_) {
    GroupSums& to = groups_[key];
    to.elements += from.elements;
    to.q += from.q;
    to.gram_squared += from.gram_squared;
    to.gram_largest = std::max(to.gram_largest, from.gram_largest);
    to.slack_squared += from.slack_squared;
    if (to.directions.size() < from.directions.size()) to.directions.resize(from.directions.size());
    for (size_t k = 0; k < from.directions.size(); ++k) {
      to.directions[k].z += from.directions[k].z;
      to.directions[k].variance += from.directions[k].variance;
      to.directions[k].weighted_effect += from.directions[k].weighted_effect;
      to.directions[k].slack += from.directions[k].slack;
      for (size_t r = 0; r < kReplicates; ++r) {
        to.directions[k].replicates[r] += from.directions[k].replicates[r];
      }
    }
  }
}

int64_t StatisticsAccumulator::Tests(const OutputInfo& info) const {
  return static_cast<int64_t>(groups_.size() * (info.directions.size() + 1));
}

StatisticsReport StatisticsAccumulator::Finish(const OutputInfo& info, int64_t tests,
                                               double false_alarm) const {
  StatisticsReport report;
  report.tests = tests;
  report.false_alarm = false_alarm;
  report.skipped_elements = skipped_;
  const double t = TailExponent(tests, false_alarm);
  const double limit = DirectionLimit(tests, false_alarm);
  WarningLines warnings(static_cast<int64_t>(groups_.size()));
  for (const auto& [key, group] : groups_) {
    const std::string name = GroupName(info, key);
    for (size_t k = 0; k < group.directions.size(); ++k) {
      const DirectionSums& sums = group.directions[k];
      const MeanAndVariance replicates = OfReplicates(sums.replicates);
      const double variance =
          std::max(sums.variance, replicates.variance) * (1 + 1.0 / kReplicates);
      DirectionStatistic d;
      d.group = name;
      d.direction = At(info.directions, k);
      d.hint = At(info.hints, k);
      d.limit = limit;
      const double excess = sums.z - replicates.mean;
      // A group without any effect or noise has nothing to test.
      const double random = std::max(0.0, std::fabs(excess) - sums.slack);
      if (variance > 0) d.z = random / std::sqrt(variance);
      if (sums.weighted_effect > 0) d.coefficient = excess / sums.weighted_effect;
      d.detectable = sums.weighted_effect > 0
                         ? (limit * std::sqrt(variance) + sums.slack) / sums.weighted_effect
                         : kInfinity;
      d.over = !(d.z <= limit);
      if (d.over) {
        warnings.Add(
            static_cast<int>(k), d.z / limit,
            fmt::format("{} at {}: z = {:.1f} over {:.1f}, {:.3g} times the fault fits best: {}",
                        d.direction, name, d.z, limit, d.coefficient, d.hint));
      }
      report.directions.push_back(std::move(d));
    }
    QuadraticStatistic q;
    q.group = name;
    q.q = group.q;
    q.elements = group.elements;
    const double tail = static_cast<double>(group.elements) +
                        2 * std::sqrt(t * group.gram_squared) + 2 * t * group.gram_largest;
    const double root = std::sqrt(tail) + std::sqrt(group.slack_squared);
    q.limit = root * root;
    q.over = !(q.q <= q.limit);
    if (q.over) {
      warnings.Add(
          -1, q.q / q.limit,
          fmt::format("size of the errors at {}: Q = {:.4g} over {:.4g}, RMS {:.2f} times "
                      "what the declared roundings make",
                      name, q.q, q.limit, std::sqrt(q.q / static_cast<double>(q.elements))));
    }
    report.quadratics.push_back(std::move(q));
  }
  report.warnings = warnings.Take();
  return report;
}

}  // namespace kvcheck
