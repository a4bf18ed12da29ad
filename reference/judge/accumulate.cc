#include "reference/judge/accumulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double SizeOf(double error) { return std::isnan(error) ? kInfinity : std::fabs(error); }

// Failing before passing, then by ratio, by error, and the first element of equals.
bool IsWorse(const WorstElement& a, const WorstElement& b) {
  if (a.failed != b.failed) return a.failed;
  if (a.report.ratio != b.report.ratio) return a.report.ratio > b.report.ratio;
  const double a_size = SizeOf(a.report.error);
  const double b_size = SizeOf(b.report.error);
  if (a_size != b_size) return a_size > b_size;
  return a.report.element < b.report.element;
}

void AddTo(const std::vector<int64_t>& from, std::vector<int64_t>* to) {
  if (to->size() < from.size()) to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
}

class Tallier {
 public:
  Tallier(const OutputInfo& info, const SettledTile& settled, int64_t tile_index)
      : info_(info),
        tile_(settled.tile),
        observed_(settled.observed),
        evaluation_(settled.evaluation),
        precision_(settled.row_precision),
        length_(static_cast<size_t>(info.row_length)),
        use_(settled.tile.statistics.has_value() ? settled.tile.value.size() : 0, 0) {
    if (IsFloat(info.dtype)) {
      spacing_.emplace(info.dtype);
      smallest_normal_ = FloatTypeOf(info.dtype).smallest_normal;
    }
    tally_.heat = HeatMaps(info.shape, info.row_length);
    tally_.span = {tile_index, tile_.first_row, tile_.row_count, 0};
    tally_.alternatives = evaluation_.alternatives;
    tally_.counts.unbounded = evaluation_.unbounded_elements;
    tally_.counts.undefined = evaluation_.undefined_elements;
    tally_.counts.on_reference_bound = evaluation_.on_reference_bound;
    tally_.counts.unresolved = evaluation_.unresolved;
    tally_.counts.elements = static_cast<int64_t>(tile_.value.size());
    if (precision_.empty()) {
      tally_.rows_at[static_cast<size_t>(tile_.precision)] = tile_.row_count;
    }
    for (const Precision precision : precision_) ++tally_.rows_at[static_cast<size_t>(precision)];
    if (settled.contradiction.has_value()) {
      tally_.contradiction =
          ElementName(info.shape, ElementOf(static_cast<size_t>(*settled.contradiction)));
    }
  }

  OutputTally Run() {
    const size_t rows = static_cast<size_t>(tile_.row_count);
    if (tile_.standing.empty()) {
      AddElements(0, rows * length_);
    } else {
      for (size_t row = 0; row < rows; ++row) {
        if (CountStanding(row)) AddElements(row * length_, (row + 1) * length_);
      }
    }
    if (info_.chosen && info_.claim == Claim::kAccuracy) AddLooseRows();
    if (!tile_.sensitivity.empty() && tally_.above_vacuous > 0) AddVacuousRows();
    AddHeat();
    for (const double share : tile_.detectable_share) tally_.detectable_sum += share;
    tally_.detectable_count = static_cast<int64_t>(tile_.detectable_share.size());
    for (size_t row = 0; row < tile_.sensitivity.size(); ++row) AddSensitivity(row);
    if (evaluation_.undefined_elements > 0) {
      Count(tile_.undefined_reason, evaluation_.undefined_elements, &tally_.not_judged);
    }
    tally_.names_faults = !tile_.least_fault.empty();
    tally_.statistics.Add(tile_, info_, evaluation_.error, use_);
    if (worst_ != kNone) KeepWorst();
    tally_.span.failed = tally_.counts.failed;
    return std::move(tally_);
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  int64_t ElementOf(size_t i) const {
    return tile_.first_row * info_.row_length + static_cast<int64_t>(i);
  }

  Precision PrecisionOf(size_t row) const {
    return precision_.empty() ? tile_.precision : precision_[row];
  }

  void AddHeat() {
    std::vector<double> ratios;
    if (!tile_.accepted.empty()) {
      ratios = evaluation_.ratio;
      for (size_t i = 0; i < ratios.size(); ++i) {
        if (IsAccepted(i)) ratios[i] = 0;
      }
    }
    tally_.heat.AddRows(info_.shape, tile_.first_row, tile_.row_count,
                        ratios.empty() ? evaluation_.ratio.data() : ratios.data(),
                        info_.row_length);
  }

  void AddElements(size_t begin, size_t end) {
    for (size_t i = begin; i < end;) {
      if (next_run_ < evaluation_.plain_runs.size() &&
          evaluation_.plain_runs[next_run_].begin == i) {
        const PlainRun& run = evaluation_.plain_runs[next_run_++];
        AddPlain(run);
        i = run.end;
      } else {
        AddElement(i++);
      }
    }
  }

  // AddElement for each element of the run.
  void AddPlain(const PlainRun& run) {
    const size_t count = run.end - run.begin;
    const double* got = observed_.got.data() + run.begin;
    const double* expected = tile_.value.data() + run.begin;
    tally_.counts.judged += static_cast<int64_t>(count);
    tally_.special.count[static_cast<size_t>(PairKind::kOrdinary)] += static_cast<int64_t>(count);
    int64_t zeros = 0;
    for (size_t i = 0; i < count; ++i) {
      zeros += (got[i] == 0 ? 1 : 0) & (expected[i] == 0 ? 1 : 0);
    }
    tally_.nonzero += static_cast<int64_t>(count) - zeros;
    if (run.failed > 0) AddFailures(run.begin, run.end);
    tally_.metrics.AddRun(
        {got, expected, evaluation_.error.data() + run.begin,
         IsAccepted(run.begin) ? nullptr : evaluation_.ratio.data() + run.begin, count},
        spacing_.has_value() ? &*spacing_ : nullptr);
    if (!use_.empty()) std::fill_n(use_.data() + run.begin, count, uint8_t{1});
    if (IsAccepted(run.begin)) {
      tally_.with_share += static_cast<int64_t>(count);
      tally_.counts.accepted += static_cast<int64_t>(count);
      return;
    }
    if (info_.claim == Claim::kAccuracy) AddSharesOfInputs(run.begin, run.end);
    // The worst element is here only if something here is worse than it.
    if (worst_ == kNone || run.failed > 0 || run.largest_ratio > evaluation_.ratio[worst_] ||
        (run.largest_ratio == evaluation_.ratio[worst_] &&
         run.largest_error > SizeOf(evaluation_.error[worst_]))) {
      for (size_t i = run.begin; i < run.end; ++i) KeepWorse(i);
    }
  }

  // Whether the row of element i passed without its own bound, which is a small share of its mass.
  bool IsAccepted(size_t i) const {
    return !tile_.accepted.empty() && tile_.accepted[i / length_] != 0;
  }

  // What a comparison proves is asked of the proven bound, so that a verdict under a model of
  // errors is never greener than one without.
  double ProvenBound(size_t i) const {
    return tile_.proven_bound.empty() ? tile_.bound[i] : tile_.proven_bound[i];
  }

  // Whether 0, which is another value, would pass here as well.
  bool PassesAsZero(size_t i) const {
    return tile_.value[i] != 0 && tile_.bound[i] >= std::fabs(tile_.value[i]);
  }

  // An error of kVacuousShare of the element would fail, or the least fault that is known there.
  bool ProvesSomething(size_t i, double mass) const {
    const double bound = ProvenBound(i);
    return bound <= kVacuousShare * mass ||
           (!tile_.least_fault.empty() && bound < tile_.least_fault[i]);
  }

  // AddShares, but for rows without inputs.
  void AddSharesOfInputs(size_t begin, size_t end) {
    if (tile_.sensitivity.empty()) return AddShares(begin, end);
    while (begin < end) {
      const size_t next = std::min(end, (begin / length_ + 1) * length_);
      if (!HasNoInputs(begin)) AddShares(begin, next);
      begin = next;
    }
  }

  // AddShare for each element.
  void AddShares(size_t begin, size_t end) {
    const double* mass = tile_.mass.empty() ? tile_.value.data() : tile_.mass.data();
    std::array<double, kRun> shares;
    int64_t within = 0, zeros = 0;
    for (size_t i = begin; i < end; ++i) {
      const double size = std::fabs(mass[i]);
      const double bound = ProvenBound(i);
      within += bound <= kVacuousShare * size ? 1 : 0;
      zeros += PassesAsZero(i) ? 1 : 0;
      shares[i - begin] = (bound == 0 ? 0 : bound) / (bound == 0 ? 1 : size);
    }
    if (!tile_.least_fault.empty()) {
      within = 0;
      for (size_t i = begin; i < end; ++i) within += ProvesSomething(i, std::fabs(mass[i])) ? 1 : 0;
    }
    const int64_t count = static_cast<int64_t>(end - begin);
    tally_.with_share += count;
    tally_.above_vacuous += count - within;
    tally_.pass_as_zero += zeros;
    tally_.metrics.AddBoundShares({shares.data(), end - begin});
  }

  // Whether nothing can be lost in the row of element i, so that it proves nothing.
  bool HasNoInputs(size_t i) const {
    return !tile_.sensitivity.empty() && tile_.sensitivity[i / length_] == Sensitivity::kNoInputs;
  }

  // Of the elements of a row that are judged by a difference and have a normal size.
  bool IsVacuous(size_t row) const {
    int64_t elements = 0, weak = 0, void_of_proof = 0, pass_as_zero = 0;
    for (size_t i = row * length_; i < (row + 1) * length_; ++i) {
      const ElementState state = evaluation_.state[i];
      if (state != ElementState::kPassed && state != ElementState::kFailed) continue;
      if (!std::isfinite(tile_.value[i]) || !(tile_.mass[i] >= smallest_normal_)) continue;
      ++elements;
      if (ProvesSomething(i, tile_.mass[i])) continue;
      ++weak;
      void_of_proof += ProvenBound(i) < tile_.mass[i] ? 0 : 1;
      pass_as_zero += ProvenBound(i) < std::fabs(tile_.value[i]) ? 0 : 1;
    }
    return 2 * weak > elements && (2 * void_of_proof > elements || pass_as_zero == elements);
  }

  void AddVacuousRows() {
    for (size_t row = 0; row * length_ < tile_.value.size(); ++row) {
      if (HasNoInputs(row * length_) || IsAccepted(row * length_)) continue;
      if (!IsVacuous(row)) continue;
      ++tally_.vacuous_rows;
      if (!tile_.group.empty()) ++tally_.vacuous_rows_of_group[tile_.group[row]];
      if (tally_.first_vacuous_row < 0) {
        tally_.first_vacuous_row = tile_.first_row + static_cast<int64_t>(row);
      }
    }
  }

  void AddLooseRows() {
    for (size_t begin = 0; begin < tile_.value.size(); begin += length_) {
      size_t judged = 0;
      size_t loose = 0;
      for (size_t i = begin; i < begin + length_; ++i) {
        const ElementState state = evaluation_.state[i];
        if (state != ElementState::kPassed && state != ElementState::kFailed) continue;
        ++judged;
        const double mass = std::fabs(tile_.value[i]);
        // An infinity, or what is exactly as expected, hides nothing.
        if (!std::isfinite(mass) || evaluation_.error[i] == 0) continue;
        loose += tile_.bound[i] <= kVacuousShare * mass ? 0 : 1;
      }
      tally_.loose += static_cast<int64_t>(loose);
      if (length_ < 2 || judged == 0) continue;
      ++tally_.ruled_rows;
      tally_.loose_rows += 2 * loose >= judged ? 1 : 0;
    }
  }

  void AddFailures(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (evaluation_.state[i] == ElementState::kFailed) AddFailure(i);
    }
  }

  void AddFailure(size_t i) {
    ++tally_.counts.failed;
    if (!tile_.proven_bound.empty() && evaluation_.error[i] == evaluation_.error[i] &&
        std::fabs(evaluation_.error[i]) <= tile_.proven_bound[i]) {
      ++tally_.counts.failed_by_noise;
    }
    const int64_t element = ElementOf(i);
    if (!tally_.failures.empty() &&
        tally_.failures.back().first + tally_.failures.back().count == element) {
      ++tally_.failures.back().count;
    } else {
      tally_.failures.push_back({element, 1});
    }
  }

  void KeepWorse(size_t i) {
    if (worst_ == kNone || IsWorseHere(i, worst_)) worst_ = i;
  }

  // False when the row is not judged.
  bool CountStanding(size_t row) {
    if (tile_.standing[row] == Standing::kJudged) return true;
    switch (tile_.standing[row]) {
      case Standing::kLeftOut:
        tally_.counts.left_out += info_.row_length;
        --tally_.rows_at[static_cast<size_t>(PrecisionOf(row))];
        return false;
      case Standing::kUnconstrained:
        tally_.counts.unconstrained += info_.row_length;
        break;
      case Standing::kUndefined:
        tally_.counts.undefined += info_.row_length;
        break;
      case Standing::kUnbounded:
        tally_.counts.unbounded += info_.row_length;
        if (!tile_.standing_reason.empty()) {
          Count(tile_.standing_reason[row], info_.row_length, &tally_.unbounded_rows);
        }
        break;
      case Standing::kJudged:
        break;
    }
    if (!tile_.standing_reason.empty()) {
      Count(tile_.standing_reason[row], info_.row_length, &tally_.not_judged);
    }
    return false;
  }

  static void Count(int reason, int64_t elements, std::vector<int64_t>* by_reason) {
    if (reason < 0) return;
    const size_t index = static_cast<size_t>(reason);
    if (by_reason->size() <= index) by_reason->resize(index + 1);
    (*by_reason)[index] += elements;
  }

  void AddSensitivity(size_t row) {
    const Sensitivity sensitivity = tile_.sensitivity[row];
    const bool is_judged = tile_.standing.empty() || tile_.standing[row] == Standing::kJudged;
    if (!is_judged) return;
    if (sensitivity == Sensitivity::kNoInputs) {
      ++tally_.rows_without_inputs;
      return;
    }
    const auto count = [&](SensitivityCounts* counts) {
      ++counts->with_inputs;
      counts->showing += sensitivity == Sensitivity::kShows ? 1 : 0;
      counts->blind += sensitivity == Sensitivity::kBlind ? 1 : 0;
    };
    count(&tally_.rows);
    if (!tile_.group.empty()) count(&tally_.rows_of_group[tile_.group[row]]);
  }

  void AddElement(size_t i) {
    const ElementState state = evaluation_.state[i];
    if (state == ElementState::kNotJudged) return;
    if (state == ElementState::kFree) {
      ++tally_.counts.free;
      return;
    }
    ++tally_.counts.judged;
    tally_.special.Add(evaluation_.kind[i]);
    const double got = observed_.got[i];
    const double expected = tile_.value[i];
    if (got != 0 || expected != 0) ++tally_.nonzero;
    if (state == ElementState::kAlternative) return;
    if (state == ElementState::kFailed) AddFailure(i);
    AddNumbers(i, state, got, expected);
    if (IsAccepted(i)) {
      ++tally_.counts.accepted;
    } else {
      KeepWorse(i);
    }
  }

  void AddNumbers(size_t i, ElementState state, double got, double expected) {
    if (std::isfinite(got) && std::isfinite(expected)) {
      const bool wants_spacing = evaluation_.error[i] != 0 && spacing_.has_value();
      const double spacing = wants_spacing ? spacing_->At(expected) : 1;
      tally_.metrics.Add(got, expected, evaluation_.error[i], spacing, evaluation_.ratio[i]);
      // Flushing and saturation are no roundings of random phase, which the statistics suppose.
      const PairKind kind = evaluation_.kind[i];
      const bool rounded = kind != PairKind::kFlushed && kind != PairKind::kSaturated;
      if (!use_.empty()) use_[i] = rounded && std::isfinite(evaluation_.error[i]) ? 1 : 0;
      if (info_.claim == Claim::kAccuracy) AddShare(i, expected);
    } else if (state == ElementState::kFailed) {
      tally_.metrics.AddNotFinite();
    }
  }

  void AddShare(size_t i, double expected) {
    if (HasNoInputs(i)) return;
    if (IsAccepted(i)) {
      ++tally_.with_share;
      return;
    }
    const double mass = tile_.mass.empty() ? std::fabs(expected) : tile_.mass[i];
    const double bound = ProvenBound(i);
    ++tally_.with_share;
    if (PassesAsZero(i)) ++tally_.pass_as_zero;
    if (!ProvesSomething(i, mass)) ++tally_.above_vacuous;
    tally_.metrics.AddBoundShare(bound == 0 ? 0 : bound / mass);
  }

  bool IsWorseHere(size_t a, size_t b) const {
    const bool a_failed = evaluation_.state[a] == ElementState::kFailed;
    const bool b_failed = evaluation_.state[b] == ElementState::kFailed;
    if (a_failed != b_failed) return a_failed;
    if (evaluation_.ratio[a] != evaluation_.ratio[b]) {
      return evaluation_.ratio[a] > evaluation_.ratio[b];
    }
    return SizeOf(evaluation_.error[a]) > SizeOf(evaluation_.error[b]);
  }

  void KeepWorst() {
    const size_t i = worst_;
    WorstElement worst;
    worst.failed = evaluation_.state[i] == ElementState::kFailed;
    worst.tile_index = tally_.span.index;
    ElementReport& report = worst.report;
    report.element = ElementOf(i);
    report.coordinates = ElementName(info_.shape, report.element);
    report.expected = ExpectedParts(tile_, i).high;
    report.expected_low = ExpectedParts(tile_, i).low;
    report.got = observed_.got[i];
    report.error = evaluation_.error[i];
    report.ratio = evaluation_.ratio[i];
    report.reference_bound = ReferenceBoundAt(tile_, i);
    report.bound = info_.claim == Claim::kAccuracy ? tile_.bound[i] : 0;
    report.mass = tile_.mass.empty() ? std::fabs(tile_.value[i]) : tile_.mass[i];
    report.precision = PrecisionOf(i / length_);
    const uint64_t got_code = CodeAt(info_.dtype, observed_.bytes, i);
    report.got_text = evaluation_.kind[i] == PairKind::kNoCode
                          ? fmt::format("{:#04x}, no {} code", got_code, Name(info_.dtype))
                          : CodeText(info_.dtype, got_code);
    report.expected_text = fmt::format("{:.17g}", tile_.value[i]);
    if (info_.claim == Claim::kConformance || !IsFloat(info_.dtype)) {
      if (const auto code = ExpectedCode(info_.dtype, tile_, i)) {
        report.expected_text = CodeText(info_.dtype, *code);
      }
    }
    tally_.worst = std::move(worst);
  }

  const OutputInfo& info_;
  const ExpectedTile& tile_;
  const ObservedTile& observed_;
  const Evaluation& evaluation_;
  const std::vector<Precision>& precision_;  // per row; empty: that of the tile
  const size_t length_;
  std::vector<uint8_t> use_;            // for the statistics; empty without
  std::optional<TypeSpacing> spacing_;  // of float types
  double smallest_normal_ = 0;          // of float types
  size_t next_run_ = 0;                 // of the plain runs
  size_t worst_ = kNone;
  OutputTally tally_;
};

}  // namespace

void OutputTally::Merge(const OutputTally& other) {
  counts.elements += other.counts.elements;
  counts.judged += other.counts.judged;
  counts.failed += other.counts.failed;
  counts.failed_by_noise += other.counts.failed_by_noise;
  counts.unconstrained += other.counts.unconstrained;
  counts.undefined += other.counts.undefined;
  counts.unbounded += other.counts.unbounded;
  counts.free += other.counts.free;
  counts.on_reference_bound += other.counts.on_reference_bound;
  counts.unresolved += other.counts.unresolved;
  counts.left_out += other.counts.left_out;
  counts.accepted += other.counts.accepted;
  AddTo(other.alternatives, &alternatives);
  AddTo(other.not_judged, &not_judged);
  AddTo(other.unbounded_rows, &unbounded_rows);
  special.Merge(other.special);
  metrics.Merge(other.metrics);
  statistics.Merge(other.statistics);
  heat.Merge(other.heat);
  if (other.worst.has_value() && (!worst.has_value() || IsWorse(*other.worst, *worst))) {
    worst = other.worst;
  }
  with_share += other.with_share;
  above_vacuous += other.above_vacuous;
  pass_as_zero += other.pass_as_zero;
  names_faults = names_faults || other.names_faults;
  vacuous_rows += other.vacuous_rows;
  for (const auto& [group, count] : other.vacuous_rows_of_group) {
    vacuous_rows_of_group[group] += count;
  }
  if (first_vacuous_row < 0) first_vacuous_row = other.first_vacuous_row;
  loose += other.loose;
  ruled_rows += other.ruled_rows;
  loose_rows += other.loose_rows;
  nonzero += other.nonzero;
  detectable_sum += other.detectable_sum;
  detectable_count += other.detectable_count;
  rows.Add(other.rows);
  rows_without_inputs += other.rows_without_inputs;
  for (const auto& [group, counts] : other.rows_of_group) rows_of_group[group].Add(counts);
  for (size_t i = 0; i < rows_at.size(); ++i) rows_at[i] += other.rows_at[i];
  if (contradiction.empty()) contradiction = other.contradiction;
}

OutputTally TallyOf(const OutputInfo& info, const SettledTile& settled, int64_t tile_index) {
  return Tallier(info, settled, tile_index).Run();
}

}  // namespace kvcheck
