#include "reference/judge/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/judge/accumulate.h"
#include "reference/judge/explain.h"
#include "reference/judge/failure_tally.h"
#include "reference/judge/ladder.h"
#include "reference/judge/ordered_parallel.h"
#include "reference/judge/readings.h"
#include "reference/judge/sampled_source.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// Rows of which a declaration is asked whether they would pass under it; of fewer, all.
constexpr int64_t kDeclaredRows = 256;

// Why an output cannot be compared at all.
std::optional<std::string> Mismatch(const OutputInfo& info, const ObservedSource& observed) {
  const OutputInfo* got = observed.Find(info.name);
  if (got == nullptr) {
    const std::vector<std::string> names = observed.Names();
    return names.empty() ? "missing; no output is present"
                         : fmt::format("missing; present: {}; add it under this name",
                                       fmt::join(names, ", "));
  }
  if (got->dtype != info.dtype) {
    return fmt::format("has type {}, {} expected", Name(got->dtype), Name(info.dtype));
  }
  if (!got->shape.SameExtents(info.shape)) {
    return fmt::format("has shape {}, {} expected", ToString(got->shape), ToString(info.shape));
  }
  return std::nullopt;
}

std::vector<ReasonCount> Counted(const std::vector<int64_t>& counts,
                                 const std::vector<std::string>& reasons) {
  std::vector<ReasonCount> result;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    result.push_back({i < reasons.size() ? reasons[i] : fmt::format("reason {}", i), counts[i]});
  }
  return result;
}

// One output through both passes.
class OutputJudge {
 public:
  OutputJudge(const OutputInfo& info, int output) : info_(info), output_(output) {
    verdict_.name = info.name;
    verdict_.dtype = info.dtype;
    verdict_.shape = ToString(info.shape);
    verdict_.rule = !info.rule.empty()                  ? info.rule
                    : info.claim == Claim::kConformance ? "bytes equal"
                                                        : "derived bound";
  }

  const OutputInfo& info() const { return info_; }
  bool is_compared() const { return tally_ != nullptr; }
  int64_t StatisticsTests() const { return is_compared() ? tally_->statistics.Tests(info_) : 0; }

  void Refuse(std::string reason) {
    verdict_.outcome = Outcome::kFail;
    verdict_.reasons.push_back(std::move(reason));
  }

  void Accept() {
    tally_ = std::make_unique<OutputTally>();
    tally_->heat = HeatMaps(info_.shape, info_.row_length);
    failures_ = std::make_unique<FailureTally>(info_.shape, info_.row_length);
  }

  void Merge(const OutputTally& tile) {
    tally_->Merge(tile);
    for (const FailureRun& run : tile.failures) {
      failures_->Add(run);
      failing_rows_.Add(run, info_.row_length);
    }
    spans_.push_back(tile.span);
  }

  void SetSample(const std::optional<SampleReport>& sample) { verdict_.sample = sample; }

  OutputVerdict Finish(const ExpectedSource& expected, const ObservedSource& observed,
                       const JudgeOptions& options, int64_t tests) {
    if (!is_compared()) return std::move(verdict_);
    CheckCoverage();
    const OutputTally& tally = *tally_;
    verdict_.counts = tally.counts;
    verdict_.alternatives = Counted(tally.alternatives, info_.reasons);
    verdict_.not_judged = Counted(tally.not_judged, info_.reasons);
    verdict_.special = tally.special;
    verdict_.special_lines = Describe(tally.special, info_.claim, options.special);
    verdict_.metrics = tally.metrics.Finish();
    verdict_.median_bound_share = verdict_.metrics.median_bound_share;
    verdict_.with_share = tally.with_share;
    verdict_.pass_as_zero = tally.pass_as_zero;
    verdict_.heat = tally.heat;
    verdict_.rows_at = tally.rows_at;
    for (int p = 0; p < kPrecisions; ++p) {
      if (tally.rows_at[static_cast<size_t>(p)] > 0) verdict_.precision = static_cast<Precision>(p);
    }
    if (tally.detectable_count > 0) {
      verdict_.detectable_share =
          tally.detectable_sum / static_cast<double>(tally.detectable_count);
    }
    if (tally.worst.has_value()) verdict_.worst = tally.worst->report;
    AddStatistics(options, tests);
    Decide(options);
    if (options.explain) {
      Explain({expected, observed, options.special, output_, options.rule >= Rule::kNoise},
              options);
    }
    return std::move(verdict_);
  }

 private:
  // Tiles cover every row exactly once; anything else is a fault of the source.
  void CheckCoverage() const {
    std::vector<TileSpan> spans = spans_;
    std::sort(spans.begin(), spans.end(),
              [](const TileSpan& a, const TileSpan& b) { return a.first_row < b.first_row; });
    int64_t next = 0;
    for (const TileSpan& span : spans) {
      KVCHECK_CHECK(span.first_row == next, "tiles leave out rows or overlap");
      next += span.row_count;
    }
    KVCHECK_CHECK(next * info_.row_length == info_.shape.ElementCount(),
                  "tiles do not cover the output");
  }

  void AddStatistics(const JudgeOptions& options, int64_t tests) {
    verdict_.by_bound_alone = options.rule == Rule::kBound && !info_.directions.empty();
    const bool has_rows = !tally_->statistics.empty();
    const bool is_asked =
        options.rule == Rule::kStatistics && tally_->counts.judged > 0 && !info_.directions.empty();
    if (!has_rows && !is_asked) return;
    verdict_.statistics = tally_->statistics.Finish(info_, tests, options.false_alarm);
    // Statistics of no row see nothing.
    if (has_rows) return;
    for (const std::string& direction : info_.directions) {
      verdict_.statistics->blind_to.push_back({direction, ""});
    }
  }

  void Mistrust(std::string reason) {
    verdict_.outcome = Combine(verdict_.outcome, Outcome::kMistrusted);
    verdict_.reasons.push_back(std::move(reason));
  }

  void Decide(const JudgeOptions& options) {
    const OutputTally& tally = *tally_;
    const JudgeCounts& counts = tally.counts;
    if (counts.failed > 0) {
      std::string text = fmt::format("{} of {} judged elements fail: {}", counts.failed,
                                     counts.judged, verdict_.rule);
      if (counts.failed_by_noise == counts.failed) {
        text +=
            ", by statistics: inside the worst case, beyond what roundings of random phase make "
            "once in 1e18 elements";
      } else if (counts.failed_by_noise > 0) {
        text += fmt::format("; {} of them by statistics, inside the worst case",
                            counts.failed_by_noise);
      }
      Refuse(std::move(text));
    }
    // Beside elements that fail, that sums over them are off too says little more.
    if (counts.failed == 0 && verdict_.statistics && !verdict_.statistics->over.empty()) {
      for (const std::string& line : verdict_.statistics->over) Refuse("by statistics: " + line);
    }
    if (counts.judged == 0) {
      Mistrust(fmt::format(
          "nothing was judged: {} elements, {} unconstrained, {} undefined, {} "
          "unbounded, {} free",
          counts.elements, counts.unconstrained, counts.undefined, counts.unbounded, counts.free));
    }
    if (counts.judged > 0 && counts.undefined > 0) {
      std::string what = fmt::format("no value is defined for {} of {} elements", counts.undefined,
                                     counts.elements - counts.left_out);
      if (2 * counts.undefined > counts.elements - counts.left_out) {
        Mistrust(std::move(what));
      } else {
        verdict_.warnings.push_back(std::move(what));
      }
    }
    if (counts.unbounded > 0) {
      Mistrust(fmt::format("{} elements have no bound under the declared plan{}", counts.unbounded,
                           UnboundedReasons()));
    }
    DecideBlindness();
    DecideMustSee(options.must_see);
    if (2 * tally.above_vacuous > tally.with_share) {
      Mistrust(
          fmt::format("vacuous: the bound is more than {} of the data{} in {} of {} elements "
                      "(median {:.3g})",
                      kVacuousShare, tally.names_faults ? " and hides the least fault" : "",
                      tally.above_vacuous, tally.with_share, verdict_.median_bound_share));
    }
    DecideVacuousRows(options.every_row_proves);
    DecideLooseRows();
    if (counts.unresolved > 0) {
      Mistrust(
          fmt::format("reference: its own error is too large beside the tolerance at {} "
                      "elements, in {}",
                      counts.unresolved, Name(verdict_.precision)));
    }
    if (!tally.contradiction.empty()) {
      Mistrust(fmt::format("reference: two precisions differ by more than their own error at {}",
                           tally.contradiction));
    }
    if (counts.judged > 0 && tally.nonzero == 0) {
      verdict_.warnings.push_back("every judged value is 0, expected and observed");
    }
    const int64_t looked_at = counts.elements - counts.left_out;
    if (counts.judged > 0 && 2 * counts.unconstrained > looked_at) {
      verdict_.warnings.push_back(
          fmt::format("most elements were not judged: {} of {}", counts.unconstrained, looked_at));
    }
    // Where a definition says that a value is NaN or infinite, that was worth asking.
    const bool is_stored = info_.chosen || info_.rule == "bytes equal";
    if (auto few = FewFiniteWarning(counts.judged, tally.special); is_stored && few) {
      verdict_.warnings.push_back(std::move(*few));
    }
  }

  // What is proved of other rows says nothing of these.
  void DecideVacuousRows(bool every_row_proves) {
    const OutputTally& tally = *tally_;
    if (tally.vacuous_rows == 0) return;
    std::vector<std::string> places;
    for (const auto& [group, rows] : tally.vacuous_rows_of_group) {
      const auto all = tally.rows_of_group.find(group);
      const auto index = static_cast<size_t>(group);
      const std::string name = index < info_.groups.size() ? info_.groups[index] : "";
      places.push_back(all != tally.rows_of_group.end() && rows == all->second.with_inputs
                           ? name
                           : fmt::format("{} in {} rows", name, rows));
    }
    if (places.empty()) {
      places.push_back("the first at " +
                       ElementName(info_.shape, tally.first_vacuous_row * info_.row_length));
    }
    std::string text = fmt::format(
        "vacuous: the bound is as large as the data in {} of {} rows, where any "
        "answer of that size would pass: {}",
        tally.vacuous_rows, std::max(verdict_.rows_with_inputs, JudgedRows()), Named(places));
    if (every_row_proves) {
      Mistrust(std::move(text));
    } else {
      verdict_.warnings.push_back(std::move(text));
    }
  }

  // Of outputs that do not know what their rows are made of.
  int64_t JudgedRows() const {
    if (verdict_.rows_with_inputs > 0) return 0;
    return tally_->counts.judged / std::max<int64_t>(1, info_.row_length);
  }

  // "b=0 hq=1, b=0 hq=2 and 3 more".
  static std::string Named(std::vector<std::string> names) {
    constexpr size_t kNamed = 4;
    const size_t count = names.size();
    names.resize(std::min(count, kNamed));
    std::string text = fmt::format("{}", fmt::join(names, ", "));
    if (count > kNamed) text += fmt::format(" and {} more", count - kNamed);
    return text;
  }

  // The median alone would let half of the rows be anything.
  void DecideLooseRows() {
    const OutputTally& tally = *tally_;
    verdict_.counts.loose = tally.loose;
    const auto share = [](int64_t part, int64_t whole) {
      return static_cast<double>(part) > kVacuousShare * static_cast<double>(whole);
    };
    const bool is_most = share(tally.loose_rows, tally.ruled_rows);
    if (tally.loose_rows == 0 && !share(tally.loose, tally.with_share)) return;
    std::string text = fmt::format(
        "the tolerance is more than {} of the data at {} of {} elements, which are not as expected",
        kVacuousShare, tally.loose, tally.with_share);
    if (tally.loose_rows > 0) {
      text += fmt::format("; at least half of {} of {} rows are such", tally.loose_rows,
                          tally.ruled_rows);
    }
    if (is_most) {
      Mistrust("vacuous: " + text);
    } else {
      verdict_.warnings.push_back(std::move(text));
    }
  }

  // ": REASON; REASON" of the rows without a bound.
  std::string UnboundedReasons() const {
    std::vector<std::string> reasons;
    for (const ReasonCount& reason : Counted(tally_->unbounded_rows, info_.reasons)) {
      reasons.push_back(reason.reason);
    }
    return reasons.empty() ? "" : fmt::format(": {}", fmt::join(reasons, "; "));
  }

  // Inputs whose loss would not show were not compared.
  void DecideBlindness() {
    const SensitivityCounts& rows = tally_->rows;
    verdict_.rows_with_inputs = rows.with_inputs;
    verdict_.blind_rows = rows.blind;
    if (rows.with_inputs == 0 && tally_->rows_without_inputs > 0) {
      Mistrust(fmt::format("{}: {} rows", kNoQuerySeesAKey, tally_->rows_without_inputs));
      return;
    }
    if (rows.with_inputs > 0 && rows.showing == 0) {
      Mistrust(rows.blind == rows.with_inputs
                   ? fmt::format("blind: losing any input would show for 0 % of the inputs: beside "
                                 "the bound, all that a query sees has the same value, in all {} "
                                 "rows",
                                 rows.with_inputs)
                   : fmt::format("blind: losing any one input would show for 0 % of the inputs: "
                                 "each moves its row by less than the bound, in all {} rows",
                                 rows.with_inputs));
      return;
    }
    if (rows.blind > 0) verdict_.blind_where = BlindGroups();
  }

  void DecideMustSee(const std::vector<std::string>& must_see) {
    if (!verdict_.statistics || must_see.empty()) return;
    std::vector<std::string> unseen;
    for (const BlindSpot& spot : verdict_.statistics->blind_to) {
      const bool is_asked =
          std::find(must_see.begin(), must_see.end(), spot.direction) != must_see.end();
      if (spot.where.empty() && is_asked) unseen.push_back(spot.direction);
    }
    if (unseen.empty()) return;
    Mistrust(
        fmt::format("blind to what it must see: {}: neither an element nor a statistic would have "
                    "shown it",
                    Named(unseen)));
  }

  // The groups of which all rows are blind, where these are all the blind rows.
  std::string BlindGroups() const {
    std::vector<std::string> names;
    int64_t explained = 0;
    for (const auto& [group, rows] : tally_->rows_of_group) {
      if (rows.blind == 0 || rows.blind != rows.with_inputs) continue;
      explained += rows.blind;
      const auto index = static_cast<size_t>(group);
      names.push_back(index < info_.groups.size() ? info_.groups[index] : "");
    }
    if (explained != tally_->rows.blind) return "";
    return Named(std::move(names));
  }

  // What else the whole of the failing rows may be.
  void AddReadings(const OutputView& view, const JudgeOptions& options) {
    JudgeOptions plain = options;
    plain.explain = plain.strict = false;
    plain.rule = std::min(options.rule, Rule::kNoise);
    if (plain.sample_rows == 0) plain.sample_rows = kDeclaredRows;
    std::optional<Verdict> as_asked;
    const auto passes = [&](const ExpectedSource& source) {
      const Verdict read = Judge(source, view.observed, plain);
      // A declaration that lets anything pass says nothing of this answer.
      const OutputVerdict& own = read.outputs[static_cast<size_t>(output_)];
      if (own.outcome != Outcome::kPass || PassesAsZeros(own)) return false;
      // One kernel made all outputs: what still fails, or no longer proves anything, speaks against
      // the declaration.
      if (!as_asked) as_asked = Judge(view.source, view.observed, plain);
      for (size_t i = 0; i < read.outputs.size(); ++i) {
        const Outcome outcome = read.outputs[i].outcome;
        const bool stays = outcome == as_asked->outputs[i].outcome && outcome != Outcome::kFail;
        if (outcome != Outcome::kPass && !stays) return false;
      }
      verdict_.changes_rows = own.sample ? own.sample->rows : 0;
      verdict_.changes_of_rows = own.sample ? own.sample->of_rows : 0;
      return true;
    };
    for (const ExplainedReading& reading : ExplainingReadings(view, spans_, passes)) {
      if (reading.declared) {
        verdict_.plan_changes.push_back(*reading.declared);
        continue;
      }
      if (verdict_.cause.empty()) verdict_.cause = reading.name;
      verdict_.hints.push_back(fmt::format(
          "looks as if {}: so read, the failing rows are inside the bound", reading.text));
    }
  }

  void DropChanges() {
    verdict_.plan_changes.clear();
    verdict_.changes_rows = verdict_.changes_of_rows = 0;
  }

  // A cause that was put to the test on the rows themselves comes before what a bound allows.
  void NameSeen(const SeenKeys& seen) {
    if (!seen.cause.empty()) {
      // What was found of the same name says no more.
      if (verdict_.cause == seen.cause && !verdict_.hints.empty()) {
        verdict_.hints.erase(verdict_.hints.begin());
      }
      verdict_.cause = seen.cause;
      DropChanges();
      verdict_.hints.insert(verdict_.hints.begin(), HintOf(seen));
    } else if (verdict_.cause.empty() && verdict_.plan_changes.empty()) {
      verdict_.hints.push_back(HintOf(seen));
    }
  }

  // What the question may have left out: all outputs must pass, by the same rules.
  void AddCompletion(const OutputView& view, const JudgeOptions& options) {
    JudgeOptions plain = options;
    plain.explain = plain.strict = false;
    plain.must_see.clear();
    verdict_.passes_with =
        ExplainingCompletion(view, spans_, tally_->worst->report.element / info_.row_length,
                             [&](const ExpectedSource& source) {
                               return Judge(source, view.observed, plain).outcome == Outcome::kPass;
                             });
  }

  void Explain(const OutputView& view, const JudgeOptions& options) {
    if (!tally_->worst.has_value()) return;
    const WorstElement& worst = *tally_->worst;
    if (!info_.terms.empty()) verdict_.worst->terms = TermsAt(view, worst);
    if (verdict_.outcome != Outcome::kFail) return;
    AddCompletion(view, options);
    verdict_.seen = SeenKeysOf(view, failing_rows_);
    // Where another question is answered by all rows, nothing is left for free numbers to explain.
    if (verdict_.seen && !verdict_.passes_with.empty() && verdict_.seen->has_free_numbers) {
      verdict_.seen->has_free_numbers = false;
      verdict_.seen->cause.clear();
      verdict_.seen->text.clear();
    }
    // A named cause explains the rows exactly: another reading would say no more.
    const bool is_named = verdict_.seen && !verdict_.seen->cause.empty();
    if (tally_->counts.failed > 0 && !is_named) {
      verdict_.fits = FitDirections(view, spans_);
      AddReadings(view, options);
    }
    const DirectionFit* fit = verdict_.seen ? nullptr : BestFit(verdict_.fits);
    if (verdict_.seen) NameSeen(*verdict_.seen);
    if (tally_->counts.failed == 0) return;
    if (verdict_.cause.empty() && fit != nullptr) {
      // What is a fault by nearly all of the errors is no rounding that a plan left out; what a
      // plan explains wholly is no fault that half of them look like.
      const bool is_clear = fit->explained_share >= kClearShare;
      if (is_clear) DropChanges();
      if (is_clear || verdict_.plan_changes.empty()) {
        verdict_.cause = fit->direction;
        verdict_.hints.push_back(HintOf(*fit));
      }
    }
    verdict_.breakdown = DescribeFailures(*failures_, info_.shape, info_.row_length);
    const int64_t zeros = tally_->special.Of(PairKind::kZerosOfTwoSigns);
    if (info_.claim == Claim::kConformance && zeros == tally_->counts.failed) {
      // Rows of them are no garbage.
      std::erase_if(verdict_.breakdown,
                    [](const std::string& line) { return line.starts_with("garbage"); });
      verdict_.breakdown.push_back(
          "every element that fails is a zero of the other sign: the values are equal, the bytes "
          "are not");
      return;
    }
    for (std::string& line : DescribeLikeness(LoadWindow(view, spans_, worst.report.element))) {
      verdict_.breakdown.push_back(std::move(line));
    }
  }

  const OutputInfo& info_;
  const int output_;
  OutputVerdict verdict_;
  std::unique_ptr<OutputTally> tally_;  // absent when there is nothing to compare
  std::unique_ptr<FailureTally> failures_;
  FailingRowList failing_rows_;
  std::vector<TileSpan> spans_;
};

struct IndexedTally {
  int output;
  OutputTally tally;
};

void JudgeTiles(const ExpectedSource& expected, const ObservedSource& observed,
                const JudgeOptions& options, std::vector<OutputJudge>* outputs) {
  LadderOptions ladder;
  ladder.first = options.first_precision;
  ladder.highest = options.highest_precision;
  ladder.statistics = options.rule >= Rule::kStatistics;
  ladder.noise = options.rule >= Rule::kNoise;
  ladder.special = options.special;
  bool any = false;
  for (const OutputJudge& output : *outputs) {
    ladder.use.push_back(output.is_compared() ? 1 : 0);
    any = any || output.is_compared();
  }
  if (!any) return;
  OrderedParallelFor(
      expected.TileCount(), options.threads,
      [&](int64_t index) {
        std::vector<IndexedTally> tallies;
        for (const SettledTile& settled : Settle(expected, observed, ladder, index)) {
          const int output = settled.tile.output;
          const OutputInfo& info = (*outputs)[static_cast<size_t>(output)].info();
          tallies.push_back({output, TallyOf(info, settled, index)});
        }
        return tallies;
      },
      [&](int64_t, const std::vector<IndexedTally>& tallies) {
        for (const IndexedTally& tally : tallies) {
          (*outputs)[static_cast<size_t>(tally.output)].Merge(tally.tally);
        }
      });
}

}  // namespace

Verdict Judge(const ExpectedSource& whole, const ObservedSource& observed,
              const JudgeOptions& options) {
  std::optional<SampledSource> sampled;
  if (options.sample_rows > 0) {
    sampled.emplace(whole, options.sample_rows, options.sample_seed, kFalseAlarm);
  }
  const ExpectedSource& expected = sampled ? *sampled : whole;
  Verdict verdict;
  verdict.assumptions = expected.Assumptions();
  std::vector<OutputJudge> outputs;
  std::set<std::string> expected_names;
  for (const OutputInfo& info : expected.Outputs()) {
    OutputJudge output(info, static_cast<int>(outputs.size()));
    expected_names.insert(info.name);
    if (auto reason = Mismatch(info, observed)) {
      output.Refuse(*reason);
    } else {
      output.Accept();
      if (sampled) output.SetSample(sampled->reports()[outputs.size()]);
    }
    outputs.push_back(std::move(output));
  }
  JudgeTiles(expected, observed, options, &outputs);

  int64_t tests = 0;
  for (const OutputJudge& output : outputs) tests += output.StatisticsTests();
  for (OutputJudge& output : outputs) {
    // What failed is explained from the rows beside it, too.
    verdict.outputs.push_back(output.Finish(whole, observed, options, tests));
    const OutputVerdict& done = verdict.outputs.back();
    verdict.outcome = Combine(verdict.outcome, done.outcome);
    for (const std::string& reason : done.reasons) {
      verdict.reasons.push_back(fmt::format("{}: {}", done.name, reason));
    }
  }
  for (const std::string& name : observed.Names()) {
    if (expected_names.contains(name)) continue;
    verdict.outcome = Outcome::kFail;
    verdict.reasons.push_back(fmt::format("{}: not an output of this case", name));
  }
  if (outputs.empty()) {
    verdict.outcome = Combine(verdict.outcome, Outcome::kMistrusted);
    verdict.reasons.push_back("no tensor was selected: nothing was compared");
  }
  return verdict;
}

}  // namespace kvcheck
