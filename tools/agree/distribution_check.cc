#include "tools/agree/distribution_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "optimized/model/logits_pair.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

[[noreturn]] void Refuse(const std::string& what, int64_t at, const std::string& path) {
  throw Error(
      ErrorCode::kUnreadableFile,
      fmt::format("position {}: {}: these are no log-probabilities; make the dump anew", at, what),
      path);
}

// Of any vocabulary: ids are of 32 bits.
constexpr double kMostTokens = 0x1p32;

// Of kvcheck's own sum in double: an addition and 2 units of exp for each term, and the roundings
// of the exponents: the sum of p |log p| is at most log n, below 32.
double OwnError(size_t terms) {
  const double roundings = (static_cast<double>(terms) + 2 + 32) * 0x1p-53;
  return roundings / (1 - roundings);
}

}  // namespace

bool IsFinite(const TokenDistribution& position) {
  return std::all_of(position.log_p.begin(), position.log_p.end(),
                     [](double log_p) { return log_p < std::numeric_limits<double>::infinity(); });
}

void CheckDistribution(const TokenDistribution& position, int64_t at, const std::string& path) {
  const double e = position.error + position.rounding;
  const double s = position.sum_error + 2 * OwnError(position.size());
  const optimized::ProbabilitySum sum = optimized::SumProbabilities(position.log_p, position.floor);
  const bool too_much = !(sum.above * std::exp(-e) <= 1 + s);
  // Of a complete position a number above 0 is also too much in sum, as far as exp reaches.
  const bool beyond = !(sum.above < std::exp(699.0));
  if (too_much || beyond || !position.complete) {
    if (!IsFinite(position)) return;
    for (size_t i = 0; i < position.size(); ++i) {
      if (position.log_p[i] <= e) continue;
      Refuse(fmt::format("the log-probability of token {} is {:.6g}, above 0 by more than the "
                         "{:.3g} that the file explains",
                         position.Token(i), position.log_p[i], e),
             at, path);
    }
  }
  if (too_much) {
    Refuse(fmt::format("its probabilities sum to {:.6g}, and the file explains {:.6g} at most",
                       sum.above, std::exp(e) * (1 + s)),
           at, path);
  }
  // Of a list of the most likely tokens the first has at least the share of one in kMostTokens.
  if (position.unlisted < std::numeric_limits<double>::infinity() && IsFinite(position)) {
    const double top = *std::max_element(position.log_p.begin(), position.log_p.end());
    const double least = std::log((1 - s) / kMostTokens);
    if (!(top + e >= least)) {
      Refuse(
          fmt::format("its most likely token has the log-probability {:.6g}, and a vocabulary in "
                      "which no token has more would have more than 2^32",
                      top),
          at, path);
    }
  }
  if (position.complete && !(sum.all * std::exp(e) >= 1 - s) && IsFinite(position)) {
    Refuse(fmt::format("its probabilities sum to {:.6g}, and the file explains {:.6g} at least",
                       sum.all, std::exp(-e) * (1 - s)),
           at, path);
  }
}

}  // namespace kvcheck
