// What two dumps have in common, for a reader and for programs.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/agree/agree_text.h"
#include "tools/agree/compare_dumps.h"
#include "tools/agree/figures_json.h"
#include "tools/report/tool_version.h"

namespace kvcheck {

std::string DumpText(const DumpQuestion& question, const DumpReport& report) {
  const AgreementFigures& f = report.figures;
  std::string text = fmt::format("gold  {}\n      {}\ngot   {}\n      {}\n", question.gold,
                                 report.gold, question.got, report.got);
  const char* bound = report.is_lower_bound ? "at least " : "";
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", name, value);
  };
  line("positions", std::to_string(f.positions));
  line("top-1", fmt::format("{:.2f} % [{:.2f}, {:.2f}]", 100 * f.top1.value, 100 * f.top1.low,
                            100 * f.top1.high));
  line("KL mean", fmt::format("{}{:.3g} [{:.3g}, {:.3g}] nats", bound, f.kl_mean.value,
                              f.kl_mean.low, f.kl_mean.high));
  line("KL", fmt::format("median {:.3g}, 99 % {:.3g}, max {:.3g}", f.kl_median.value, f.kl_99.value,
                         f.kl_max));
  if (report.has_next) {
    line("perplexity", fmt::format("{:.4f} [{:.4f}, {:.4f}] times that of gold, {:.4f} bits per "
                                   "token",
                                   f.perplexity_ratio.value, f.perplexity_ratio.low,
                                   f.perplexity_ratio.high, f.reference_bits));
  }
  line("largest",
       fmt::format("{:.3g} nats, of a token that gold puts first or second", report.largest));
  if (report.noise) {
    line("noise", fmt::format("{:.3g} nats, between gold and its repetition", *report.noise));
  }
  line("flips", fmt::format("{}, excused {}", report.flips.size(), report.excused));
  text += std::string(Name(report.outcome));
  if (!report.why.empty()) text += ": " + report.why;
  return text + "\n";
}

std::string DumpJson(const DumpQuestion& question, const DumpReport& report) {
  OrderedJson json = {{"schema", kAgreeSchema},
                      {"tool", ToolVersion()},
                      {"command", "agree --logits"},
                      {"gold", {{"path", question.gold}, {"dump", report.gold}}},
                      {"got", {{"path", question.got}, {"dump", report.got}}},
                      {"outcome", Name(report.outcome)},
                      {"why", report.why},
                      {"figures", FiguresJson(report.figures)},
                      {"kl_is_lower_bound", report.is_lower_bound},
                      {"text_is_known", report.has_next},
                      {"largest", FigureJson(report.largest)}};
  json["noise"] = report.noise ? FigureJson(*report.noise) : OrderedJson(nullptr);
  json["not_finite"] = report.not_finite;
  json["excused"] = report.excused;
  json["undecided"] = report.undecided;
  json["flips"] = OrderedJson::array();
  for (const DumpFlip& flip : report.flips) {
    json["flips"].push_back({{"position", flip.position},
                             {"expected", flip.expected},
                             {"got", flip.got},
                             {"margin", FigureJson(flip.margin)},
                             {"at_least", flip.at_least},
                             {"allowed", FigureJson(flip.allowed)},
                             {"excused", flip.excused()}});
  }
  return Written(json);
}

}  // namespace kvcheck
