// The probable cause of a failure: the errors of the failing rows against each named fault
// direction (the difference that the fault would make), by least squares in units of the tolerance.

#ifndef REFERENCE_JUDGE_HINTS_H_
#define REFERENCE_JUDGE_HINTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/tiles.h"

namespace kvcheck {

struct DirectionFit {
  std::string direction;
  std::string hint;
  double coefficient = 0;      // the multiple of the fault that fits best; 1: the fault itself
  double explained_share = 0;  // of the sum of squared errors
  bool per_unit = false;       // the effect is that of a unit of a change, to first order
  int64_t elements = 0;
  bool operator==(const DirectionFit&) const = default;
};

// True when a direction explains more than half of the errors (more than everything else together),
// and a random error vector would seldom do so: of `elements` components and against `directions`
// directions with probability below kFalseAlarm. The squared cosine between a random vector of R^N
// and a fixed one is Beta(1/2, (N-1)/2), so P(share >= s) <= (1 - s)^((N-1)/2).
bool IsExplained(double share, int64_t elements, int64_t directions);

class DirectionRegression {
 public:
  // Rows of a tile that fail, with every error finite. errors and tolerances are per element of the
  // tile; elements of tolerance 0 are left out. Does nothing for a tile without statistics.
  void Add(const ExpectedTile& tile, int64_t row_length, std::span<const double> errors,
           std::span<const double> tolerances, std::span<const uint8_t> row_takes_part);
  // By explained share, largest first.
  std::vector<DirectionFit> Finish(const OutputInfo& info) const;

 private:
  struct Sums {
    double product = 0;
    double effect_squared = 0;
  };
  std::vector<Sums> directions_;
  double error_squared_ = 0;
  int64_t elements_ = 0;
};

// A fit that explains so much leaves next to nothing to other causes.
inline constexpr double kClearShare = 0.9;

// The best fit when it explains, and is the fault itself: its multiple is no farther from once than
// from not at all or from twice, or where the effect is per unit of a change, the change is no
// larger than the whole and explains a clear share, as an effect to first order does. Otherwise the
// errors are alike by their direction alone. nullptr: none. Directions overlap: a weaker one often
// explains a good part of the same errors, and would only mislead.
const DirectionFit* BestFit(const std::vector<DirectionFit>& fits);
// "looks as if HINT (1.02 times, 98 % of the error)".
std::string HintOf(const DirectionFit& fit);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_HINTS_H_
