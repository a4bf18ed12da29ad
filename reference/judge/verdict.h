// What the judge says about a case, as plain data: nothing here prints or decides.

#ifndef REFERENCE_JUDGE_VERDICT_H_
#define REFERENCE_JUDGE_VERDICT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/heat_map.h"
#include "reference/judge/hints.h"
#include "reference/judge/metrics.h"
#include "reference/judge/special_values.h"
#include "reference/judge/statistics.h"
#include "reference/spec/declared_change.h"
#include "reference/spec/seen_keys.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

enum class Outcome : uint8_t {
  kPass,
  kFail,
  kMistrusted,   // nothing was proved
  kUnsupported,  // the implementation declined
  kIllegalCase,
  kCrashed,
  kTimedOut,
};

// "PASS", "FAIL", "MISTRUSTED", ...
std::string_view Name(Outcome outcome);

// By what an output fails. Each rule is all of the one before it, and more; those of statistics are
// for sources that have a model of random roundings, of any other all are one.
enum class Rule : uint8_t {
  kBound,       // what no right kernel exceeds
  kNoise,       // and of an element what roundings of random phase exceed with a stated probability
                // (reference/attention/bound.md, section 5)
  kStatistics,  // and sums over many elements, along what named faults would do (section 4)
};

// "bound", "noise", "statistics".
std::string_view Name(Rule rule);
std::optional<Rule> ParseRule(std::string_view name);

inline constexpr int kPrecisions = 4;
// "double", "double-double", "50 digits", "100 digits".
std::string_view Name(Precision precision);

struct TermShare {
  std::string name;
  double value = 0;
  double share = 0;  // of the bound
  bool operator==(const TermShare&) const = default;
};

// One element, as the report shows it.
struct ElementReport {
  int64_t element = 0;      // linear index in the output
  std::string coordinates;  // "[b=1, hq=3, l=0, dv=17]"
  double expected = 0;
  double expected_low = 0;  // what expected leaves out
  double got = 0;
  std::string expected_text;  // with the code where codes are compared
  std::string got_text;       // the value and its code
  double error = 0;           // got - expected
  double bound = 0;
  double reference_bound = 0;
  double mass = 0;
  double ratio = 0;  // |error| / (bound + reference_bound)
  std::vector<TermShare> terms;
  Precision precision = Precision::kDouble;
  bool operator==(const ElementReport&) const = default;
};

struct ReasonCount {
  std::string reason;
  int64_t elements = 0;
  bool operator==(const ReasonCount&) const = default;
};

// Which rows of an output were judged, where not all of them were (sampled_source.h).
struct SampleReport {
  int64_t rows = 0;      // judged
  int64_t of_rows = 0;   // that the output has
  int64_t at_ends = 0;   // of rows: first and last ones of a head
  int64_t at_edges = 0;  // at multiples of the sizes that kernels cut queries into
  int64_t unusual = 0;   // queries of padding, fully masked ones
  int64_t at_random = 0;
  uint64_t seed = 0;
  // The fewest faulty rows, wherever they are, of which none is judged with a probability of at
  // most missed.
  int64_t found_rows = 0;
  double missed = 0;
  bool operator==(const SampleReport&) const = default;
};

struct JudgeCounts {
  int64_t elements = 0;
  int64_t judged = 0;  // by a difference, a special value or an alternative
  int64_t failed = 0;
  int64_t failed_by_noise = 0;     // of these, inside the proven bound (JudgeOptions::noise)
  int64_t unconstrained = 0;       // nothing is promised
  int64_t undefined = 0;           // no value is defined
  int64_t unbounded = 0;           // nothing can be proved
  int64_t free = 0;                // every value is allowed
  int64_t on_reference_bound = 0;  // pass only thanks to the reference's own bound
  int64_t unresolved = 0;  // the reference's own bound stayed too large beside the tolerance
  int64_t left_out = 0;    // not in the sample
  int64_t loose = 0;       // of a chosen tolerance: not as expected, and the tolerance is more than
                           // kVacuousShare of the data
  // Of judged: of rows that passed by a lower bound of their tolerance. How large their errors are
  // beside the tolerance is not known: no ratio, no worst element has them.
  int64_t accepted = 0;
  bool operator==(const JudgeCounts&) const = default;
};

struct OutputVerdict {
  std::string name;
  Outcome outcome = Outcome::kPass;
  std::vector<std::string> reasons;  // why not PASS
  std::string rule;                  // "derived bound", "bytes equal", "ulp:2"
  DType dtype = DType::kFloat32;
  std::string shape;
  JudgeCounts counts;
  std::vector<ReasonCount> alternatives;  // elements accepted as an alternative
  std::vector<ReasonCount> not_judged;    // rows' elements by reason
  SpecialCounts special;
  std::vector<std::string> special_lines;
  std::optional<ElementReport> worst;  // absent when nothing was judged
  Metrics metrics;
  // Of metrics, finite, max_abs, max_rel, max_ulp and rms_abs alone were measured: by the first
  // pass, which proved that every element passes.
  bool basic_metrics = false;
  double median_bound_share = 0;           // of bound / mass; above kVacuousShare proves nothing
  int64_t with_share = 0;                  // judged elements that have a bound / mass
  int64_t pass_as_zero = 0;                // of these: 0 is inside the bound, and not expected
  std::optional<double> detectable_share;  // mean share of inputs whose loss would show
  // Judged rows that have inputs; of these the ones in which no loss of inputs would show; and the
  // groups that these are ("b=0 hq=1"), where they are whole groups.
  int64_t rows_with_inputs = 0;
  int64_t blind_rows = 0;
  std::string blind_where;
  std::optional<StatisticsReport> statistics;
  // By Rule::kBound, of an output for which there are statistics.
  bool by_bound_alone = false;
  std::optional<SampleReport> sample;  // absent: all rows were judged
  std::vector<std::string> warnings;
  std::vector<DirectionFit> fits;  // of a failing output, by explained share
  std::optional<SeenKeys> seen;    // likewise, of sources that know their keys
  std::string cause;               // name of the probable one; empty: none is known
  // What the case may have left out: under it all outputs pass. "softcap=30", "sinks=f32 (/sinks of
  // the file is not in the case)"; empty: nothing that was tried.
  std::string passes_with;
  std::vector<std::string> hints;  // the probable cause, in a sentence
  // Declared values under whose change all of the output would pass, cheapest first.
  std::vector<DeclaredChange> plan_changes;
  // Rows in which that was asked, and of how many, where they are a sample; 0: of all.
  int64_t changes_rows = 0;
  int64_t changes_of_rows = 0;
  std::vector<std::string> breakdown;          // where and what the failures are
  HeatMaps heat;                               // Render() makes text of it
  std::array<int64_t, kPrecisions> rows_at{};  // rows decided at each Precision
  Precision precision = Precision::kDouble;    // the highest one that was needed
  bool operator==(const OutputVerdict&) const = default;
};

// By which rule an output fails that was compared: the first one that is enough; nullopt: by none.
std::optional<Rule> DecidedBy(const OutputVerdict& output);

// Whether most elements would pass as zeros. An answer that has nothing to do with what is expected
// is off by as much as that in most elements, at least: where that is inside the bound any such
// answer passes, and that this one passes says nothing of it.
bool PassesAsZeros(const OutputVerdict& output);

struct Verdict {
  Outcome outcome = Outcome::kPass;
  std::vector<std::string> reasons;
  std::vector<OutputVerdict> outputs;
  int64_t elements = 0;  // judged beside those of outputs: attention of a trace
  // Of a case of operations: the first reason names the one that decided, an output is its answer.
  bool of_operations = false;
  std::vector<std::string> warnings;
  std::vector<std::string> assumptions;
  // Filled by the caller.
  std::string case_text;
  std::string plan;
  std::string profile;
  std::string implementation;
  std::string command;  // reproduces this verdict
  bool operator==(const Verdict&) const = default;
};

// For cases which the judge never saw: UNSUPPORTED, CRASHED, ...
Verdict WithoutJudging(Outcome outcome, std::string reason);

// FAIL beats MISTRUSTED beats PASS.
Outcome Combine(Outcome a, Outcome b);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_VERDICT_H_
