// The statistical tier: what a bound per element cannot see, because every error is small and all
// of them point the same way. Source: reference/attention/bound.md, section 4. It warns; it gates
// only on request. Per group (a head) and named fault direction:
//
//   w = effect / sigma^2,  Z = sum w e over the group's rows and channels
//   z = max(0, |Z - mean| - slack) / sqrt(Var_Z), limit sqrt(2 t); mean: what the output's rounding
//       makes of it; slack: the largest Z that errors outside the model could make; Var_Z: the sum
//       of row variances, where rows with one identity add up their standard deviations
//   coefficient = (Z - mean) / sum w effect   the multiple of the fault that fits the errors best
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
// Frobenius norm. Rows with one identity are one row of that many times the norm.
//
// Besides, all groups together are one more group of directions: a fault of every head shows there
// first.

#ifndef REFERENCE_JUDGE_STATISTICS_H_
#define REFERENCE_JUDGE_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/tiles.h"

namespace kvcheck {

// Probability, at most, that statistics fail a right kernel in a case (bound.md, section 4): once
// in a thousand runs of a thousand million cases each. It does not depend on the size of a run, so
// that a case has one verdict wherever it is judged.
inline constexpr double kStatisticsFalseAlarm = 1e-12;
// Of what a run says beside its verdicts: a hint, a sample.
inline constexpr double kFalseAlarm = 1e-6;

struct DirectionStatistic {
  std::string group;
  std::string direction;
  std::string hint;
  double z = 0;
  double limit = 0;
  double coefficient = 0;
  double detectable = 0;  // infinite where the direction has no effect on this group
  // Rows that the fault changes, and those in which it alone would leave the bound of an element.
  int64_t rows = 0;
  int64_t shown_rows = 0;
  bool over = false;
  bool operator==(const DirectionStatistic&) const = default;
};

struct QuadraticStatistic {
  std::string group;
  // "": of all errors. Else of a direction whose multiple is another in each row: the sum of z^2.
  std::string direction;
  double q = 0;
  double limit = 0;
  int64_t elements = 0;   // of a direction: rows
  double detectable = 0;  // of a direction: multiple of the fault that would be seen
  int64_t shown_rows = 0;
  bool over = false;
  bool operator==(const QuadraticStatistic&) const = default;
};

// A fault that neither an element nor a statistic would have shown.
struct BlindSpot {
  std::string direction;
  std::string where;  // "": anywhere; "in a single head": all heads together would show it
  bool operator==(const BlindSpot&) const = default;
};

struct StatisticsReport {
  int64_t tests = 0;                           // K'
  double false_alarm = 0;                      // alpha
  int64_t skipped_elements = 0;                // of rows that take part but for what is not finite
  std::vector<DirectionStatistic> directions;  // by group, then direction
  std::vector<QuadraticStatistic> quadratics;  // by group
  // One line per direction (and for Q) over its limit in some group, strongest first.
  std::vector<std::string> over;
  std::vector<BlindSpot> blind_to;  // by direction
  bool operator==(const StatisticsReport&) const = default;
};

// The name of all groups together.
inline constexpr std::string_view kAllGroups = "all";

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
  // Of one row and direction, or of many rows.
  struct DirectionSums {
    double z = 0;  // without its mean
    double variance = 0;
    double weighted_effect = 0;  // sum w effect
    double slack = 0;
    int64_t rows = 0;
    int64_t shown_rows = 0;
  };
  struct RowSums {
    uint64_t identity = 0;
    std::optional<RowLikeness> likeness;
    double like_within = 0;
    double gram = 0;
    std::vector<DirectionSums> directions;
  };
  struct GroupSums {
    int64_t elements = 0;
    double q = 0;
    double slack_squared = 0;
    std::vector<RowSums> rows;
  };
  void AddRow(const ExpectedTile& tile, const OutputInfo& info, size_t row,
              std::span<const double> errors, GroupSums* group);
  static QuadraticStatistic Varying(std::vector<const RowSums*> rows, size_t direction, double t);
  // Gives rows that are nearly alike one identity.
  static void JoinAlike(std::map<int, GroupSums>* groups);
  // Sums over rows, those of one identity together.
  static std::vector<DirectionSums> Directions(std::vector<const RowSums*> rows);

  int64_t skipped_ = 0;
  std::map<int, GroupSums> groups_;
};

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_STATISTICS_H_
