// Rows of K or V of a range of keys that hold what stands in no tensor of the case: an older page,
// or one that was never written. What they hold has as many free numbers as the range has rows, so
// that enough keys explain any error. It is asked only where nothing else is named, and a range is
// named only by what its numbers cannot choose:
//
// V: e_rc = sum_j p_rj d_jc with the same d for all rows r of a key/value head. With d independent
// from key to key and channel to channel, or with a mean that all keys have, errors of rows r and s
// vary together as sum_j p_rj p_sj does, whatever the size of d in a channel. Ranges are compared
// by the likelihood of the directions e_c / |e_c| (angular Gaussian: Tyler 1987); what is left when
// that is taken out must have no preferred direction (Bingham's test: Mardia and Jupp,
// Directional Statistics, 2000, 10.4.1). Where a head has more rows than the range has keys, the
// rest of the rows must besides be explained by numbers fitted to as many rows as there are keys.
//
// K and V: the range is lost, and what stands in its place is free. Named where just that share is
// lost, no more and no less, and the rest points along no key.
//
// K: the row's errors lie in the span of v_j - o of the range, with other numbers in each row. A
// range of m keys leaves Dv - m channels of each row unfitted, and these must be explained.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

// The lower triangle L of L L^T, in place of a symmetric matrix in rows of n; false: not positive.
bool Decompose(std::vector<double>* matrix, size_t n) {
  std::vector<double>& a = *matrix;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      if (i != j) {
        a[i * n + j] = sum / a[j * n + j];
      } else if (sum > 0 && std::isfinite(sum)) {
        a[i * n + i] = std::sqrt(sum);
      } else {
        return false;
      }
    }
  }
  return true;
}

// x becomes L^-1 x.
void SolveLower(const std::vector<double>& l, size_t n, std::vector<double>* x) {
  for (size_t i = 0; i < n; ++i) {
    double sum = (*x)[i];
    for (size_t k = 0; k < i; ++k) sum -= l[i * n + k] * (*x)[k];
    (*x)[i] = sum / l[i * n + i];
  }
}

// x becomes L^-T x.
void SolveUpper(const std::vector<double>& l, size_t n, std::vector<double>* x) {
  for (size_t i = n; i-- > 0;) {
    double sum = (*x)[i];
    for (size_t k = i + 1; k < n; ++k) sum -= l[k * n + i] * (*x)[k];
    (*x)[i] = sum / l[i * n + i];
  }
}

struct StaleRange {
  int64_t from = 0, to = 0;
  double charged = HUGE_VAL;  // twice the negative log-likelihood, and what the choice costs

  int64_t size() const { return to - from; }
  bool Overlaps(const StaleRange& other) const { return from < other.to && other.from < to; }
};

// Among so many ranges: any, or pages of a size.
double ChoicesOf(int64_t from, int64_t to, int64_t kv_len) {
  const auto n = static_cast<double>(kv_len);
  double choices = 0.5 * n * n + 1;
  for (const int64_t page : {16, 32, 64, 128, 256}) {
    if (from % page == 0 && (to == kv_len || to == from + page) && to - from <= page) {
      choices = std::min(choices, 5 * n / static_cast<double>(page));
    }
  }
  return choices;
}

// Aligned blocks of all sizes, the best few of each; charged(from, to) -> StaleRange::charged.
template <typename Charged>
std::vector<StaleRange> BestBlocks(int64_t kv_len, int64_t largest, const Charged& charged) {
  constexpr size_t kKept = 6;
  std::vector<StaleRange> kept;
  for (int64_t size = kv_len <= (1 << 14) ? 4 : 16; size <= largest && size < kv_len; size *= 2) {
    std::vector<StaleRange> blocks;
    for (int64_t from = 0; from < kv_len; from += size) {
      const int64_t to = std::min(from + size, kv_len);
      blocks.push_back({from, to, charged(from, to)});
    }
    const size_t count = std::min(kKept, blocks.size());
    std::partial_sort(
        blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count), blocks.end(),
        [](const StaleRange& x, const StaleRange& y) { return x.charged < y.charged; });
    for (size_t i = 0; i < count; ++i) {
      if (blocks[i].charged < HUGE_VAL) kept.push_back(blocks[i]);
    }
  }
  return kept;
}

// Moves the edges as long as it gets better, by ever smaller steps.
template <typename Charged>
StaleRange RefinedRange(StaleRange range, int64_t kv_len, int64_t most, const Charged& charged) {
  for (int64_t by = std::max<int64_t>(1, range.size() / 2); by > 0; by /= 2) {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [first, second] : {std::pair{-by, int64_t{0}},
                                          {by, int64_t{0}},
                                          {int64_t{0}, -by},
                                          {int64_t{0}, by},
                                          {by, by},
                                          {-by, -by}}) {
        StaleRange other = {std::max<int64_t>(range.from + first, 0),
                            std::min(range.to + second, kv_len)};
        if (other.from >= other.to || other.size() > most) continue;
        if (other.from == range.from && other.to == range.to) continue;
        other.charged = charged(other.from, other.to);
        if (!(other.charged < range.charged)) continue;
        range = other;
        moved = true;
      }
    }
  }
  return range;
}

// By how many keys an edge may be off, where others are no worse by `least`.
template <typename Charged>
std::string EdgeDoubt(const StaleRange& range, int64_t kv_len, double least,
                      const Charged& charged) {
  int64_t off = 0;
  for (int64_t by = 1; by <= 64; by *= 2) {
    bool is_open = false;
    for (const auto& [from, to] :
         {std::pair(range.from - by, range.to), std::pair(range.from + by, range.to),
          std::pair(range.from, range.to - by), std::pair(range.from, range.to + by)}) {
      if (from < 0 || to > kv_len || from >= to) continue;
      is_open = is_open || charged(from, to) - range.charged < least;
    }
    if (!is_open) break;
    off = by;
  }
  return off == 0 ? "" : fmt::format(" (the edges are known to within {})", CountText(off, "key"));
}

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

  // Of a range, with the share of the variance of d that all its keys have in common.
  double Charged(int64_t from, int64_t to, double common) const {
    double twice = 0;
    for (const ValueGroup& group : groups_) {
      twice += TwiceLikelihood(group, Covariance(group, from, to, common), nullptr);
    }
    return twice + 2 * std::log(ChoicesOf(from, to, problem_.kv_len));
  }
  // With that of a few which fits best.
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

  // Of the directions of the errors of each channel; scatter: sums u u^T / |u|^2, a mean over
  // channels, of u = L^-1 e.
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

// Of each row the projection of its errors on v_j - o of a range.
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

class StaleRanges {
 public:
  explicit StaleRanges(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  // The cause that is named; nullptr: none.
  const Candidate* Run() {
    std::optional<Found> k = FindK();
    const std::optional<Found> v = FindV();
    if (!k && !v) k = FindBoth();
    if (!k && !v) return nullptr;
    const bool is_k = k && !(v && v->what.numbers < k->what.numbers);
    const Found& found = is_k ? *k : *v;
    Candidate* named = causes_.Add(found.what, [&](const SeenRow& row, size_t r) {
      const std::vector<double>& of_row = found.predicted[r];
      return of_row.empty() || of_row == row.o ? std::nullopt : std::optional<Mixture>({of_row, 1});
    });
    return named;
  }

 private:
  static constexpr int64_t kLargestBlock = 256;

  struct Found {
    CauseText what;
    std::vector<std::vector<double>> predicted;
  };

  // Whether what is left is no more than a hundredth of the excess, number by number.
  bool Fits(double misfit, double numbers) const {
    const double left = problem_.elements - numbers;
    const double excess = (problem_.misfit - problem_.elements) * left / problem_.elements;
    return left > 0 &&
           misfit - left <= std::max(Causes::kLeftOfExcess * excess, 4 * std::sqrt(2 * left));
  }

  double MisfitOf(const std::vector<std::vector<double>>& predicted) const {
    return causes_.Misfit(causes_.AllRows(), [&](const SeenRow&, size_t r) {
      return predicted[r].empty() ? std::nullopt : std::optional<Mixture>({predicted[r], 1});
    });
  }

  std::optional<Found> FindV() const {
    const StaleValues thin(causes_, 8, 32), whole(causes_, 32, problem_.channels);
    if (thin.groups().empty()) return std::nullopt;
    const int64_t n = problem_.kv_len;
    const std::vector<StaleRange> starts = BestBlocks(
        n, kLargestBlock, [&](int64_t from, int64_t to) { return thin.Charged(from, to, 0); });
    if (starts.empty()) return std::nullopt;
    const auto charged = [&](int64_t from, int64_t to) { return whole.ChargedBest(from, to); };
    std::vector<StaleRange> ranges = starts;
    for (StaleRange& range : ranges) range.charged = charged(range.from, range.to);
    const auto by_charge = [](const StaleRange& x, const StaleRange& y) {
      return x.charged < y.charged;
    };
    std::sort(ranges.begin(), ranges.end(), by_charge);
    StaleRange best;
    for (size_t i = 0; i < std::min<size_t>(3, ranges.size()); ++i) {
      const StaleRange refined = RefinedRange(ranges[i], n, n / 2, charged);
      if (refined.charged < best.charged) best = refined;
    }
    double rival = whole.ChargedOfOthers();
    for (const StaleRange& other : ranges) {
      if (!other.Overlaps(best)) rival = std::min(rival, other.charged);
    }
    if (!(rival - best.charged > Causes::kDistinct)) return std::nullopt;
    const double common = whole.CommonOf(best);
    if (!whole.IsUniform(best, common)) return std::nullopt;
    Found found;
    found.predicted = whole.Predicted(best, common);
    found.what.numbers = whole.NumbersOf(best);
    if (whole.LeavesRows(best) && !Fits(MisfitOf(found.predicted), found.what.numbers)) {
      return std::nullopt;
    }
    found.what.name = "V rows wrong";
    found.what.text = fmt::format(
        "V of {} is not what the case holds (stale or never written rows): the errors of rows that "
        "share a head vary together as the weights of these keys do{}",
        KeysText(best.from, best.to, n), EdgeDoubt(best, n, Causes::kDistinct, charged));
    return found;
  }

  std::optional<Found> FindK() const {
    const int64_t n = problem_.kv_len;
    // Half of the keys, or more, is no place: all weights are wrong.
    const int64_t most =
        std::min({kLargestBlock, std::ssize(causes_.rows()[0].o) / 2, problem_.kv_len / 2});
    const StaleScores scores(causes_);
    // Rows that are asked of every block.
    constexpr int64_t kMostProducts = int64_t{1} << 27;
    const std::vector<size_t> few_rows = causes_.FewRows();
    const int64_t each = n * most * most;
    const auto used = static_cast<size_t>(
        std::clamp<int64_t>(kMostProducts / std::max<int64_t>(each, 1), 1, std::ssize(few_rows)));
    const std::vector<size_t> few(few_rows.begin(),
                                  few_rows.begin() + static_cast<std::ptrdiff_t>(used));
    std::vector<StaleRange> ranges = BestBlocks(
        n, most, [&](int64_t from, int64_t to) { return scores.Charged(few, from, to); });
    if (ranges.empty()) return std::nullopt;
    const std::vector<size_t> all = causes_.AllRows();
    const auto charged = [&](int64_t from, int64_t to) { return scores.Charged(all, from, to); };
    for (StaleRange& range : ranges) range.charged = charged(range.from, range.to);
    std::sort(ranges.begin(), ranges.end(),
              [](const StaleRange& x, const StaleRange& y) { return x.charged < y.charged; });
    const StaleRange best = RefinedRange(ranges[0], n, most, charged);
    for (const StaleRange& other : ranges) {
      if (!other.Overlaps(best) && !(other.charged - best.charged > Causes::kDistinct)) {
        return std::nullopt;
      }
    }
    // Where a few keys have most of the weight, any error of scores is theirs.
    Mixture share = {std::vector<double>(problem_.channels, 0), 0};
    for (const SeenRow& row : causes_.rows()) {
      AddRange(problem_, row, best.from, best.to, KeySet::kVisible, 1, &share);
    }
    if (!(2 * share.share <= static_cast<double>(causes_.rows().size()))) return std::nullopt;
    // Another row of K makes another weight: changes of a few hundredths are roundings of scores.
    constexpr double kLeastChange = 0.25;
    double square = 0;
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      for (int64_t j = best.from; j < best.to; ++j) {
        const auto at = static_cast<size_t>(j);
        if (causes_.rows()[r].is_visible[at] != 0) square += causes_.sums()[r].d[at];
      }
    }
    if (!(problem_.misfit > kLeastChange * kLeastChange * square)) return std::nullopt;
    Found found;
    double misfit = 0;
    for (size_t r = 0; r < problem_.rows.size(); ++r) {
      if (r >= problem_.counted) {
        found.predicted.push_back({});
        continue;
      }
      StaleScores::Fit fit = scores.FitOf(problem_.rows[r], best.from, best.to);
      misfit += fit.misfit;
      found.what.numbers += fit.numbers;
      found.predicted.push_back(std::move(fit.predicted));
    }
    if (!Fits(misfit, found.what.numbers)) return std::nullopt;
    found.what.name = "K rows wrong";
    found.what.text = fmt::format(
        "the scores of {} are not those of the case, in each row by other factors: their rows of K "
        "are stale, or were never written{}",
        KeysText(best.from, best.to, n), EdgeDoubt(best, n, Causes::kDistinct, charged));
    return found;
  }

  std::optional<Mixture> Lost(const SeenRow& row, int64_t from, int64_t to) const {
    Mixture mixture = row.Right();
    AddRange(problem_, row, from, to, KeySet::kVisible, -1, &mixture);
    if (mixture.share == 1) return std::nullopt;
    return mixture;
  }

  // What is left of the errors of a row under a loss, the lost keys' effect, and both less what an
  // unknown weight of the rows in their place does to the others. Shapes: (Dv).
  struct LossOfRow {
    std::vector<double> rest, effect;
  };
  std::optional<LossOfRow> LossOf(const SeenRow& row, const StaleRange& range) const {
    const std::optional<Mixture> lost = Lost(row, range.from, range.to);
    if (!lost) return std::nullopt;
    LossOfRow loss;
    double of_rest = 0, of_effect = 0, square = 0;
    for (size_t c = 0; c < problem_.channels; ++c) {
      const bool takes_part = row.precision[c] > 0;
      const double left = lost->sum[c] / lost->share;
      loss.effect.push_back(takes_part ? left - row.o[c] : 0);
      loss.rest.push_back(takes_part ? row.got[c] - left : 0);
      of_rest += loss.rest[c] * left;
      of_effect += loss.effect[c] * left;
      square += takes_part ? left * left : 0;
    }
    for (size_t c = 0; square > 0 && c < problem_.channels; ++c) {
      if (row.precision[c] == 0) continue;
      const double left = lost->sum[c] / lost->share;
      loss.rest[c] -= of_rest / square * left;
      loss.effect[c] -= of_effect / square * left;
    }
    return loss;
  }

  // The key before which half of what a range adds to the errors lies.
  int64_t HalfOfWeight(const StaleRange& range) const {
    std::vector<double> sums = {0};
    for (int64_t j = range.from; j < range.to; ++j) {
      double sum = sums.back();
      for (size_t r = 0; r < causes_.rows().size(); ++r) {
        const auto at = static_cast<size_t>(j);
        if (causes_.rows()[r].is_visible[at] != 0) sum += causes_.sums()[r].d[at];
      }
      sums.push_back(sum);
    }
    int64_t middle = range.from + 1;
    while (middle + 1 < range.to &&
           2 * sums[static_cast<size_t>(middle - range.from)] < sums.back()) {
      ++middle;
    }
    return middle;
  }

  // Whether just the range is lost: the rest has nothing of the effect of a part of it, and points
  // along no key where that is asked. The rest of one channel is one sample: rows of a head share
  // what stands there.
  bool IsJustLost(const StaleRange& range, const StaleRange& part, bool of_keys) const {
    const auto n = static_cast<size_t>(problem_.kv_len);
    const std::vector<size_t> rows = n <= (1 << 12) ? causes_.AllRows() : causes_.FewRows();
    std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<size_t, LossOfRow>>> heads;
    for (const size_t r : rows) {
      const SeenRow& row = causes_.rows()[r];
      std::optional<LossOfRow> loss = LossOf(row, range);
      if (loss && !of_keys) {
        const std::optional<LossOfRow> of_part = LossOf(row, part);
        std::fill(loss->effect.begin(), loss->effect.end(), 0);
        if (of_part) loss->effect = of_part->effect;
      }
      if (loss) heads[{row.query.batch, row.kv_head}].emplace_back(r, std::move(*loss));
    }
    double product = 0, square = 0;
    for (const auto& [head, losses] : heads) {
      for (const auto& [r, loss] : losses) {
        for (size_t c = 0; c < problem_.channels; ++c) {
          product += loss.effect[c] * loss.rest[c];
          square += loss.effect[c] * loss.effect[c];
        }
      }
    }
    double variance = 0;
    std::vector<double> along(n, 0), spread(n, 0);
    for (const auto& [head, losses] : heads) {
      for (size_t c = 0; c < problem_.channels; ++c) {
        double off = 0;
        for (const auto& [r, loss] : losses) {
          off += loss.effect[c] * (loss.rest[c] - product / square * loss.effect[c]);
        }
        variance += off * off;
      }
      std::vector<double> sum(problem_.channels);
      for (size_t j = 0; of_keys && j < n; ++j) {
        std::fill(sum.begin(), sum.end(), 0);
        for (const auto& [r, loss] : losses) {
          const double weight = causes_.rows()[r].weight[j];
          if (weight == 0) continue;
          for (size_t c = 0; c < sum.size(); ++c) sum[c] += weight * loss.rest[c];
        }
        const double* v = causes_.rows()[losses[0].first].Values(static_cast<int64_t>(j));
        double of_sum = 0, of_values = 0;
        for (size_t c = 0; c < sum.size(); ++c) {
          along[j] += sum[c] * v[c];
          of_sum += sum[c] * sum[c];
          of_values += v[c] * v[c];
        }
        spread[j] += of_sum * of_values / static_cast<double>(sum.size());
      }
    }
    // The share of the loss that is too much or too little, against its standard error.
    if (!(product * product <= Causes::kDistinct * variance) ||
        !(square * square > Causes::kNamedGain * variance)) {
      return false;
    }
    const double limit = std::sqrt(2 * std::log(2e3 * static_cast<double>(n)));
    for (size_t j = 0; j < n; ++j) {
      if (spread[j] > 0 && std::fabs(along[j]) > limit * std::sqrt(spread[j])) return false;
    }
    return true;
  }

  std::optional<Found> FindBoth() const {
    // What stands there counts no more than twice what is lost: beyond, the loss is hardly seen.
    constexpr double kLeastShare = 1.0 / 3;
    const int64_t n = problem_.kv_len;
    const auto misfit_of = [&](const std::vector<size_t>& rows, int64_t from, int64_t to) {
      return causes_.Misfit(rows, [&](const SeenRow& row, size_t) { return Lost(row, from, to); });
    };
    std::vector<StaleRange> ranges = BestBlocks(n, kLargestBlock, [&](int64_t from, int64_t to) {
      return misfit_of(problem_.screen, from, to);
    });
    if (ranges.empty()) return std::nullopt;
    const std::vector<size_t> all = causes_.AllRows();
    // In units of the noise that is left.
    const auto charged_by = [&](double unit) {
      return [&, unit](int64_t from, int64_t to) {
        return misfit_of(all, from, to) / unit + 2 * std::log(ChoicesOf(from, to, n));
      };
    };
    const auto by_charge = [](const StaleRange& x, const StaleRange& y) {
      return x.charged < y.charged;
    };
    const auto rough = charged_by(1);
    for (StaleRange& range : ranges) range.charged = rough(range.from, range.to);
    std::sort(ranges.begin(), ranges.end(), by_charge);
    StaleRange best = RefinedRange(ranges[0], n, n / 2, rough);
    const double misfit = misfit_of(all, best.from, best.to);
    const double phi = misfit / problem_.elements;
    if (!((problem_.misfit - misfit) / (problem_.misfit - problem_.elements) > kLeastShare)) {
      return std::nullopt;
    }
    // What stands in the place of the keys is the same for all rows of a head.
    std::set<std::pair<int64_t, int64_t>> heads;
    for (const SeenRow& row : causes_.rows()) heads.insert({row.query.batch, row.kv_head});
    const auto charged =
        charged_by(phi * static_cast<double>(all.size()) / static_cast<double>(heads.size()));
    for (StaleRange& range : ranges) range.charged = charged(range.from, range.to);
    std::sort(ranges.begin(), ranges.end(), by_charge);
    for (const StaleRange& start : {ranges[0], best}) {
      const StaleRange refined = RefinedRange(start, n, n / 2, charged);
      if (!(best.charged < refined.charged)) best = refined;
    }
    for (const StaleRange& other : ranges) {
      if (!other.Overlaps(best) && !(other.charged - best.charged > Causes::kDistinct)) {
        return std::nullopt;
      }
    }
    // Of several keys each half is lost: one heavy key does not speak for its neighbours.
    const int64_t middle = HalfOfWeight(best);
    if (!IsJustLost(best, best, true)) return std::nullopt;
    for (const StaleRange& half :
         {StaleRange{best.from, middle, 0}, StaleRange{middle, best.to, 0}}) {
      if (best.size() > 1 && !IsJustLost(best, half, false)) return std::nullopt;
    }
    Found found;
    for (const SeenRow& row : problem_.rows) {
      const std::optional<Mixture> lost = Lost(row, best.from, best.to);
      found.predicted.push_back(row.o);
      for (size_t c = 0; lost && c < problem_.channels; ++c) {
        found.predicted.back()[c] = lost->sum[c] / lost->share;
      }
    }
    found.what.name = "rows not read";
    found.what.text = fmt::format(
        "{} {} not read: what stands in the place of {} V, or of K and V, is in no tensor of the "
        "case (stale or never written rows){}",
        KeysText(best.from, best.to, n), best.size() == 1 ? "is" : "are",
        best.size() == 1 ? "its" : "their", EdgeDoubt(best, n, Causes::kDistinct, charged));
    return found;
  }

  Causes& causes_;
  const SeenProblem& problem_;
};

}  // namespace

const Candidate* NameStaleRanges(Causes* causes, SeenKeys* seen) {
  const SeenProblem& problem = causes->problem();
  // Errors that are hardly above the noise have no directions of their own.
  if (!(problem.misfit - problem.elements > 4 * std::sqrt(2 * problem.elements)) ||
      !(problem.misfit - problem.elements > Causes::kNamedGain)) {
    return nullptr;
  }
  const Candidate* named = StaleRanges(causes).Run();
  if (named == nullptr) return nullptr;
  seen->cause = named->what.name;
  seen->text = named->what.text;
  seen->explained = (problem.misfit - named->misfit) /
                    (problem.misfit - std::min(problem.elements, named->misfit));
  seen->tried.insert(seen->tried.begin(),
                     {named->what.name, named->what.text, seen->explained, named->misfit});
  return named;
}

}  // namespace kvcheck
