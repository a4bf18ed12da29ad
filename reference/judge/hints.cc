#include "reference/judge/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "reference/judge/statistics.h"

namespace kvcheck {

bool IsExplained(double share, int64_t elements, int64_t directions) {
  if (!(share > 0.5)) return false;
  // Rounding may leave a share of 1 + 2^-50.
  const double unexplained = std::max(0.0, 1 - share);
  const double chance = static_cast<double>(directions) *
                        std::pow(unexplained, static_cast<double>(elements - 1) / 2);
  return elements > 1 && chance <= kFalseAlarm;
}

void DirectionRegression::Add(const ExpectedTile& tile, int64_t row_length,
                              std::span<const double> errors, std::span<const double> tolerances,
                              std::span<const uint8_t> row_takes_part) {
  if (!tile.statistics.has_value()) return;
  const std::vector<std::vector<double>>& effects = tile.statistics->effect;
  directions_.resize(std::max(directions_.size(), effects.size()));
  const size_t length = static_cast<size_t>(row_length);
  for (size_t row = 0; row < row_takes_part.size(); ++row) {
    if (row_takes_part[row] == 0) continue;
    for (size_t i = row * length; i < (row + 1) * length; ++i) {
      if (!(tolerances[i] > 0)) continue;
      const double error = errors[i] / tolerances[i];
      ++elements_;
      error_squared_ += error * error;
      for (size_t k = 0; k < effects.size(); ++k) {
        const double effect = effects[k][i] / tolerances[i];
        directions_[k].product += error * effect;
        directions_[k].effect_squared += effect * effect;
      }
    }
  }
}

std::vector<DirectionFit> DirectionRegression::Finish(const OutputInfo& info) const {
  std::vector<DirectionFit> fits;
  for (size_t k = 0; k < directions_.size(); ++k) {
    const Sums& sums = directions_[k];
    DirectionFit fit;
    fit.direction = k < info.directions.size() ? info.directions[k] : fmt::format("{}", k);
    fit.hint = k < info.hints.size() ? info.hints[k] : fit.direction;
    fit.elements = elements_;
    fit.per_unit = static_cast<int>(k) == info.per_unit_direction;
    if (sums.effect_squared > 0 && error_squared_ > 0) {
      fit.coefficient = sums.product / sums.effect_squared;
      const double share = fit.coefficient * (sums.product / error_squared_);
      // Not a number when squares overflow: then nothing is explained.
      fit.explained_share = share >= 0 ? share : 0;
    }
    fits.push_back(std::move(fit));
  }
  std::sort(fits.begin(), fits.end(), [](const DirectionFit& a, const DirectionFit& b) {
    return std::tie(b.explained_share, a.direction) < std::tie(a.explained_share, b.direction);
  });
  return fits;
}

const DirectionFit* BestFit(const std::vector<DirectionFit>& fits) {
  if (fits.empty()) return nullptr;
  const DirectionFit& fit = fits.front();
  if (!IsExplained(fit.explained_share, fit.elements, static_cast<int64_t>(fits.size()))) {
    return nullptr;
  }
  if (fit.per_unit && fit.explained_share < kClearShare) return nullptr;
  const double off = fit.per_unit ? fit.coefficient : 2 * (fit.coefficient - 1);
  return std::fabs(off) <= 1 ? &fit : nullptr;
}

std::string HintOf(const DirectionFit& fit) {
  return fmt::format("looks as if {} ({:.3g} times, {:.0f} % of the error)", fit.hint,
                     fit.coefficient, 100 * fit.explained_share);
}

}  // namespace kvcheck
