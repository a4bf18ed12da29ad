// V of a range of keys that is not what the case holds, told from the errors of rows that share a
// key/value head (causes_of_stale_ranges.cc).

#ifndef REFERENCE_ATTENTION_STALE_VALUES_H_
#define REFERENCE_ATTENTION_STALE_VALUES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "reference/attention/causes.h"
#include "reference/attention/stale_range.h"

namespace kvcheck {

// Rows of one key/value head of one batch row, and sums of products of their weights.
struct ValueGroup {
  std::pair<int64_t, int64_t> head;  // batch row, key/value head
  std::vector<size_t> rows;
  std::vector<size_t> channels;        // which all rows have
  std::vector<double> noise;           // [row] variance
  std::vector<double> products, sums;  // before multiples of the step: [row][row], [row]
};

class StaleValues {
 public:
  StaleValues(const Causes& causes, size_t most_rows, size_t most_channels)
      : causes_(causes), problem_(causes.problem()) {
    std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> heads;
    for (size_t r = 0; r < causes.rows().size(); ++r) {
      heads[{causes.rows()[r].query.batch, causes.rows()[r].kv_head}].push_back(r);
    }
    for (const auto& [head, rows] : heads) {
      const size_t count = std::min(rows.size(), most_rows);
      if (count < 2) continue;
      ValueGroup group;
      group.head = head;
      for (size_t i = 0; i < count; ++i) group.rows.push_back(rows[i * rows.size() / count]);
      for (size_t c = 0; c < problem_.channels; ++c) {
        if (group.channels.size() == most_channels) break;
        const bool all = std::all_of(group.rows.begin(), group.rows.end(),
                                     [&](size_t r) { return causes.rows()[r].precision[c] > 0; });
        if (all) group.channels.push_back(c);
      }
      if (group.channels.size() < 2) continue;
      for (const size_t r : group.rows) {
        double variance = 0;
        for (const size_t c : group.channels) variance += 1 / causes.rows()[r].precision[c];
        group.noise.push_back(variance / static_cast<double>(group.channels.size()));
      }
      FillProducts(&group);
      groups_.push_back(std::move(group));
    }
  }

  const std::vector<ValueGroup>& groups() const { return groups_; }

  // StaleRange::charged of a range whose keys have this share of the variance of d in common.
  double Charged(int64_t from, int64_t to, double common) const {
    double twice = 0;
    for (const ValueGroup& group : groups_) {
      twice += TwiceLikelihood(group, Covariance(group, from, to, common), nullptr);
    }
    return twice + 2 * std::log(ChoicesOf(from, to, problem_.kv_len));
  }
  // The same with the share, of a few, that fits best.
  double ChargedBest(int64_t from, int64_t to) const {
    double least = HUGE_VAL;
    for (const double common : kCommon) least = std::min(least, Charged(from, to, common));
    return least;
  }
  double CommonOf(const StaleRange& range) const {
    double best = 0, least = HUGE_VAL;
    for (const double common : kCommon) {
      const double charged = Charged(range.from, range.to, common);
      if (charged < least) least = charged, best = common;
    }
    return best;
  }

  // What else would have errors that vary together: each row by itself; V of all keys, in each row
  // by a factor of its own (as a wrong denominator makes it).
  double ChargedOfOthers() const {
    double least = HUGE_VAL;
    for (const bool is_own : {true, false}) {
      double twice = 0, factors = 0;
      for (const ValueGroup& group : groups_) {
        const size_t n = group.rows.size();
        std::vector<double> all = Covariance(group, 0, problem_.kv_len, 0);
        std::vector<double> size(n, 0);
        for (size_t i = 0; i < n; ++i) {
          for (const size_t c : group.channels) {
            const double e = causes_.rows()[group.rows[i]].error[c];
            size[i] += e * e;
          }
          size[i] = std::sqrt(size[i] / std::max(all[i * n + i], 1e-300));
        }
        std::vector<double> other(n * n, 0);
        for (size_t i = 0; i < n; ++i) {
          for (size_t j = 0; j < n; ++j) {
            if (is_own && i != j) continue;
            other[i * n + j] = size[i] * size[j] * all[i * n + j];
          }
        }
        twice += TwiceLikelihood(group, std::move(other), nullptr);
        factors += static_cast<double>(n - 1);
      }
      least = std::min(least, twice + 2 * factors);
    }
    return std::min(least, ChargedBest(0, problem_.kv_len) -
                               2 * std::log(ChoicesOf(0, problem_.kv_len, problem_.kv_len)));
  }

  // Whether the directions that are left have no preference.
  bool IsUniform(const StaleRange& range, double common) const {
    double statistic = 0, freedom = 0;
    for (const ValueGroup& group : groups_) {
      const size_t n = group.rows.size();
      std::vector<double> scatter(n * n, 0);
      if (!(TwiceLikelihood(group, Covariance(group, range.from, range.to, common), &scatter) <
            HUGE_VAL)) {
        return false;
      }
      double square = 0;
      for (const double value : scatter) square += value * value;
      const auto rows = static_cast<double>(n);
      statistic +=
          static_cast<double>(group.channels.size()) * rows * (rows + 2) / 2 * (square - 1 / rows);
      freedom += (rows - 1) * (rows + 2) / 2;
    }
    return freedom > 0 && statistic - freedom <= 4 * std::sqrt(2 * freedom);
  }

  // What the rows of a group become: the mean of d under its errors, K (K + noise)^-1 e.
  // Shapes: per row of the problem (Dv), empty where the row belongs to no group.
  std::vector<std::vector<double>> Predicted(const StaleRange& range, double common) const {
    std::vector<std::vector<double>> predicted(problem_.rows.size());
    for (const ValueGroup& group : groups_) {
      const size_t n = group.rows.size();
      std::vector<double> l = Covariance(group, range.from, range.to, common);
      if (!AddNoise(group, &l) || !Decompose(&l, n)) continue;
      std::vector<std::vector<double>> along(problem_.rows.size());
      for (size_t r = 0; r < problem_.rows.size(); ++r) {
        const SeenRow& row = problem_.rows[r];
        if (std::pair(row.query.batch, row.kv_head) != group.head) continue;
        predicted[r] = row.o;
        along[r] = CovarianceWith(group, row, range, common);
      }
      for (const size_t c : group.channels) {
        std::vector<double> e;
        for (const size_t r : group.rows) e.push_back(causes_.rows()[r].error[c]);
        SolveLower(l, n, &e);
        SolveUpper(l, n, &e);
        for (size_t r = 0; r < predicted.size(); ++r) {
          for (size_t i = 0; i < along[r].size(); ++i) predicted[r][c] += along[r][i] * e[i];
        }
      }
    }
    return predicted;
  }

  // Numbers that the range takes from the errors.
  double NumbersOf(const StaleRange& range) const {
    double numbers = 0;
    for (const ValueGroup& group : groups_) {
      const auto rows = static_cast<int64_t>(group.rows.size());
      numbers += static_cast<double>(std::min(rows, range.size()) *
                                     static_cast<int64_t>(group.channels.size()));
    }
    return numbers;
  }
  bool LeavesRows(const StaleRange& range) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const ValueGroup& group) {
      return std::ssize(group.rows) > range.size();
    });
  }

 private:
  static constexpr double kCommon[] = {0, 0.25, 4};

  static double WeightOf(const SeenRow& row, int64_t key) {
    const auto at = static_cast<size_t>(key);
    return row.is_visible[at] != 0 ? row.weight[at] : 0;
  }

  void AddKeys(const ValueGroup& group, int64_t from, int64_t to, double* products,
               double* sums) const {
    const size_t n = group.rows.size();
    std::vector<double> p(n);
    for (int64_t j = from; j < to; ++j) {
      for (size_t i = 0; i < n; ++i) p[i] = WeightOf(causes_.rows()[group.rows[i]], j);
      for (size_t i = 0; i < n; ++i) {
        sums[i] += p[i];
        for (size_t k = 0; k <= i; ++k) products[i * n + k] += p[i] * p[k];
      }
    }
  }

  void FillProducts(ValueGroup* group) const {
    const size_t n = group->rows.size();
    const auto steps = static_cast<size_t>(problem_.kv_len / problem_.step);
    group->products.assign((steps + 1) * n * n, 0);
    group->sums.assign((steps + 1) * n, 0);
    for (size_t s = 0; s < steps; ++s) {
      std::copy_n(&group->products[s * n * n], n * n, &group->products[(s + 1) * n * n]);
      std::copy_n(&group->sums[s * n], n, &group->sums[(s + 1) * n]);
      const auto from = static_cast<int64_t>(s) * problem_.step;
      AddKeys(*group, from, from + problem_.step, &group->products[(s + 1) * n * n],
              &group->sums[(s + 1) * n]);
    }
  }

  // sum_j p_rj p_sj, and `common` times the product of the sums.
  std::vector<double> Covariance(const ValueGroup& group, int64_t from, int64_t to,
                                 double common) const {
    const size_t n = group.rows.size();
    std::vector<double> products(n * n, 0), sums(n, 0);
    const int64_t first = (from + problem_.step - 1) / problem_.step;
    const int64_t last = to / problem_.step;
    if (first >= last) {
      AddKeys(group, from, to, products.data(), sums.data());
    } else {
      AddKeys(group, from, first * problem_.step, products.data(), sums.data());
      AddKeys(group, last * problem_.step, to, products.data(), sums.data());
      const auto a = static_cast<size_t>(first), b = static_cast<size_t>(last);
      for (size_t i = 0; i < n * n; ++i) {
        products[i] += group.products[b * n * n + i] - group.products[a * n * n + i];
      }
      for (size_t i = 0; i < n; ++i) sums[i] += group.sums[b * n + i] - group.sums[a * n + i];
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k <= i; ++k) {
        products[i * n + k] += common * sums[i] * sums[k];
        products[k * n + i] = products[i * n + k];
      }
    }
    return products;
  }

  std::vector<double> CovarianceWith(const ValueGroup& group, const SeenRow& row,
                                     const StaleRange& range, double common) const {
    std::vector<double> along;
    double own = 0;
    for (int64_t j = range.from; j < range.to; ++j) own += WeightOf(row, j);
    for (const size_t r : group.rows) {
      double product = 0, sum = 0;
      for (int64_t j = range.from; j < range.to; ++j) {
        const double p = WeightOf(causes_.rows()[r], j);
        product += p * WeightOf(row, j);
        sum += p;
      }
      along.push_back(product + common * own * sum);
    }
    return along;
  }

  // The noise of the rows beside the variance of d, whose mean over channels follows from both.
  bool AddNoise(const ValueGroup& group, std::vector<double>* covariance) const {
    const size_t n = group.rows.size();
    double square = 0, noise = 0, trace = 0;
    for (size_t i = 0; i < n; ++i) {
      trace += (*covariance)[i * n + i];
      for (const size_t c : group.channels) {
        const double e = causes_.rows()[group.rows[i]].error[c];
        square += e * e;
        noise += group.noise[i];
      }
    }
    const double variance = (square - noise) / (trace * static_cast<double>(group.channels.size()));
    if (!(variance > 0) || !std::isfinite(variance)) return false;
    for (size_t i = 0; i < n; ++i) {
      // Rows that are the same would leave nothing to divide by.
      (*covariance)[i * n + i] += group.noise[i] / variance + 1e-12 * trace;
    }
    return true;
  }

  // Twice the negative log-likelihood of the directions in which the errors of each channel point.
  // scatter: takes the mean over channels of u u^T / |u|^2, u = L^-1 e.
  double TwiceLikelihood(const ValueGroup& group, std::vector<double> covariance,
                         std::vector<double>* scatter) const {
    const size_t n = group.rows.size();
    if (!AddNoise(group, &covariance) || !Decompose(&covariance, n)) return HUGE_VAL;
    const auto channels = static_cast<double>(group.channels.size());
    double twice = 0;
    for (size_t i = 0; i < n; ++i) twice += 2 * channels * std::log(covariance[i * n + i]);
    std::vector<double> u(n);
    for (const size_t c : group.channels) {
      for (size_t i = 0; i < n; ++i) u[i] = causes_.rows()[group.rows[i]].error[c];
      SolveLower(covariance, n, &u);
      double square = 0;
      for (const double value : u) square += value * value;
      if (!(square > 0)) continue;
      twice += static_cast<double>(n) * std::log(square);
      if (scatter == nullptr) continue;
      for (size_t i = 0; i < n; ++i) {
        for (size_t k = 0; k < n; ++k) {
          (*scatter)[i * n + k] += u[i] * u[k] / (square * channels);
        }
      }
    }
    return twice;
  }

  const Causes& causes_;
  const SeenProblem& problem_;
  std::vector<ValueGroup> groups_;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_STALE_VALUES_H_
