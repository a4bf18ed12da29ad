// Rows of K or V of a range of keys whose numbers are in no tensor of the case: an older page, or
// one that was never written. What they hold has as many free numbers as the range has rows, so
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
// K and V: the output lacks the range, and what takes its place may be anything. The lack explains
// only a part of the errors, so it is reported as that part and not as the cause. It is reported
// where the coefficient of the lack is 1 and the remaining errors point along no key.
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
#include "reference/attention/stale_range.h"
#include "reference/attention/stale_scores.h"
#include "reference/attention/stale_values.h"

namespace kvcheck {
namespace {

class StaleRanges {
 public:
  explicit StaleRanges(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  // Whether what Run() found makes only a part of the errors.
  bool is_part() const { return is_part_; }

  // The cause that was found; nullptr: none.
  const Candidate* Run() {
    std::optional<Found> k = FindK();
    const std::optional<Found> v = FindV();
    if (!k && !v) k = FindBoth();
    if (!k && !v) return nullptr;
    const bool is_k = k && !(v && v->what.numbers < k->what.numbers);
    const Found& found = is_k ? *k : *v;
    is_part_ = found.is_part;
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
    bool is_part = false;  // it explains only a part of the errors
  };

  template <typename Charged>
  std::string Doubt(const StaleRange& range, const Charged& charged) const {
    return EdgeDoubt(range.from, range.to, problem_.kv_len, [&](int64_t from, int64_t to) {
      return charged(from, to) - range.charged < Causes::kDistinct;
    });
  }

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
        KeysText(best.from, best.to, n), Doubt(best, charged));
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
        KeysText(best.from, best.to, n), Doubt(best, charged));
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
    found.is_part = true;
    found.what.text = fmt::format(
        "{} {} not read: what stands in the place of {} V, or of K and V, is in no tensor of the "
        "case (stale or never written rows){}",
        KeysText(best.from, best.to, n), best.size() == 1 ? "is" : "are",
        best.size() == 1 ? "its" : "their", Doubt(best, charged));
    return found;
  }

  Causes& causes_;
  const SeenProblem& problem_;
  bool is_part_ = false;
};

}  // namespace

const Candidate* NameStaleRanges(Causes* causes, SeenKeys* seen) {
  const SeenProblem& problem = causes->problem();
  // Errors that are hardly above the noise have no directions of their own.
  if (!(problem.misfit - problem.elements > 4 * std::sqrt(2 * problem.elements)) ||
      !(problem.misfit - problem.elements > Causes::kNamedGain)) {
    return nullptr;
  }
  StaleRanges ranges(causes);
  const Candidate* named = ranges.Run();
  if (named == nullptr) return nullptr;
  if (!ranges.is_part()) seen->cause = named->what.name;
  seen->has_free_numbers = true;
  seen->text = named->what.text;
  seen->explained = (problem.misfit - named->misfit) /
                    (problem.misfit - std::min(problem.elements, named->misfit));
  seen->tried.insert(seen->tried.begin(),
                     {named->what.name, named->what.text, seen->explained, named->misfit});
  return named;
}

}  // namespace kvcheck
