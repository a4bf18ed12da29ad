#include "tools/agree/agree_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/agree/figures_text.h"
#include "tools/agree/storage_choice.h"
#include "tools/measure/format_choice.h"
#include "tools/measure/scatter_plot.h"

namespace kvcheck {
namespace {

std::string NameOf(const StorageFigures& f) {
  return PrintFormats(f.storage) + (f.storage.ring ? " ring" : "");
}

double Bits(const AgreeQuestion& question, const PathStorage& storage) {
  const int64_t dim = question.model.config.head_dim;
  return (BitsPerElement(storage.k, dim) + BitsPerElement(storage.v, dim)) / 2;
}

std::string QualityTable(const AgreeQuestion& question, const AgreeReport& report) {
  FiguresTable table;
  table.Add({"format", "bits", "top-1", "KL mean", "KL median", "KL 99 %", "KL max", "perplexity"});
  for (const StorageFigures& f : report.storages) {
    const AgreementFigures& q = f.quality;
    table.Add({NameOf(f), fmt::format("{:g}", Bits(question, f.storage)), Percent(q.top1),
               Range(q.kl_mean), Figure(q.kl_median.value), Figure(q.kl_99.value), Figure(q.kl_max),
               Ratio(q.perplexity_ratio)});
  }
  return table.Text();
}

std::string CorrectnessTable(const AgreeReport& report) {
  FiguresTable table;
  table.Add({"format", "verdict", "flips", "excused", "KL max", "explained", "used", "elements",
             "noise"});
  for (const StorageFigures& f : report.storages) {
    double noise = 0;
    for (const NoiseFloor& n : f.noise) noise = std::max(noise, n.largest);
    table.Add({NameOf(f), std::string(Name(f.outcome)), std::to_string(f.flips.size()),
               std::to_string(f.excused), Figure(f.correctness.kl_max), Figure(f.propagated_median),
               Figure(f.propagated_share), std::to_string(f.steps.elements), Figure(noise)});
  }
  return table.Text();
}

std::string TimesTable(const AgreeQuestion& question, const AgreeReport& report) {
  FiguresTable table;
  std::vector<std::string> head = {"format", "bytes/token"};
  if (question.times) head.insert(head.end(), {"prefill tok/s", "decode tok/s"});
  if (question.batch > 1) {
    if (question.times) head.insert(head.end(), {"single decode tok/s"});
    head.insert(head.end(), {"top-1", "single top-1", "perplexity", "single perplexity"});
  }
  table.Add(head);
  for (const StorageFigures& f : report.storages) {
    std::vector<std::string> row = {NameOf(f), fmt::format("{:.1f}", f.bytes_per_token)};
    if (f.times) {
      row.push_back(fmt::format("{:.0f}", f.times->prefill_tokens_per_s));
      row.push_back(fmt::format("{:.0f}", f.times->decode_tokens_per_s));
    } else if (question.times) {
      row.insert(row.end(), {"", ""});  // it was interrupted
    }
    if (f.single) {
      if (question.times) {
        row.push_back(f.single_times ? fmt::format("{:.0f}", f.single_times->decode_tokens_per_s)
                                     : "");
      }
      row.push_back(fmt::format("{:.2f} %", 100 * f.quality.top1.value));
      row.push_back(fmt::format("{:.2f} %", 100 * f.single->top1.value));
      row.push_back(fmt::format("{:.4f}", f.quality.perplexity_ratio.value));
      row.push_back(fmt::format("{:.4f}", f.single->perplexity_ratio.value));
    }
    table.Add(row);
  }
  return table.Text();
}

}  // namespace

std::string AgreeText(const AgreeQuestion& question, const AgreeReport& report) {
  if (report.storages.empty()) return "interrupted before anything was judged\n";
  std::string text = fmt::format(
      "{} positions in {} sequences of up to {} tokens, batch {}, {}: reference {:.4f} bits per "
      "token\n",
      report.positions, report.sequences, question.context, question.batch,
      PrintPath(question.storages.front().fault), report.reference_bits);
  text +=
      "\nquality: beside the reference in full precision [95 % of resampled texts, from 20 blocks "
      "of 32 tokens on]; KL in nats\n";
  text += QualityTable(question, report);
  text +=
      "\ncorrectness: beside the reference over the same stored bytes; explained: change of the "
      "margin of the least certain\ntokens that arithmetic allows (median), and the largest share "
      "of it that was used; noise: largest change of a logit,\nfed in other chunks, beside other "
      "rows, and behind a hit of a prefix cache, in memory and reloaded from disk\n";
  text += CorrectnessTable(report);
  text += "\ncost\n" + TimesTable(question, report);
  for (const StorageFigures& f : report.storages) {
    if (f.outcome == Outcome::kPass) continue;
    text += fmt::format("\n{} {}: {}\n", Name(f.outcome), NameOf(f), f.why);
    text += fmt::format("  steps that failed {}, that proved nothing {}; flips {}, excused {}\n",
                        f.steps_failed, f.steps_mistrusted, f.flips.size(), f.excused);
    if (f.first) {
      text += fmt::format("  first        {}\n", Print(*f.first));
      for (const std::string& hint : f.first->hints)
        text += fmt::format("  hint         {}\n", hint);
    }
  }
  if (report.interrupted) {
    text += fmt::format(
        "\ninterrupted, this report is partial: {} of {} storages, the last of {} "
        "positions\n",
        report.storages.size(), question.storages.size(), report.storages.back().quality.positions);
  }
  return text + fmt::format("\n{}\n", Name(report.outcome()));
}

std::string AgreePlot(const AgreeQuestion& question, const AgreeReport& report) {
  std::array<PlotPanel, 2> panels = {
      {{"KL from full precision", "bits per element", "mean, nats", {}},
       {"top-1 tokens", "bits per element", "share that is another", {}}}};
  for (const StorageFigures& f : report.storages) {
    const std::string kind = KindOf(f.storage.k);
    const std::string family = kind.substr(0, kind.find(':'));
    const double bits = Bits(question, f.storage);
    panels[0].points.push_back({NameOf(f), family, bits, f.quality.kl_mean.value});
    panels[1].points.push_back({NameOf(f), family, bits, 1 - f.quality.top1.value});
  }
  return ScatterSvg(fmt::format("a model over quantized caches: {} positions, batch {}",
                                report.positions, question.batch),
                    panels);
}

}  // namespace kvcheck
