// What dumps have in common, for a reader and for programs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/agree/compare_dumps.h"
#include "tools/agree/figures_json.h"
#include "tools/agree/figures_text.h"
#include "tools/agree/token_texts.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

// What was found, before everything else; what it does not say is said there too.
std::string FirstLine(const DumpQuestion& common, const DumpsReport& all) {
  const Outcome outcome = all.outcome();
  std::string line(Name(outcome));
  if (!common.judge && outcome == Outcome::kPass) {
    line = "MEASURED: figures and no verdict, which --judge asks for";
  } else if (outcome == Outcome::kPass && !common.JudgesProbabilities()) {
    line +=
        ", top-1 only: no error of a log-probability was stated (--logit-error), so that no "
        "probability was judged";
  } else if (common.judge && !common.JudgesProbabilities()) {
    line += " (top-1 only)";
  }
  if (all.reports.size() == 1 && outcome != Outcome::kPass) {
    line += ": " + all.reports.front().why;
  }
  if (all.interrupted) line = "INTERRUPTED, this report is partial; so far " + line;
  return line + "\n";
}

std::string NameOf(const GotDump& got) { return got.cache.empty() ? got.path : got.cache; }

std::string BitsText(const GotDump& got) {
  return got.bits ? fmt::format("{:.4g}", *got.bits) : "";
}

std::string TopText(const AgreementFigures& f) {
  std::string text = Percent(f.top1);
  if (f.top1_positions < f.positions) {
    text += fmt::format(" of the {} positions that list it", f.top1_positions);
  }
  return text;
}

std::string KlText(const DumpReport& report) {
  return (report.is_lower_bound ? "at least " : "") + Range(report.figures.kl_mean);
}

// One dump, a figure a line.
std::string Lines(const DumpReport& report) {
  const AgreementFigures& f = report.figures;
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", name, value);
  };
  line("positions", std::to_string(f.positions));
  line("top-1", TopText(f));
  line("KL mean", KlText(report) + " nats");
  line("KL", fmt::format("median {:.3g}, 99 % {:.3g}, max {:.3g}", f.kl_median.value, f.kl_99.value,
                         f.kl_max));
  if (report.has_next) {
    line("perplexity", fmt::format("{} times that of gold, {:.4f} bits per token",
                                   Ratio(f.perplexity_ratio), f.reference_bits));
  }
  line("largest",
       fmt::format("{:.3g} nats, of a token that gold puts first or second", report.largest));
  if (report.noise) {
    line("noise", fmt::format("{:.3g} nats, between gold and its repetition: top-1 {}, KL mean {}",
                              *report.noise, Percent(report.noise_figures.top1),
                              Range(report.noise_figures.kl_mean)));
  }
  return text;
}

// Several dumps, a row each. The noise is a row of its own: what one engine changes by itself.
std::string TableOf(const DumpsReport& all) {
  const bool has_verdicts =
      std::any_of(all.reports.begin(), all.reports.end(), [](const DumpReport& one) {
        return one.judged || one.interrupted || one.outcome != Outcome::kPass;
      });
  FiguresTable table;
  const auto add = [&](std::vector<std::string> row, const std::string& verdict) {
    if (has_verdicts) row.push_back(verdict);
    table.Add(std::move(row));
  };
  const auto figures = [](const std::string& name, const std::string& bits, bool is_lower_bound,
                          const AgreementFigures& f, bool has_next) {
    return std::vector<std::string>{name,
                                    bits,
                                    Percent(f.top1),
                                    (is_lower_bound ? ">= " : "") + Range(f.kl_mean),
                                    Figure(f.kl_median.value),
                                    Figure(f.kl_99.value),
                                    Figure(f.kl_max),
                                    has_next ? Ratio(f.perplexity_ratio) : ""};
  };
  add({"cache", "bits", "top-1", "KL mean", "KL median", "KL 99 %", "KL max", "perplexity", "flips",
       "largest"},
      "verdict");
  if (!all.reports.empty() && all.reports.front().noise) {
    const DumpReport& any = all.reports.front();
    std::vector<std::string> row =
        figures("gold again", "", any.is_lower_bound, any.noise_figures, any.noise_has_next);
    row.insert(row.end(), {"", Figure(*any.noise)});
    add(row, "");
  }
  for (size_t i = 0; i < all.reports.size(); ++i) {
    const DumpReport& one = all.reports[i];
    std::vector<std::string> row = figures(NameOf(all.gots[i]), BitsText(all.gots[i]),
                                           one.is_lower_bound, one.figures, one.has_next);
    row.insert(row.end(), {std::to_string(one.flips.size()), Figure(one.largest)});
    const bool is_measured = !one.judged && one.outcome == Outcome::kPass;
    add(row, one.interrupted ? "interrupted"
             : is_measured   ? "measured"
                             : std::string(Name(one.outcome)));
  }
  return table.Text();
}

std::string FlipsLine(const DumpReport& report) {
  if (!report.judged) {
    return fmt::format("{}, of them {} within what the files round", report.flips.size(),
                       report.excused);
  }
  std::string text = fmt::format("{}, excused {}", report.flips.size(), report.excused);
  if (report.judged_probabilities) {
    text += fmt::format("; positions with a log-probability beyond what is explained: {}",
                        report.changed);
  }
  return text;
}

OrderedJson ChangeJson(const std::optional<DumpChange>& change) {
  if (!change) return nullptr;
  const OrderedJson token = IsTextToken(change->token) ? OrderedJson(TokenName(change->token))
                                                       : OrderedJson(change->token);
  return {{"position", change->position},
          {"token", token},
          {"expected", FigureJson(change->expected)},
          {"got", FigureJson(change->got)},
          {"allowed", FigureJson(change->allowed)}};
}

OrderedJson TokenJson(int64_t token) {
  return IsTextToken(token) ? OrderedJson(TokenName(token)) : OrderedJson(token);
}

OrderedJson GotJson(const GotDump& got, const DumpReport& report) {
  const bool is_measured = !report.judged && report.outcome == Outcome::kPass;
  OrderedJson json = {{"path", got.path},
                      {"dump", report.got_dump},
                      {"cache", got.cache},
                      {"bits_per_element", got.bits ? OrderedJson(*got.bits) : OrderedJson()},
                      {"outcome", is_measured ? "MEASURED" : Name(report.outcome)},
                      {"why", report.why},
                      {"interrupted", report.interrupted},
                      {"notes", report.notes},
                      {"figures", FiguresJson(report.figures)},
                      {"kl_is_lower_bound", report.is_lower_bound},
                      {"text_is_known", report.has_next},
                      {"largest", FigureJson(report.largest)},
                      {"rounding", FigureJson(report.rounding)}};
  json["not_finite"] = report.not_finite;
  json["top_unknown"] = report.top_unknown;
  json["decided"] = report.decided;
  json["flat"] = report.flat;
  json["excused"] = report.excused;
  json["undecided"] = report.undecided;
  json["probabilities"] = {{"judged", report.judged_probabilities},
                           {"positions_beyond", report.changed},
                           {"first", ChangeJson(report.first_change)}};
  json["flips"] = OrderedJson::array();
  for (const DumpFlip& flip : report.flips) {
    json["flips"].push_back({{"position", flip.position},
                             {"expected", TokenJson(flip.expected)},
                             {"got", TokenJson(flip.got)},
                             {"margin", FigureJson(flip.margin)},
                             {"at_least", flip.at_least},
                             {"allowed", FigureJson(flip.allowed)},
                             {"excused", flip.excused()}});
  }
  return json;
}

}  // namespace

std::string DumpText(const DumpQuestion& common, const DumpsReport& all) {
  std::string text = FirstLine(common, all);
  for (size_t i = 0; i < all.reports.size(); ++i) {
    const DumpReport& one = all.reports[i];
    if (one.outcome == Outcome::kPass || all.reports.size() == 1) continue;
    text += fmt::format("{} {}: {}\n", Name(one.outcome), NameOf(all.gots[i]), one.why);
  }
  text += fmt::format("gold  {}\n", common.gold);
  if (!all.reports.empty()) text += fmt::format("      {}\n", all.reports.front().gold_dump);
  for (size_t i = 0; i < all.gots.size(); ++i) {
    const GotDump& got = all.gots[i];
    text += fmt::format("got   {}{}\n", got.cache.empty() ? "" : got.cache + "  ", got.path);
    if (i < all.reports.size()) {
      text += fmt::format("      {}\n", all.reports[i].got_dump);
    } else {
      text += "      was not compared\n";
    }
  }
  if (all.gots.size() == 1 && all.reports.size() == 1) {
    const DumpReport& one = all.reports.front();
    text += Lines(one);
    if (all.gots.front().bits) {
      text += fmt::format("  {:<12}{} per element\n", "bits", BitsText(all.gots.front()));
    }
    text += fmt::format("  {:<12}{}\n", "flips", FlipsLine(one));
  } else if (!all.reports.empty()) {
    text += fmt::format(
        "{} positions; KL in nats; largest: change of a token that gold puts first "
        "or second, in nats\n",
        all.reports.front().figures.positions);
    text += TableOf(all);
  }
  for (size_t i = 0; i < all.reports.size(); ++i) {
    for (const std::string& note : all.reports[i].notes) {
      text += fmt::format("note  {}: {}\n", NameOf(all.gots[i]), note);
    }
  }
  return text;
}

std::string DumpJson(const DumpQuestion& common, const DumpsReport& all) {
  const bool is_measured = !common.judge && all.outcome() == Outcome::kPass;
  OrderedJson json = {
      {"schema", kDumpSchema},       {"tool", ToolVersion()},
      {"command", "agree --logits"}, {"outcome", is_measured ? "MEASURED" : Name(all.outcome())},
      {"judged", common.judge},      {"interrupted", all.interrupted}};
  json["gold"] = {{"path", common.gold},
                  {"dump", all.reports.empty() ? "" : all.reports.front().gold_dump}};
  json["noise"] = nullptr;
  if (!all.reports.empty() && all.reports.front().noise) {
    const DumpReport& any = all.reports.front();
    json["noise"] = {{"path", common.noise},
                     {"largest", FigureJson(*any.noise)},
                     {"figures", FiguresJson(any.noise_figures)}};
  }
  json["gots"] = OrderedJson::array();
  for (size_t i = 0; i < all.reports.size(); ++i) {
    json["gots"].push_back(GotJson(all.gots[i], all.reports[i]));
  }
  return Written(json);
}

}  // namespace kvcheck
