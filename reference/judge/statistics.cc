#include "reference/judge/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "reference/numerics/ulp.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Of the output's spacing: what a fault must move an output by to be worth seeing.
constexpr double kWorthSeeing = 0.1;

std::string GroupName(const OutputInfo& info, int group) {
  const size_t index = static_cast<size_t>(group);
  return index < info.groups.size() ? info.groups[index] : fmt::format("group {}", group);
}

// "1e12".
std::string Inverse(double probability) {
  return fmt::format("1e{:.0f}", -std::log10(probability));
}

std::string At(const std::vector<std::string>& names, size_t index) {
  return index < names.size() ? names[index] : std::string();
}

// The strongest line of each statistic, with the number of groups that are over its limit.
class OverLines {
 public:
  explicit OverLines(int64_t groups) : groups_(groups) {}

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

// A fault is not seen in a group where no element would leave its bound, nor the statistic of the
// group, nor that of all groups, its limit.
std::vector<BlindSpot> BlindTo(const StatisticsReport& report, const OutputInfo& info) {
  std::vector<BlindSpot> spots;
  for (const std::string& direction : info.directions) {
    std::vector<std::string> blind;
    size_t groups = 0;
    bool seen_together = false;
    const auto take = [&](const std::string& group, int64_t rows, int64_t shown_rows,
                          double detectable) {
      if (rows == 0) return;
      if (group == kAllGroups) {
        seen_together = detectable <= 1;
        return;
      }
      ++groups;
      if (shown_rows == 0 && !(detectable <= 1)) blind.push_back(group);
    };
    for (const DirectionStatistic& d : report.directions) {
      if (d.direction == direction) take(d.group, d.rows, d.shown_rows, d.detectable);
    }
    for (const QuadraticStatistic& q : report.quadratics) {
      if (q.direction == direction) take(q.group, q.elements, q.shown_rows, q.detectable);
    }
    if (blind.empty()) continue;
    if (blind.size() == groups) {
      spots.push_back({direction, seen_together ? "in a single head" : ""});
    } else {
      spots.push_back({direction, fmt::format("in {} of {} heads", blind.size(), groups)});
    }
  }
  return spots;
}

}  // namespace

double TailExponent(int64_t tests, double false_alarm) {
  return std::log(2 * static_cast<double>(std::max<int64_t>(1, tests)) / false_alarm);
}

double DirectionLimit(int64_t tests, double false_alarm) {
  return std::sqrt(2 * TailExponent(tests, false_alarm));
}

void StatisticsAccumulator::AddRow(const ExpectedTile& tile, const OutputInfo& info, size_t row,
                                   std::span<const double> errors, GroupSums* group) {
  const auto row_length = static_cast<size_t>(info.row_length);
  const TileStatistics& statistics = *tile.statistics;
  const size_t directions = statistics.effect.size();
  RowSums sums;
  sums.identity = statistics.identity[row];
  if (!statistics.likeness.empty()) sums.likeness = statistics.likeness[row];
  sums.like_within = statistics.like_within;
  sums.gram = statistics.gram_norm[row];
  sums.directions.resize(directions);
  std::vector<uint8_t> has_effect(directions, 0), shows(directions, 0);
  for (size_t i = row * row_length; i < (row + 1) * row_length; ++i) {
    const double sigma_squared = statistics.sigma_squared[i];
    for (size_t k = 0; k < directions; ++k) {
      const double effect = statistics.effect[k][i];
      if (effect == 0) continue;
      const double spacing = SpacingAt(info.dtype, std::fabs(tile.value[i]));
      if (std::fabs(effect) > kWorthSeeing * spacing) has_effect[k] = 1;
      if (std::fabs(effect) > tile.bound[i]) shows[k] = 1;
    }
    // Nothing is off here but by the bound's own terms.
    if (!(sigma_squared > 0)) continue;
    ++group->elements;
    group->q += errors[i] / sigma_squared * errors[i];
    for (size_t k = 0; k < directions; ++k) {
      const double weight = statistics.effect[k][i] / sigma_squared;
      sums.directions[k].z += weight * errors[i];
      sums.directions[k].weighted_effect += weight * statistics.effect[k][i];
    }
  }
  for (size_t k = 0; k < directions; ++k) {
    DirectionSums& of = sums.directions[k];
    of.z -= statistics.mean[k][row];
    of.variance = statistics.variance[k][row];
    of.slack = statistics.slack[k][row];
    of.rows = has_effect[k];
    of.shown_rows = shows[k];
  }
  group->slack_squared += statistics.slack_squared[row];
  group->rows.push_back(std::move(sums));
}

void StatisticsAccumulator::Add(const ExpectedTile& tile, const OutputInfo& info,
                                std::span<const double> errors, std::span<const uint8_t> use) {
  if (!tile.statistics.has_value() || tile.group.empty()) return;
  const TileStatistics& statistics = *tile.statistics;
  const size_t rows = static_cast<size_t>(tile.row_count);
  const size_t length = static_cast<size_t>(info.row_length);
  const size_t directions = statistics.effect.size();
  KVCHECK_CHECK(statistics.sigma_squared.size() == rows * length &&
                    statistics.taken.size() == rows && statistics.gram_norm.size() == rows &&
                    statistics.identity.size() == rows && statistics.slack_squared.size() == rows &&
                    statistics.slack.size() == directions && statistics.mean.size() == directions &&
                    statistics.variance.size() == directions,
                "statistics of another size than their tile");
  for (size_t k = 0; k < directions; ++k) {
    KVCHECK_CHECK(statistics.effect[k].size() == rows * length &&
                      statistics.variance[k].size() == rows && statistics.slack[k].size() == rows &&
                      statistics.mean[k].size() == rows,
                  "a fault direction of another size than its tile");
  }
  for (size_t row = 0; row < rows; ++row) {
    if (statistics.taken[row] == 0) continue;
    const auto is_zero = [&](const std::vector<double>& of) {
      const double* values = of.data() + row * length;
      return std::all_of(values, values + length, [](double value) { return value == 0; });
    };
    // What no fault moves is looked at, and has no part in any sum.
    if (is_zero(statistics.sigma_squared) &&
        std::all_of(statistics.effect.begin(), statistics.effect.end(), is_zero)) {
      groups_[tile.group[row]];
      continue;
    }
    // Elements without noise are in no sum.
    bool is_whole = true;
    for (size_t i = row * length; i < (row + 1) * length; ++i) {
      is_whole = is_whole && (use[i] != 0 || !(statistics.sigma_squared[i] > 0));
    }
    if (!is_whole) {
      skipped_ += info.row_length;
      continue;
    }
    AddRow(tile, info, row, errors, &groups_[tile.group[row]]);
  }
}

void StatisticsAccumulator::Merge(const StatisticsAccumulator& other) {
  skipped_ += other.skipped_;
  for (const auto& [key, from] : other.groups_) {
    GroupSums& to = groups_[key];
    to.elements += from.elements;
    to.q += from.q;
    to.slack_squared += from.slack_squared;
    to.rows.insert(to.rows.end(), from.rows.begin(), from.rows.end());
  }
}

int64_t StatisticsAccumulator::Tests(const OutputInfo& info) const {
  const int64_t together = groups_.size() > 1 ? 1 : 0;
  return static_cast<int64_t>(groups_.size()) + (static_cast<int64_t>(groups_.size()) + together) *
                                                    static_cast<int64_t>(info.directions.size());
}

std::vector<StatisticsAccumulator::DirectionSums> StatisticsAccumulator::Directions(
    std::vector<const RowSums*> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const RowSums* a, const RowSums* b) { return a->identity < b->identity; });
  std::vector<DirectionSums> sums;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    std::vector<double> deviation;
    for (; end < rows.size() && rows[end]->identity == rows[begin]->identity; ++end) {
      const std::vector<DirectionSums>& row = rows[end]->directions;
      sums.resize(std::max(sums.size(), row.size()));
      deviation.resize(sums.size());
      for (size_t k = 0; k < row.size(); ++k) {
        deviation[k] += std::sqrt(row[k].variance);
        sums[k].z += row[k].z;
        sums[k].weighted_effect += row[k].weighted_effect;
        sums[k].slack += row[k].slack;
        sums[k].rows += row[k].rows;
        sums[k].shown_rows += row[k].shown_rows;
      }
    }
    for (size_t k = 0; k < deviation.size(); ++k) sums[k].variance += deviation[k] * deviation[k];
    begin = end;
  }
  return sums;
}

// Rows of one identity err alike: their squares are those of one. Of a sum of independent squares
// the tail is that of Q.
QuadraticStatistic StatisticsAccumulator::Varying(std::vector<const RowSums*> rows,
                                                  size_t direction, double t) {
  QuadraticStatistic result;
  std::map<uint64_t, double> rows_of;
  double fault = 0;  // what the fault, once, adds to the sum
  for (const RowSums* row : rows) {
    const DirectionSums& of = row->directions[direction];
    result.shown_rows += of.shown_rows;
    if (of.rows == 0 || !(of.variance > 0)) continue;
    ++result.elements;
    ++rows_of[row->identity];
    const double random = std::max(0.0, std::fabs(of.z) - of.slack);
    result.q += random / of.variance * random;
    const double shown = std::max(0.0, of.weighted_effect - of.slack);
    fault += shown / of.variance * shown;
  }
  double squared = 0, largest = 0;
  for (const auto& [identity, count] : rows_of) {
    squared += count * count;
    largest = std::max(largest, count);
  }
  result.limit =
      static_cast<double>(result.elements) + 2 * std::sqrt(t * squared) + 2 * t * largest;
  result.detectable = fault > 0 ? std::sqrt(result.limit / fault) : kInfinity;
  result.over = !(result.q <= result.limit);
  return result;
}

void StatisticsAccumulator::JoinAlike(std::map<int, GroupSums>* groups) {
  std::vector<RowSums*> rows;
  for (auto& [key, group] : *groups) {
    for (RowSums& row : group.rows) {
      if (row.likeness) rows.push_back(&row);
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const RowSums* a, const RowSums* b) { return *a->likeness < *b->likeness; });
  const auto are_alike = [](const RowSums& a, const RowSums& b) {
    for (size_t i = 0; i < a.likeness->size(); ++i) {
      if (!(std::fabs((*a.likeness)[i] - (*b.likeness)[i]) <= a.like_within)) return false;
    }
    return true;
  };
  std::map<uint64_t, uint64_t> joined;  // an identity, and one before it
  const auto first_of = [&](uint64_t identity) {
    for (auto at = joined.find(identity); at != joined.end(); at = joined.find(identity)) {
      identity = at->second;
    }
    return identity;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const double most = (*rows[i]->likeness)[0] + rows[i]->like_within;
    for (size_t j = i + 1; j < rows.size() && (*rows[j]->likeness)[0] <= most; ++j) {
      if (!are_alike(*rows[i], *rows[j])) continue;
      const uint64_t one = first_of(rows[i]->identity), other = first_of(rows[j]->identity);
      if (one != other) joined[std::max(one, other)] = std::min(one, other);
    }
  }
  for (RowSums* row : rows) row->identity = first_of(row->identity);
}

StatisticsReport StatisticsAccumulator::Finish(const OutputInfo& info, int64_t tests,
                                               double false_alarm) const {
  StatisticsReport report;
  report.tests = tests;
  report.false_alarm = false_alarm;
  report.skipped_elements = skipped_;
  const double t = TailExponent(tests, false_alarm);
  const double limit = DirectionLimit(tests, false_alarm);
  OverLines over(static_cast<int64_t>(groups_.size()));
  std::map<int, GroupSums> groups = groups_;
  JoinAlike(&groups);
  const auto add_varying = [&](const std::string& name, const std::vector<const RowSums*>& rows,
                               size_t k) {
    QuadraticStatistic q = Varying(rows, k, t);
    q.group = name;
    q.direction = At(info.directions, k);
    if (q.over) {
      over.Add(static_cast<int>(k), q.q / q.limit,
               fmt::format("{} at {}: sum of z^2 over {} rows = {:.4g}, where a right kernel "
                           "exceeds {:.4g} once in {} cases: {}",
                           q.direction, name, q.elements, q.q, q.limit, Inverse(false_alarm),
                           At(info.hints, k)));
    }
    report.quadratics.push_back(std::move(q));
  };
  const auto add_directions = [&](const std::string& name,
                                  const std::vector<const RowSums*>& rows) {
    const std::vector<DirectionSums> directions = Directions(rows);
    for (size_t k = 0; k < directions.size(); ++k) {
      if (static_cast<int>(k) == info.varying_direction) {
        add_varying(name, rows, k);
        continue;
      }
      const DirectionSums& sums = directions[k];
      DirectionStatistic d;
      d.group = name;
      d.direction = At(info.directions, k);
      d.hint = At(info.hints, k);
      d.limit = limit;
      d.rows = sums.rows;
      d.shown_rows = sums.shown_rows;
      const double deviation = std::sqrt(sums.variance);
      const double random = std::fabs(sums.z) - sums.slack;
      // Where nothing is random the slack is the limit itself.
      d.z = deviation > 0 ? std::max(0.0, random) / deviation
                          : (random > 0 ? limit * (std::fabs(sums.z) / sums.slack) : 0);
      if (sums.weighted_effect > 0) d.coefficient = sums.z / sums.weighted_effect;
      d.detectable = sums.weighted_effect > 0
                         ? (limit * deviation + sums.slack) / sums.weighted_effect
                         : kInfinity;
      d.over = !(d.z <= limit);
      if (d.over) {
        over.Add(
            static_cast<int>(k), d.z / limit,
            fmt::format("errors along '{}' at {}: z = {:.1f}, where a right kernel exceeds {:.1f} "
                        "once in {} cases; {:.3g} times its effect",
                        d.direction, name, d.z, limit, Inverse(false_alarm), d.coefficient));
      }
      report.directions.push_back(std::move(d));
    }
  };
  std::vector<const RowSums*> all;
  for (const auto& [key, group] : groups) {
    const std::string name = GroupName(info, key);
    std::vector<const RowSums*> rows;
    for (const RowSums& row : group.rows) rows.push_back(&row);
    all.insert(all.end(), rows.begin(), rows.end());
    add_directions(name, rows);
    std::map<uint64_t, double> norms;  // of equal rows together
    for (const RowSums& row : group.rows) norms[row.identity] += row.gram;
    double gram_squared = 0, gram_largest = 0;
    for (const auto& [identity, norm] : norms) {
      gram_squared += norm * norm;
      gram_largest = std::max(gram_largest, norm);
    }
    QuadraticStatistic q;
    q.group = name;
    q.q = group.q;
    q.elements = group.elements;
    const double tail = static_cast<double>(group.elements) + 2 * std::sqrt(t * gram_squared) +
                        2 * t * gram_largest;
    const double root = std::sqrt(tail) + std::sqrt(group.slack_squared);
    // What summing in double is off by: where errors are all slack, Q may be the limit itself.
    q.limit = root * root * (group.slack_squared > 0 ? 1 + 0x1p-40 : 1);
    q.over = !(q.q <= q.limit);
    if (q.over) {
      over.Add(-1, q.q / q.limit,
               fmt::format("size of the errors at {}: RMS {:.2f} times what the declared roundings "
                           "make; Q = {:.4g}, where a right kernel exceeds {:.4g} once in {} cases",
                           name, std::sqrt(q.q / static_cast<double>(q.elements)), q.q, q.limit,
                           Inverse(false_alarm)));
    }
    report.quadratics.push_back(std::move(q));
  }
  if (groups.size() > 1) add_directions(std::string(kAllGroups), all);
  report.over = over.Take();
  report.blind_to = BlindTo(report, info);
  return report;
}

}  // namespace kvcheck
