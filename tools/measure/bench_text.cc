#include "tools/measure/bench_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/measure/format_choice.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

using Cells = std::vector<std::string>;

// The first column to the left, all others to the right.
std::string TableText(const std::vector<Cells>& lines) {
  std::vector<size_t> widths(lines.at(0).size());
  for (const Cells& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    text += fmt::format("  {:<{}}", line[0], widths[0]);
    for (size_t i = 1; i < line.size(); ++i) text += fmt::format("  {:>{}}", line[i], widths[i]);
    text += '\n';
  }
  return text;
}

std::string Figure(double value) { return fmt::format("{:.3g}", value); }
std::string Ratio(double value) { return fmt::format("{:.3f}x", value); }
std::string Gigas(double ns) { return fmt::format("{:.2f}", 1 / ns); }
std::string Mebibytes(int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}
std::string Milliseconds(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

std::string ProfileWords(const Profile& profile) {
  const std::string text = Print(profile);
  return text.empty() ? "the default profile" : text;
}

constexpr const char* kNothingMeasured = "interrupted before anything was measured\n";

// How much of it there is.
std::string PartialFormats(const FormatBenchQuestion& question,
                           std::span<const FormatFigures> figures) {
  int64_t heads = 0;
  int64_t timed = 0;
  for (const FormatFigures& f : figures) {
    heads += f.heads;
    timed += f.speed ? 1 : 0;
  }
  std::string text = fmt::format("INTERRUPTED, this is partial: {} of {} formats", figures.size(),
                                 question.formats.size());
  if (question.rows.heads > 1) {
    text += fmt::format(", errors of {} of {} heads of them", heads,
                        question.rows.heads * std::ssize(question.formats));
  }
  if (question.rounds > 0) text += fmt::format(", {} timed", timed);
  return text + "\n";
}

std::string PartialCaches(const KvCacheQuestion& question,
                          std::span<const KvCacheFigures> figures) {
  int64_t rounds = 0;
  for (const KvCacheFigures& f : figures) rounds += f.rounds;
  const int64_t caches = std::ssize(question.formats) * std::ssize(question.seq_lens);
  return fmt::format("INTERRUPTED, this is partial: {} of {} caches, {} of {} rounds of them\n",
                     figures.size(), caches, rounds, caches * question.rounds);
}

// Largest over smallest time per token of one format.
std::string Spread(std::span<const KvCacheFigures> figures, const KvFormat& format,
                   double KvCacheFigures::* time) {
  double low = 0, high = 0;
  for (const KvCacheFigures& f : figures) {
    if (f.format != format) continue;
    low = low == 0 ? f.*time : std::min(low, f.*time);
    high = std::max(high, f.*time);
  }
  return fmt::format("{:.3f}", high / low);
}

}  // namespace

std::string FormatBenchText(const FormatBenchQuestion& question,
                            std::span<const FormatFigures> figures, std::string_view data,
                            bool interrupted) {
  if (interrupted && figures.empty()) return kNothingMeasured;
  const KvRows& rows = question.rows;
  std::string text = interrupted ? PartialFormats(question, figures) : "";
  text += fmt::format(
      "storage formats, over K and V of {} head{}, {} tokens, {} channels in {}: {}\n"
      "read as {}; attention: {} queries a head, against attention over the K and V given\n\n",
      rows.heads, rows.heads == 1 ? "" : "s", rows.tokens, rows.KDim(), ShortName(rows.k.dtype),
      NameText(data), ProfileWords(question.profile), question.queries);
  const bool timed = question.rounds > 0;
  std::vector<Cells> lines = {{"format", "bits", "vs f32", "vs 16 bits", "mean error", "max error",
                               "nmse", "attn mean", "attn max", "attn rel"}};
  if (timed) {
    lines[0].insert(lines[0].end(), {"encode", "decode"});
  }
  for (const FormatFigures& f : figures) {
    Cells line = {Print(f.format),
                  fmt::format("{:.4g}", f.bits),
                  Ratio(f.CompressionToF32()),
                  Ratio(f.CompressionTo16Bits()),
                  Figure(f.rows.Mean()),
                  Figure(f.rows.Largest()),
                  Figure(f.rows.Nmse()),
                  Figure(f.attention.Mean()),
                  Figure(f.attention.Largest()),
                  Figure(std::sqrt(f.attention.Nmse()))};
    if (timed) {
      line.push_back(f.speed ? Gigas(f.speed->encode_ns) : "-");
      line.push_back(f.speed ? Gigas(f.speed->decode_ns) : "-");
    }
    lines.push_back(std::move(line));
  }
  text += TableText(lines);
  text +=
      "\nbits: stored bits per element, scales and other metadata among them. vs f32, vs 16 bits: "
      "how many times\nsmaller than rows of 32 and of 16 bits; a figure without its base says "
      "nothing (3.556x is 9 bits of f32\nand 4.5 bits of f16). nmse: sum of squared errors over "
      "sum of squares. attn rel: its root, of outputs.\n";
  if (timed) {
    text +=
        "encode, decode: 1e9 elements a second of the optimized codec, on one thread, in cache, "
        "from and to f32.\n";
  }
  return text;
}

std::string KvCacheText(const KvCacheQuestion& question, std::span<const KvCacheFigures> figures,
                        bool interrupted) {
  if (interrupted && figures.empty()) return kNothingMeasured;
  const KvCacheShape& shape = question.shape;
  std::string text = interrupted ? PartialCaches(question, figures) : "";
  text += fmt::format(
      "KV cache: {} layers, {} query heads over {} key/value heads, {} channels; N(0, 1) in {}\n"
      "each layer is quantized, then its original freed; fetched layer by layer; one thread, "
      "median of {} round{}\n",
      shape.layers, shape.heads, shape.kv_heads, shape.head_dim, ShortName(shape.dtype),
      question.rounds, question.rounds == 1 ? "" : "s");
  for (const int64_t seq_len : question.seq_lens) {
    std::vector<Cells> lines = {{"format", "memory", "vs f32", "vs 16 bits", "mean error",
                                 "max error", "quantize", "dequantize", "peak", "allowed"}};
    for (const KvCacheFigures& f : figures) {
      if (f.seq_len != seq_len) continue;
      if (lines.size() == 1) {
        lines.push_back({"original " + std::string(ShortName(shape.dtype)),
                         Mebibytes(f.original_bytes),
                         Ratio(4.0 / static_cast<double>(SizeInBytes(shape.dtype))),
                         Ratio(2.0 / static_cast<double>(SizeInBytes(shape.dtype))), "0", "0", "-",
                         "-", "-", "-"});
      }
      const double bits = BitsPerElement(f.format, shape.head_dim);
      lines.push_back({Print(f.format), Mebibytes(f.stored_bytes), Ratio(32 / bits),
                       Ratio(16 / bits), Figure(f.errors.Mean()), Figure(f.errors.Largest()),
                       Milliseconds(f.quantize_seconds), Milliseconds(f.dequantize_seconds),
                       Mebibytes(f.resident_peak_bytes.value_or(f.held_peak_bytes)),
                       Mebibytes(f.original_bytes + f.stored_bytes + f.layer_bytes)});
    }
    if (lines.size() > 1) text += fmt::format("\n{} tokens\n{}", seq_len, TableText(lines));
  }
  text += "\npeak: of the process while it stores and fetches";
  const bool resident = std::all_of(figures.begin(), figures.end(), [](const KvCacheFigures& f) {
    return f.resident_peak_bytes.has_value();
  });
  if (!resident) text += " (counted, where the system does not say)";
  text += ". allowed: original, quantized and one layer.\n";
  if (question.seq_lens.size() < 2 || interrupted) return text;
  std::vector<Cells> lines = {{"format", "quantize", "dequantize"}};
  for (const KvFormat& format : question.formats) {
    lines.push_back({Print(format), Spread(figures, format, &KvCacheFigures::quantize_token_ns),
                     Spread(figures, format, &KvCacheFigures::dequantize_token_ns)});
  }
  return text + fmt::format("\ntime per token, largest over smallest of {} to {} tokens\n{}",
                            *std::min_element(question.seq_lens.begin(), question.seq_lens.end()),
                            *std::max_element(question.seq_lens.begin(), question.seq_lens.end()),
                            TableText(lines));
}

std::string JudgeBenchText(const JudgeQuestion& question, std::span<const JudgeFigures> figures,
                           bool interrupted) {
  if (interrupted && figures.empty()) return kNothingMeasured;
  std::string text;
  if (interrupted) {
    int64_t rounds = 0;
    for (const JudgeFigures& f : figures) rounds += f.rounds;
    const int64_t all = std::ssize(question.cases) * std::ssize(question.plans) *
                        std::ssize(question.rules) * question.rounds;
    text = fmt::format("INTERRUPTED, this is partial: {} of {} judgements\n", rounds, all);
  }
  text += fmt::format(
      "judging attention: answers of kvcheck's own kernel, one thread, processor time, median of "
      "{} round{}\n",
      question.rounds, question.rounds == 1 ? "" : "s");
  for (size_t begin = 0; begin < figures.size();) {
    const std::string& case_text = figures[begin].case_text;
    std::vector<Cells> lines = {{"plan", "rule", "ns per element", "time", "peak", "verdict"}};
    size_t end = begin;
    for (; end < figures.size() && figures[end].case_text == case_text; ++end) {
      const JudgeFigures& f = figures[end];
      lines.push_back({f.plan, std::string(Name(f.rule)), fmt::format("{:.0f}", f.ElementNs()),
                       Milliseconds(f.seconds),
                       f.resident_peak_bytes ? Mebibytes(*f.resident_peak_bytes) : "-",
                       std::string(Name(f.outcome))});
    }
    text +=
        fmt::format("\n{}\n{} elements\n{}", case_text, figures[begin].elements, TableText(lines));
    begin = end;
  }
  return text +
         "\npeak: of the process while it judges, beyond inputs and outputs ('-': the system does "
         "not say).\n";
}

}  // namespace kvcheck
