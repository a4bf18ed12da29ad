// The statistical tier: what a bound per element cannot see, because every error is small and all
// of them point the same way. Source: reference/attention/bound.md, section 4. It warns; it gates
// only on request. Per group (a head) and named fault direction:
//
//   w = effect / sigma^2,  Z = sum w e over the group's rows and channels
//   mu, s^2 = mean and sample variance of the kReplicates replicates of the group's Z
//   z = max(0, |Z - mu| - slack) / sqrt(max(sum of row variances, s^2) (1 + 1/kReplicates)),
//       limit sqrt(2 t); slack: the largest Z that errors outside the model could make
//   coefficient = (Z - mu) / sum w effect     the multiple of the fault that fits the errors best
//   detectable  = limit sqrt(variance) / sum w effect   the multiple that would reach the limit
// and per group
//   Q = sum (e / sigma)^2,  limit (sqrt(N + 2 sqrt(t sum_r F_r^2) + 2 t max_r F_r) + sqrt(S))^2
//       with S the sum of slack_squared: |e / sigma| is at most its random part plus the rest
// with t = ln(2 K' / alpha), alpha the false-alarm probability of the whole run and K' the number
// of statistics in it.
//
// The limit of Q is the tail of a quadratic form in a sub-Gaussian vector (Hsu, Kakade, Zhang
// 2012): for x with E exp(a.x) <= exp(a.S a / 2), P(|x|^2 > tr S + 2 sqrt(tr(S^2) t) + 2 |S| t) <=
// exp(-t). Here x = e / sigma, S is block diagonal over rows with blocks S_r: tr S = N, because the
// diagonal of S is 1 by the definition of sigma; tr(S^2) = sum F_r^2 with F_r = |S_r|_F
// (gram_norm); and the spectral norm |S| = max |S_r| <= max F_r, because no matrix exceeds its
// Frobenius norm. (1 + 1/kReplicates): mu is itself a mean of kReplicates values of the same
// variance.

#ifndef REFERENCE_JUDGE_STATISTICS_H_
#define REFERENCE_JUDGE_STATISTICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/tiles.h"

namespace kvcheck {

// The false-alarm probability that a run claims (bound.md, section 4).
inline constexpr double kFalseAlarm = 1e-6;

struct DirectionStatistic {
  std::string group;
  std::string direction;
  std::string hint;
  double z = 0;
  double limit = 0;
  double coefficient = 0;
  double detectable = 0;  // infinite where the direction has no effect on this group
  bool over = false;
  bool operator==(const DirectionStatistic&) const = default;
};

struct QuadraticStatistic {
  std::string group;
  double q = 0;
  double limit = 0;
  int64_t elements = 0;
  bool over = false;
  bool operator==(const QuadraticStatistic&) const = default;
};

struct StatisticsReport {
  int64_t tests = 0;                           // K'
  double false_alarm = 0;                      // alpha
  int64_t skipped_elements = 0;                // without modelled noise, or not finite
  std::vector<DirectionStatistic> directions;  // by group, then direction
  std::vector<QuadraticStatistic> quadratics;  // by group
  // One line per direction (and for Q) over its limit in some group, strongest first.
  std::vector<std::string> warnings;
  bool operator==(const StatisticsReport&) const = default;
};

// t and the limit of z for K' statistics sharing false_alarm.
double TailExponent(int64_t tests, double false_alarm);
double DirectionLimit(int64_t tests, double false_alarm);

class StatisticsAccumulator {
 public:
  // errors: got - expected per element; use: per element, whether it takes part (judged, finite).
  // A row takes part when all its elements do. Does nothing for a tile without statistics.
  void Add(const ExpectedTile& tile, const OutputInfo& info, std::span<const double> errors,
           std::span<const uint8_t> use);
  void Merge(const StatisticsAccumulator& other);
  // Number of statistics here: groups x (directions + 1).
  int64_t Tests(const OutputInfo& info) const;
  bool empty() const { return groups_.empty(); }
  StatisticsReport Finish(const OutputInfo& info, int64_t tests, double false_alarm) const;

 private:
  struct DirectionSums {
    double z = 0;
    double variance = 0;
    double weighted_effect = 0;  // sum w effect
    double slack = 0;
    std::array<double, kReplicates> replicates{};
  };
  struct GroupSums {
    int64_t elements = 0;
    double q = 0;
    double gram_squared = 0;
    double gram_largest = 0;
    double slack_squared = 0;
    std::vector<DirectionSums> directions;
  };
  void AddRow(const TileStatistics& statistics, size_t row, size_t row_length,
              std::span<const double> errors, GroupSums* group);

  int64_t skipped_ = 0;
  std::map<int, GroupSums> groups_;
};

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_STATISTICS_H_
