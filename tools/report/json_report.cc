#include "tools/report/json_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/report/output_file.h"

namespace kvcheck {
namespace {

// Keeps the order in which fields are written.
using Json = nlohmann::ordered_json;

Json Number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value < 0 ? "-inf" : "inf";
}

Json Number(const std::optional<double>& value) { return value ? Number(*value) : Json(nullptr); }

std::string_view Name(Standpoint standpoint) {
  switch (standpoint) {
    case Standpoint::kPassed:
      return "passed";
    case Standpoint::kFailed:
      return "failed";
    case Standpoint::kMistrusted:
      return "mistrusted";
    case Standpoint::kExpectedMistrusted:
      return "expected_mistrusted";
    case Standpoint::kKnownFinding:
      return "known_finding";
    case Standpoint::kUnsupported:
      return "unsupported";
    case Standpoint::kIllegal:
      return "illegal";
  }
  return "";
}

Json CountsJson(const JudgeCounts& counts) {
  return {{"elements", counts.elements},
          {"judged", counts.judged},
          {"failed", counts.failed},
          {"failed_by_noise", counts.failed_by_noise},
          {"unconstrained", counts.unconstrained},
          {"undefined", counts.undefined},
          {"unbounded", counts.unbounded},
          {"free", counts.free},
          {"on_reference_bound", counts.on_reference_bound},
          {"unresolved", counts.unresolved},
          {"accepted", counts.accepted},
          {"left_out", counts.left_out},
          {"loose", counts.loose}};
}

Json WorstJson(const ElementReport& e) {
  Json terms = Json::array();
  for (const TermShare& term : e.terms) {
    terms.push_back(
        {{"name", term.name}, {"value", Number(term.value)}, {"share", Number(term.share)}});
  }
  return {{"element", e.element},           {"coordinates", e.coordinates},
          {"expected", Number(e.expected)}, {"expected_low", Number(e.expected_low)},
          {"got", Number(e.got)},           {"expected_text", e.expected_text},
          {"got_text", e.got_text},         {"error", Number(e.error)},
          {"bound", Number(e.bound)},       {"reference_bound", Number(e.reference_bound)},
          {"ratio", Number(e.ratio)},       {"precision", Name(e.precision)},
          {"terms", std::move(terms)}};
}

// Of a tensor that the first pass proved: what it did not measure is null.
Json BasicMetricsJson(const Metrics& m) {
  Json json = {{"finite", m.finite},           {"not_finite", m.not_finite},
               {"max_abs", Number(m.max_abs)}, {"rms_abs", Number(m.rms_abs)},
               {"max_rel", Number(m.max_rel)}, {"max_ulp", Number(m.max_ulp)}};
  for (const char* name : {"mean_abs", "mean_rel", "rms_rel", "ulp_histogram", "nmse", "cosine",
                           "snr_db", "bound_ratio", "expected_rms", "got_rms", "would_pass_at"}) {
    json[name] = nullptr;
  }
  return json;
}

Json MetricsJson(const Metrics& m) {
  Json histogram = Json::object();
  for (int cell = 0; cell < kUlpCells; ++cell) {
    const int64_t count = m.ulp_histogram[static_cast<size_t>(cell)];
    if (count > 0) histogram[UlpCellName(cell)] = count;
  }
  return {{"finite", m.finite},
          {"not_finite", m.not_finite},
          {"max_abs", Number(m.max_abs)},
          {"mean_abs", Number(m.mean_abs)},
          {"rms_abs", Number(m.rms_abs)},
          {"max_rel", Number(m.max_rel)},
          {"mean_rel", Number(m.mean_rel)},
          {"rms_rel", Number(m.rms_rel)},
          {"max_ulp", Number(m.max_ulp)},
          {"ulp_histogram", std::move(histogram)},
          {"nmse", Number(m.nmse)},
          {"cosine", Number(m.cosine)},
          {"snr_db", Number(m.snr_db)},
          {"bound_ratio",
           {{"q50", Number(m.bound_ratio.q50)},
            {"q90", Number(m.bound_ratio.q90)},
            {"q99", Number(m.bound_ratio.q99)},
            {"q100", Number(m.bound_ratio.q100)}}},
          {"expected_rms", Number(m.expected_rms)},
          {"got_rms", Number(m.got_rms)},
          {"would_pass_at",
           {{"ulp", Number(m.passing_ulp)},
            {"abs", Number(m.passing_abs)},
            {"rel", Number(m.passing_rel)},
            {"bounds", Number(m.passing_factor)}}}};
}

Json StatisticsJson(const StatisticsReport& s) {
  Json directions = Json::array();
  for (const DirectionStatistic& d : s.directions) {
    directions.push_back({{"group", d.group},
                          {"direction", d.direction},
                          {"z", Number(d.z)},
                          {"limit", Number(d.limit)},
                          {"coefficient", Number(d.coefficient)},
                          {"detectable", Number(d.detectable)},
                          {"rows", d.rows},
                          {"shown_rows", d.shown_rows},
                          {"over", d.over}});
  }
  Json blind_to = Json::array();
  for (const BlindSpot& spot : s.blind_to) {
    blind_to.push_back({{"direction", spot.direction}, {"where", spot.where}});
  }
  Json quadratics = Json::array();
  for (const QuadraticStatistic& q : s.quadratics) {
    quadratics.push_back({{"group", q.group},
                          {"direction", q.direction},
                          {"q", Number(q.q)},
                          {"limit", Number(q.limit)},
                          {"elements", q.elements},
                          {"detectable", Number(q.detectable)},
                          {"over", q.over}});
  }
  return {{"tests", s.tests},
          {"false_alarm", Number(s.false_alarm)},
          {"skipped_elements", s.skipped_elements},
          {"directions", std::move(directions)},
          {"quadratics", std::move(quadratics)},
          {"over", s.over},
          {"blind_to", std::move(blind_to)}};
}

Json SampleJson(const SampleReport& s) {
  return {{"rows", s.rows},         {"of_rows", s.of_rows},       {"at_ends", s.at_ends},
          {"at_edges", s.at_edges}, {"unusual", s.unusual},       {"at_random", s.at_random},
          {"seed", s.seed},         {"found_rows", s.found_rows}, {"missed", Number(s.missed)}};
}

Json ReasonsJson(const std::vector<ReasonCount>& reasons) {
  Json json = Json::array();
  for (const ReasonCount& reason : reasons) {
    json.push_back({{"reason", reason.reason}, {"elements", reason.elements}});
  }
  return json;
}

Json NumbersJson(const std::vector<double>& numbers) {
  Json json = Json::array();
  for (const double number : numbers) json.push_back(Number(number));
  return json;
}

Json SeenJson(const SeenKeys& seen) {
  Json tried = Json::array();
  for (const TriedCause& cause : seen.tried) {
    tried.push_back({{"name", cause.name},
                     {"text", cause.text},
                     {"explained", Number(cause.explained)},
                     {"misfit", Number(cause.misfit)}});
  }
  Json keys = Json::array();
  for (const WeightEstimate& key : seen.keys) {
    keys.push_back({{"first", key.first},
                    {"count", key.count},
                    {"change", Number(key.change)},
                    {"error", Number(key.error)},
                    {"z", Number(key.Z())}});
  }
  Json heads = Json::array();
  for (const HeadEstimates& head : seen.heads) {
    heads.push_back({{"batch", head.batch},
                     {"head", head.head},
                     {"queries", head.queries},
                     {"change", NumbersJson(head.change)},
                     {"error", NumbersJson(head.error)}});
  }
  return {{"kv_len", seen.kv_len},
          {"rows", seen.rows},
          {"elements", seen.elements},
          {"misfit", Number(seen.misfit)},
          {"cause", seen.cause},
          {"text", seen.text},
          {"explained", Number(seen.explained)},
          {"tried", std::move(tried)},
          {"keys", std::move(keys)},
          {"block", seen.block},
          {"heads", std::move(heads)}};
}

Json OutputJson(const OutputVerdict& output) {
  Json fits = Json::array();
  for (const DirectionFit& fit : output.fits) {
    fits.push_back({{"direction", fit.direction},
                    {"coefficient", Number(fit.coefficient)},
                    {"explained_share", Number(fit.explained_share)}});
  }
  Json rows_at = Json::object();
  for (int p = 0; p < kPrecisions; ++p) {
    rows_at[std::string(Name(static_cast<Precision>(p)))] = output.rows_at[static_cast<size_t>(p)];
  }
  return {{"name", output.name},
          {"outcome", Name(output.outcome)},
          {"reasons", output.reasons},
          {"rule", output.rule},
          {"dtype", kvcheck::Name(output.dtype)},
          {"shape", output.shape},
          {"counts", CountsJson(output.counts)},
          {"alternatives", ReasonsJson(output.alternatives)},
          {"not_judged", ReasonsJson(output.not_judged)},
          {"special", output.special_lines},
          {"worst", output.worst ? WorstJson(*output.worst) : Json(nullptr)},
          {"metrics",
           output.basic_metrics ? BasicMetricsJson(output.metrics) : MetricsJson(output.metrics)},
          {"median_bound_share", Number(output.median_bound_share)},
          {"detectable_share", Number(output.detectable_share)},
          {"rows_with_inputs", output.rows_with_inputs},
          {"blind_rows", output.blind_rows},
          {"blind_where", output.blind_where},
          {"by_bound_alone", output.by_bound_alone},
          {"decided_by", DecidedBy(output) ? Name(*DecidedBy(output)) : ""},
          {"rows_at", std::move(rows_at)},
          {"statistics", output.statistics ? StatisticsJson(*output.statistics) : Json(nullptr)},
          {"sample", output.sample ? SampleJson(*output.sample) : Json(nullptr)},
          {"warnings", output.warnings},
          {"fits", std::move(fits)},
          {"seen", output.seen ? SeenJson(*output.seen) : Json(nullptr)},
          {"cause", output.cause},
          {"passes_with", output.passes_with},
          {"hints", output.hints},
          {"plan_changes", Texts(output.plan_changes)},
          {"plan_changes_asked",
           output.changes_of_rows > 0
               ? Json{{"rows", output.changes_rows}, {"of_rows", output.changes_of_rows}}
               : Json(nullptr)},
          {"breakdown", output.breakdown}};
}

Json CaseJson(const CaseResult& result, bool strict) {
  const Verdict& verdict = result.verdict;
  Json outputs = Json::array();
  for (const OutputVerdict& output : verdict.outputs) outputs.push_back(OutputJson(output));
  return {{"name", result.name},
          {"case", verdict.case_text},
          {"outcome", Name(verdict.outcome)},
          {"expected_outcome", kvcheck::Name(result.expectation)},
          {"finding", result.finding},
          {"counts_as", Name(StandpointOf(result, strict))},
          {"outside", result.outside},
          {"reasons", verdict.reasons},
          {"outputs", std::move(outputs)},
          {"warnings", verdict.warnings},
          {"implementation", verdict.implementation},
          {"plan", verdict.plan},
          {"profile", verdict.profile},
          {"assumptions", verdict.assumptions},
          {"command", verdict.command}};
}

Json FindingsJson(const std::vector<CampaignFinding>& findings) {
  Json json = Json::array();
  for (const CampaignFinding& finding : findings) {
    json.push_back({{"signature", finding.signature},
                    {"outcome", Name(finding.outcome)},
                    {"reason", finding.reason},
                    {"cases", finding.cases},
                    {"first_case", finding.first_case},
                    {"shrunk", finding.shrunk},
                    {"unseen", finding.unseen}});
  }
  return json;
}

Json CampaignsJson(const std::vector<CampaignCounts>& campaigns) {
  Json json = Json::array();
  for (const CampaignCounts& campaign : campaigns) {
    Json probes = Json::object();
    for (const ProbeReach& probe : campaign.probes) probes[probe.name] = probe.reached;
    Json declined = Json::object();
    for (const DeclinedSteps& steps : campaign.declined) declined[steps.kind] = steps.count;
    json.push_back({{"kind", campaign.kind},
                    {"implementation", campaign.implementation},
                    {"version", campaign.version},
                    {"seed", campaign.seed},
                    {"cases", campaign.cases},
                    {"passed", campaign.passed},
                    {"failed", campaign.failed},
                    {"mistrusted", campaign.mistrusted},
                    {"unsupported", campaign.unsupported},
                    {"mistrusted_by_data", campaign.by_data},
                    {"known", campaign.known},
                    {"crashed", campaign.crashed},
                    {"timed_out", campaign.timed_out},
                    {"operations", campaign.operations},
                    {"states", campaign.states},
                    {"elements", campaign.elements},
                    {"declined", std::move(declined)},
                    {"left_open", campaign.left_open},
                    {"not_asked", campaign.not_asked},
                    {"probes", std::move(probes)},
                    {"must_reach", campaign.must_reach},
                    {"failures", FindingsJson(campaign.failures)},
                    {"unproved", FindingsJson(campaign.unproved)}});
  }
  return json;
}

Json TensorsJson(const std::optional<TensorCounts>& counts) {
  if (!counts) return nullptr;
  return {{"compared", counts->compared},
          {"bytes", counts->bytes},
          {"missing", counts->missing},
          {"extra", counts->extra},
          {"allowed_missing", counts->allowed_missing},
          {"allowed_extra", counts->allowed_extra},
          {"rules", counts->rules}};
}

std::string Dump(const Json& json) {
  // ASCII alone: other characters could act on the terminal that shows the report.
  return json.dump(1, ' ', true, Json::error_handler_t::replace);
}

// Of the array of cases, as the document has it.
std::string CaseJsonText(const CaseResult& result, bool strict, bool first) {
  std::string text = first ? "" : ",";
  const std::string dumped = Dump(CaseJson(result, strict));
  for (std::string_view left = dumped; !left.empty();) {
    const size_t end = std::min(left.find('\n'), left.size());
    text += "\n  ";
    text += left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return text;
}

// What stands before the cases.
std::string HeadText(const Summary& summary, bool strict, const std::string& tool) {
  int64_t by_data = 0;
  for (const CampaignCounts& campaign : summary.campaigns) by_data += campaign.by_data;
  const Json head = {{"schema", kJsonReportSchema},
                     {"tool", tool},
                     {"strict", strict},
                     {"summary",
                      {{"cases", summary.cases},
                       {"passed", summary.passed},
                       {"failed", summary.failed},
                       {"mistrusted", summary.mistrusted},
                       {"expected_mistrusted", summary.expected_mistrusted},
                       {"known_findings", summary.known_findings},
                       {"unsupported", summary.unsupported},
                       {"outside", summary.Outside()},
                       {"illegal", summary.illegal},
                       {"crashed", summary.crashed},
                       {"timed_out", summary.timed_out},
                       {"unmet", summary.unmet},
                       {"warnings", summary.warnings},
                       {"judged_elements", summary.judged},
                       {"interrupted", summary.interrupted},
                       {"tensors", TensorsJson(summary.tensors)},
                       {"campaigns", CampaignsJson(summary.campaigns)},
                       {"mistrusted_by_data", by_data},
                       {"notes", summary.notes},
                       {"patterns", summary.patterns},
                       {"exit_code", summary.ExitCode()}}}};
  std::string text = Dump(head);
  text.resize(text.size() - 2);  // "\n}"
  return text + ",\n \"cases\": [";
}

std::string TailText(bool has_cases) { return has_cases ? "\n ]\n}\n" : "]\n}\n"; }

}  // namespace

JsonReportWriter::JsonReportWriter(const std::string& path, bool strict, std::string tool)
    : path_(path), strict_(strict), tool_(std::move(tool)), cases_(path) {}

void JsonReportWriter::Add(const CaseResult& result) {
  cases_.Append(CaseJsonText(result, strict_, cases_.empty()));
}

void JsonReportWriter::Finish(const Summary& summary) {
  OutputFile file(path_);
  file.Write(HeadText(summary, strict_, tool_));
  cases_.Read([&](std::string_view part) { file.Write(part); });
  file.Write(TailText(!cases_.empty()));
  file.Commit();
}

std::string JsonReport(std::span<const CaseResult> results, const Summary& summary, bool strict,
                       const std::string& tool) {
  std::string text = HeadText(summary, strict, tool);
  for (size_t i = 0; i < results.size(); ++i) text += CaseJsonText(results[i], strict, i == 0);
  return text + TailText(!results.empty());
}

}  // namespace kvcheck
