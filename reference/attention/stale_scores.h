// Scores of a range of keys that are not those of the case, told from the errors of each row
// (causes_of_stale_ranges.cc).

#ifndef REFERENCE_ATTENTION_STALE_SCORES_H_
#define REFERENCE_ATTENTION_STALE_SCORES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/attention/causes.h"
#include "reference/attention/stale_range.h"

namespace kvcheck {

// Projects the errors of a row on v_j - o of a range: what other scores of these keys would
// explain.
class StaleScores {
 public:
  explicit StaleScores(const Causes& causes) : causes_(causes), problem_(causes.problem()) {}

  struct Fit {
    double misfit = 0;  // what is left
    double numbers = 0;
    std::vector<double> predicted;  // (Dv)
  };

  Fit FitOf(const SeenRow& row, int64_t from, int64_t to) const {
    Fit fit;
    fit.predicted = row.o;
    std::vector<const double*> values;
    for (int64_t j = from; j < to; ++j) {
      const auto at = static_cast<size_t>(j);
      if (row.is_visible[at] != 0 && row.weight[at] > 0) values.push_back(row.Values(j));
    }
    const size_t m = values.size(), dv = problem_.channels;
    std::vector<double> off(m * dv), gram(m * m), product(m, 0);
    for (size_t i = 0; i < m; ++i) {
      for (size_t c = 0; c < dv; ++c) {
        const double root = std::sqrt(row.precision[c]);
        off[i * dv + c] = root * (values[i][c] - row.o[c]);
        product[i] += off[i * dv + c] * root * row.error[c];
      }
    }
    double trace = 0;
    for (size_t i = 0; i < m; ++i) {
      for (size_t k = 0; k <= i; ++k) {
        double sum = 0;
        for (size_t c = 0; c < dv; ++c) sum += off[i * dv + c] * off[k * dv + c];
        gram[i * m + k] = sum;
      }
      trace += gram[i * m + i];
    }
    for (size_t i = 0; i < m; ++i) gram[i * m + i] += 1e-12 * trace;
    if (m > 0 && Decompose(&gram, m)) {
      SolveLower(gram, m, &product);
      SolveUpper(gram, m, &product);
      for (size_t i = 0; i < m; ++i) {
        for (size_t c = 0; c < dv; ++c) {
          fit.predicted[c] += product[i] * (values[i][c] - row.o[c]);
        }
      }
      fit.numbers = static_cast<double>(m);
    }
    fit.misfit = MisfitOf(row, fit.predicted);
    return fit;
  }

  double Charged(const std::vector<size_t>& rows, int64_t from, int64_t to) const {
    double charged = 2 * std::log(ChoicesOf(from, to, problem_.kv_len));
    for (const size_t r : rows) {
      const SeenRow& row = causes_.rows()[r];
      const Fit fit = FitOf(row, from, to);
      const double elements = Elements(row);
      const double left = elements - fit.numbers - 1;
      if (!(left > 0)) return HUGE_VAL;
      // Gaussian errors of unknown size; numbers cost what they explain by chance (Hurvich and
      // Tsai 1989).
      charged += elements * std::log(std::max(fit.misfit, left) / elements) +
                 2 * fit.numbers * elements / left;
    }
    return charged;
  }

  static double Elements(const SeenRow& row) {
    return static_cast<double>(std::count_if(row.precision.begin(), row.precision.end(),
                                             [](double precision) { return precision > 0; }));
  }

 private:
  const Causes& causes_;
  const SeenProblem& problem_;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_STALE_SCORES_H_
