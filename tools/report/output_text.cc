#include "tools/report/output_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "reference/judge/sampled_source.h"
#include "reference/spec/declared_change.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/plan.h"
#include "tools/report/number_text.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

constexpr size_t kLabelWidth = 12;
// Terms of a bound named one by one; the rest of a long sum explains nothing.
constexpr size_t kTermsNamed = 5;

bool IsComparedByCodes(const OutputVerdict& output) { return output.rule == "bytes equal"; }

std::string GotText(const ElementReport& e) {
  return e.got_text.empty() ? ValueText(e.got) : e.got_text;
}

std::string ExpectedText(const ElementReport& e) {
  return e.expected_text.empty() ? ValueText(e.expected) : e.expected_text;
}

// "7.5e-5 = output rounding 61 % + P rounding 22 % + 4 others 17 %"
std::string TermsText(const ElementReport& worst) {
  std::vector<std::string> parts;
  double others = 0;
  int64_t other_count = 0;
  for (const TermShare& term : worst.terms) {
    if (term.value == 0) continue;
    if (parts.size() < kTermsNamed) {
      parts.push_back(fmt::format("{} {}", term.name, PercentText(term.share)));
    } else {
      others += term.share;
      ++other_count;
    }
  }
  if (other_count > 0) {
    parts.push_back(fmt::format("{} {}", Plural(other_count, "other"), PercentText(others)));
  }
  std::string text = ErrorText(worst.bound);
  if (!parts.empty()) text += fmt::format(" = {}", fmt::join(parts, " + "));
  return text;
}

std::string CountsText(const OutputVerdict& output) {
  const JudgeCounts& counts = output.counts;
  std::string text = fmt::format("{} of {} judged elements fail", counts.failed, counts.judged);
  const std::pair<int64_t, const char*> others[] = {
      {counts.unconstrained, "unconstrained"},
      {counts.undefined, "undefined"},
      {counts.unbounded, "without a bound"},
      {counts.free, "free"},
      {counts.left_out, "not in the sample"},
      {counts.accepted, "accepted by a lower bound of their tolerance"},
      {counts.on_reference_bound, "within the reference's own error alone"},
      {counts.unresolved, "beyond the reference's precision"},
      {counts.loose, "not as expected within a tolerance above a tenth of the data"},
  };
  for (const auto& [count, label] : others) {
    if (count > 0) text += fmt::format(", {} {}", count, label);
  }
  return text;
}

std::string RuleText(const OutputVerdict& output) {
  std::string text = output.rule;
  std::vector<std::string> steps;
  for (int p = 0; p < kPrecisions; ++p) {
    const int64_t rows = output.rows_at[static_cast<size_t>(p)];
    if (rows > 0) {
      steps.push_back(
          fmt::format("{} in {}", Plural(rows, "row"), Name(static_cast<Precision>(p))));
    }
  }
  if (!steps.empty()) text += fmt::format("; decided {}", fmt::join(steps, ", "));
  if (output.median_bound_share > 0) {
    text += fmt::format("; the bound is {} of the data (median)",
                        PercentText(output.median_bound_share));
  }
  if (output.worst && output.worst->reference_bound > 0) {
    text += fmt::format("; the reference's own error adds at most {}",
                        ErrorText(output.worst->reference_bound));
  }
  return text;
}

// What was judged, and what a fault has as a chance to be missed.
std::string SampleText(const SampleReport& sample) {
  std::vector<std::string> groups;
  const std::pair<int64_t, const char*> parts[] = {
      {sample.at_ends, "first and last of a head"},
      {sample.at_edges, "at edges of query tiles"},
      {sample.unusual, "fully masked or beside padding"},
      {sample.at_random, "at random"},
  };
  for (const auto& [count, label] : parts) {
    if (count > 0) groups.push_back(fmt::format("{} {}", count, label));
  }
  std::vector<std::string> chances;
  for (const auto& [faulty, label] : {std::pair<int64_t, const char*>{1, "1 row"},
                                      {sample.of_rows / 1000, "0.1 % of the rows"},
                                      {sample.of_rows / 100, "1 %"}}) {
    if (faulty == 0) continue;
    chances.push_back(fmt::format("{}: {}", label, RatioText(ChanceToMiss(sample, faulty))));
  }
  return fmt::format(
      "{} of {} rows: {}; seed {}\nchance to miss a fault in {}\n"
      "at most {} where {} rows or more are faulty",
      sample.rows, sample.of_rows, fmt::join(groups, ", "), sample.seed,
      fmt::join(chances, ", in "), ErrorText(sample.missed), sample.found_rows);
}

std::vector<std::string> ReasonLines(const std::vector<ReasonCount>& reasons) {
  std::vector<std::string> lines;
  for (const ReasonCount& reason : reasons) {
    lines.push_back(fmt::format("{} elements: {}", reason.elements, reason.reason));
  }
  return lines;
}

// "0: 4090, 1: 5, 3-4: 1"
std::string HistogramText(const Metrics& m) {
  std::vector<std::string> cells;
  for (int cell = 0; cell < kUlpCells; ++cell) {
    const int64_t count = m.ulp_histogram[static_cast<size_t>(cell)];
    if (count > 0) cells.push_back(fmt::format("{}: {}", UlpCellName(cell), count));
  }
  return fmt::format("{}", fmt::join(cells, ", "));
}

std::vector<std::string> MetricsLines(const OutputVerdict& output) {
  const Metrics& m = output.metrics;
  std::vector<std::string> lines;
  if (m.finite == 0) return lines;
  if (output.basic_metrics) {
    lines.push_back(fmt::format("error max {}, RMS {}; relative max {}; {} ulp",
                                ErrorText(m.max_abs), ErrorText(m.rms_abs), ErrorText(m.max_rel),
                                RatioText(m.max_ulp)));
    return lines;
  }
  lines.push_back(fmt::format("error max {}, mean {}, RMS {}; relative max {}, RMS {}; {} ulp",
                              ErrorText(m.max_abs), ErrorText(m.mean_abs), ErrorText(m.rms_abs),
                              ErrorText(m.max_rel), ErrorText(m.rms_rel), RatioText(m.max_ulp)));
  std::string line;
  if (m.cosine) line += fmt::format("cosine {}, ", RatioText(*m.cosine));
  if (m.snr_db) line += fmt::format("SNR {} dB, ", RatioText(*m.snr_db));
  line += fmt::format("RMS {} expected, {} got", ErrorText(m.expected_rms), ErrorText(m.got_rms));
  lines.push_back(line);
  if (!IsComparedByCodes(output)) {
    lines.push_back(fmt::format("error / tolerance: median {}, 90 % {}, 99 % {}, largest {}",
                                RatioText(m.bound_ratio.q50), RatioText(m.bound_ratio.q90),
                                RatioText(m.bound_ratio.q99), RatioText(m.bound_ratio.q100)));
  }
  // Where no error is allowed, how large the errors are says whether a tolerance would be honest.
  if (IsComparedByCodes(output) && output.counts.failed > 0 && IsFloat(output.dtype)) {
    lines.push_back("ulp: elements  " + HistogramText(m));
  }
  if (m.not_finite > 0) {
    lines.push_back(fmt::format("{} failing pairs are not finite and in no average", m.not_finite));
  }
  return lines;
}

std::vector<std::string> StatisticsLines(const StatisticsReport& statistics) {
  std::vector<std::string> lines = statistics.over;
  if (lines.empty()) {
    lines.push_back(fmt::format("{} statistics, none over its limit (false alarms: {} per case)",
                                statistics.directions.size() + statistics.quadratics.size(),
                                ErrorText(statistics.false_alarm)));
  }
  // Per direction: the multiple of the fault that the best group would have shown.
  std::vector<std::string> order;
  std::map<std::string, double> smallest;
  for (const DirectionStatistic& d : statistics.directions) {
    const auto [found, added] = smallest.emplace(d.direction, d.detectable);
    if (added) order.push_back(d.direction);
    found->second = std::min(found->second, d.detectable);
  }
  for (const std::string& direction : order) {
    const double size = smallest.at(direction);
    lines.push_back(std::isfinite(size)
                        ? fmt::format("{}: {} x the fault would be seen in one group", direction,
                                      RatioText(size))
                        : fmt::format("{}: has no effect here, nothing would be seen", direction));
  }
  return lines;
}

// A plan's text as its reader may know it: the name, and that fields differ from the known one.
std::string PlanName(const std::string& text) {
  try {
    const Plan plan = ParsePlan(text);
    if (plan.name.empty()) return "the declared plan";
    if (FindKnownPlan(plan.name) == nullptr) return "plan " + plan.name;
    const bool is_whole = ParsePlan("base=" + plan.name) == plan;
    return fmt::format("plan {}{}", plan.name, is_whole ? "" : " with changes");
  } catch (const Error&) {
    return "plan " + text;
  }
}

// "P were rounded to bf16 (p=bf16 instead of p=f32)"; beside others, without what was said before.
std::string MeaningText(const DeclaredChange& change, bool is_one) {
  std::vector<std::string> meanings;
  for (const DeclaredWord& word : change.words) meanings.push_back(word.meaning);
  return fmt::format("{} ({})", fmt::join(meanings, " and "),
                     is_one ? Print(change) : PrintValues(change));
}

}  // namespace

std::string WorstSentence(const OutputVerdict& output) {
  if (!output.worst) return "";
  const ElementReport& e = *output.worst;
  std::string text = fmt::format("{}{}: got {}, expected {}", output.name, e.coordinates,
                                 GotText(e), ExpectedText(e));
  if (IsComparedByCodes(output) || !std::isfinite(e.error)) return text;
  if (e.bound + e.reference_bound == 0) {
    return text + fmt::format(", error {}, none is allowed", ErrorText(e.error));
  }
  return text + fmt::format(", error {} is {} x the bound {}", ErrorText(e.error),
                            RatioText(e.ratio), ErrorText(e.bound));
}

// Faults that would have been seen nowhere.
std::vector<std::string> UnseenAnywhere(const OutputVerdict& output) {
  std::vector<std::string> names;
  if (!output.statistics) return names;
  for (const BlindSpot& spot : output.statistics->blind_to) {
    if (spot.where.empty()) names.push_back(spot.direction);
  }
  return names;
}

std::string PassSentence(const OutputVerdict& output) {
  const JudgeCounts& counts = output.counts;
  std::string text = counts.judged < counts.elements
                         ? fmt::format("{} of {} elements judged", counts.judged, counts.elements)
                         : Plural(counts.judged, "element");
  if (output.worst && output.worst->bound > 0) {
    text += fmt::format(", worst {} x the bound", RatioText(output.worst->ratio));
  }
  if (output.sample) {
    text += fmt::format(", a sample of {} of {} rows that misses a fault in {} rows by at most {}",
                        output.sample->rows, output.sample->of_rows, output.sample->found_rows,
                        ErrorText(output.sample->missed));
  }
  for (const Precision precision : {Precision::kOracle50, Precision::kOracle100}) {
    const int64_t rows = output.rows_at[static_cast<size_t>(precision)];
    if (rows > 0) text += fmt::format(", {} in {}", Plural(rows, "row"), Name(precision));
  }
  if (output.blind_rows > 0) {
    text += fmt::format(", blind to lost inputs in {} of {}{}", output.blind_rows,
                        Plural(output.rows_with_inputs, "row"),
                        output.blind_where.empty() ? "" : fmt::format(" ({})", output.blind_where));
  }
  if (output.by_bound_alone) text += ", by the proven bound alone";
  const std::vector<std::string> unseen = UnseenAnywhere(output);
  if (!unseen.empty()) text += fmt::format(", blind to: {}", fmt::join(unseen, ", "));
  return text;
}

std::string Labelled(std::string_view label, std::string_view text) {
  std::string result;
  bool first = true;
  while (first || !text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    result += fmt::format("  {:<{}} {}\n", first ? label : "", kLabelWidth,
                          NameText(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    first = false;
  }
  return result;
}

std::string LabelledList(std::string_view label, const std::vector<std::string>& lines,
                         const TextOptions& options) {
  if (lines.empty()) return "";
  const auto most = static_cast<size_t>(std::max<int64_t>(options.max_print, 1));
  std::string text;
  for (size_t i = 0; i < std::min(most, lines.size()); ++i) {
    text += (i == 0 ? "" : "\n") + NameText(lines[i]);
  }
  if (lines.size() > most) {
    text += fmt::format("\n... and {} more (--max-print)", lines.size() - most);
  }
  return Labelled(label, text);
}

std::string LabelledLine(std::string_view label, const std::vector<std::string>& lines,
                         const TextOptions& options) {
  if (options.verbose || lines.empty()) return LabelledList(label, lines, options);
  const auto most = static_cast<size_t>(std::max<int64_t>(options.max_print, 1));
  std::string text = fmt::format(
      "{}",
      fmt::join(lines.begin(),
                lines.begin() + static_cast<std::ptrdiff_t>(std::min(most, lines.size())), "; "));
  if (lines.size() > most) {
    text += fmt::format("; ... and {} more (--max-print)", lines.size() - most);
  }
  return fmt::format("  {:<{}} {}\n", label, kLabelWidth, NameText(text));
}

std::string PassesWith(const Verdict& verdict) {
  if (verdict.outcome != Outcome::kFail) return "";
  for (const OutputVerdict& output : verdict.outputs) {
    if (!output.passes_with.empty()) return output.passes_with;
  }
  return "";
}

std::vector<std::string> HintLines(const OutputVerdict& output) {
  std::vector<const DeclaredChange*> of_plan, of_profile;
  for (const DeclaredChange& change : output.plan_changes) {
    (change.of_profile ? of_profile : of_plan).push_back(&change);
  }
  const std::string sampled =
      output.changes_of_rows > 0
          ? fmt::format(" in {} of {} rows", output.changes_rows, output.changes_of_rows)
          : "";
  std::vector<std::string> hints = output.hints;
  if (!of_plan.empty()) {
    constexpr size_t kNamed = 4;
    const size_t count = of_plan.size();
    std::vector<std::string> meanings;
    for (size_t i = 0; i < std::min(count, kNamed); ++i) {
      meanings.push_back(MeaningText(*of_plan[i], count == 1));
    }
    hints.push_back(fmt::format(
        "passes{} if {}{}: declare it only if your kernel does that", sampled,
        fmt::join(meanings, ", or if "),
        count > kNamed ? fmt::format(", or with {} other words of the plan", count - kNamed) : ""));
  }
  if (!of_profile.empty()) {
    std::vector<std::string> words;
    for (const DeclaredChange* change : of_profile) {
      words.push_back(of_profile.size() == 1 ? Print(*change) : PrintValues(*change));
    }
    hints.push_back(fmt::format(
        "would pass{} if the profile said {}; declare that only of a kernel that does so", sampled,
        fmt::join(words, ", or ")));
  }
  return hints;
}

std::string BoundLines(const OutputVerdict& output, const Verdict& verdict) {
  if (output.counts.elements == 0) return "";
  std::string rule = output.rule;
  if (!verdict.plan.empty()) rule += " under " + PlanName(verdict.plan);
  // Of stored codes what was assumed is a line of its own.
  if (!verdict.plan.empty() && !verdict.assumptions.empty()) {
    rule +=
        fmt::format(", of which {} {} assumed", Plural(std::ssize(verdict.assumptions), "field"),
                    verdict.assumptions.size() == 1 ? "is" : "are");
  }
  if (!output.worst || IsComparedByCodes(output) || output.worst->bound == 0) {
    return Labelled("rule", rule);
  }
  if (output.median_bound_share > 0) {
    rule += fmt::format("; {} of the data (median)", PercentText(output.median_bound_share));
  }
  return Labelled("bound", TermsText(*output.worst) + "; " + rule);
}

std::vector<std::string> WarningLines(const OutputVerdict& output) { return output.warnings; }

std::string OutputDetails(const OutputVerdict& output, bool is_decisive,
                          const TextOptions& options) {
  const bool failed = output.counts.failed > 0;
  std::string text =
      Labelled("output", fmt::format("{}  {}  {} {}", output.name, Name(output.outcome),
                                     Name(output.dtype), output.shape));
  if (output.counts.elements == 0) return text + LabelledList("because", output.reasons, options);
  text += Labelled("counts", CountsText(output));
  text += Labelled("rule", RuleText(output));
  if (output.sample) text += Labelled("sample", SampleText(*output.sample));
  if (output.worst && !IsComparedByCodes(output)) {
    const bool is_shown = is_decisive && output.outcome == Outcome::kFail && failed;
    if (!is_shown) text += Labelled("worst", WorstSentence(output));
    if (!is_decisive && output.worst->bound > 0) {
      text += Labelled("bound", TermsText(*output.worst));
    }
  }
  text += LabelledList("accepted", ReasonLines(output.alternatives), options);
  text += LabelledList("not judged", ReasonLines(output.not_judged), options);
  if (!is_decisive) text += LabelledList("where", output.breakdown, options);
  if (failed) {
    for (const HeatMap* map : {&output.heat.heads_by_token, &output.heat.rows_by_channel}) {
      // A map is one picture; it is not cut at max_print lines.
      const std::vector<std::string> lines = Render(*map, options.blocks);
      if (!lines.empty()) text += Labelled("map", fmt::format("{}", fmt::join(lines, "\n")));
    }
  }
  text += LabelledList("special", output.special_lines, options);
  text += LabelledList("metrics", MetricsLines(output), options);
  if (output.statistics) {
    text += LabelledList("statistics", StatisticsLines(*output.statistics), options);
  }
  if (output.detectable_share) {
    text += Labelled("sensitivity", fmt::format("losing one input would show for {} of the inputs",
                                                PercentText(*output.detectable_share)));
  }
  return text;
}

}  // namespace kvcheck
