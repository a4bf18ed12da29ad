#include "tools/measure/bench_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/measure/format_choice.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

// Keeps the order in which fields are written.
using Json = nlohmann::ordered_json;

Json FigureJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : "inf";
}

Json ErrorsJson(const ErrorSums& errors) {
  return {{"elements", errors.elements},
          {"not_finite", errors.not_finite},
          {"mean", FigureJson(errors.Mean())},
          {"max", FigureJson(errors.Largest())},
          {"nmse", FigureJson(errors.Nmse())}};
}

Json CostJson(const KvFormat& format, double bits) {
  return {{"format", Print(format)},
          {"kind", KindOf(format)},
          {"bits_per_element", bits},
          {"compression_of_f32", 32 / bits},
          {"compression_of_16_bits", 16 / bits}};
}

Json TimesJson(double seconds, double token_ns) {
  return {{"seconds", seconds}, {"ns_per_token_and_layer", token_ns}};
}

std::string Written(const Json& json) {
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string FormatBenchJson(const FormatBenchQuestion& question,
                            std::span<const FormatFigures> figures, std::string_view data,
                            bool interrupted) {
  const KvRows& rows = question.rows;
  Json json = {{"schema", kBenchSchema},
               {"tool", ToolVersion()},
               {"command", "bench formats"},
               {"interrupted", interrupted},
               {"data", data},
               {"seed", question.seed},
               {"dtype", ShortName(rows.k.dtype)},
               {"heads", rows.heads},
               {"tokens", rows.tokens},
               {"k_dim", rows.KDim()},
               {"v_dim", rows.VDim()},
               {"queries", question.queries},
               {"profile", Print(question.profile)},
               {"formats", Json::array()}};
  for (const FormatFigures& f : figures) {
    Json one = CostJson(f.format, f.bits);
    one["heads"] = f.heads;
    one["rows"] = ErrorsJson(f.rows);
    one["attention"] = ErrorsJson(f.attention);
    one["speed"] = nullptr;
    if (f.speed) {
      one["speed"] = {{"encode_ns_per_element", f.speed->encode_ns},
                      {"decode_ns_per_element", f.speed->decode_ns}};
    }
    json["formats"].push_back(std::move(one));
  }
  return Written(json);
}

std::string KvCacheJson(const KvCacheQuestion& question, std::span<const KvCacheFigures> figures,
                        bool interrupted) {
  const KvCacheShape& shape = question.shape;
  Json json = {{"schema", kBenchSchema},      {"tool", ToolVersion()},
               {"command", "bench kv-cache"}, {"interrupted", interrupted},
               {"seed", question.seed},       {"layers", shape.layers},
               {"heads", shape.heads},        {"kv_heads", shape.kv_heads},
               {"head_dim", shape.head_dim},  {"dtype", ShortName(shape.dtype)},
               {"rounds", question.rounds},   {"caches", Json::array()}};
  for (const KvCacheFigures& f : figures) {
    Json one = CostJson(f.format, BitsPerElement(f.format, shape.head_dim));
    one["seq_len"] = f.seq_len;
    one["rounds"] = f.rounds;
    one["original_bytes"] = f.original_bytes;
    one["stored_bytes"] = f.stored_bytes;
    one["layer_bytes"] = f.layer_bytes;
    one["errors"] = ErrorsJson(f.errors);
    one["held_peak_bytes"] = f.held_peak_bytes;
    one["resident_peak_bytes"] = nullptr;
    if (f.resident_peak_bytes) one["resident_peak_bytes"] = *f.resident_peak_bytes;
    one["quantize"] = TimesJson(f.quantize_seconds, f.quantize_token_ns);
    one["dequantize"] = TimesJson(f.dequantize_seconds, f.dequantize_token_ns);
    json["caches"].push_back(std::move(one));
  }
  return Written(json);
}

std::string JudgeBenchJson(const JudgeQuestion& question, std::span<const JudgeFigures> figures,
                           bool interrupted) {
  Json json = {{"schema", kBenchSchema},     {"tool", ToolVersion()}, {"command", "bench judge"},
               {"interrupted", interrupted}, {"threads", 1},          {"rounds", question.rounds},
               {"judged", Json::array()}};
  for (const JudgeFigures& f : figures) {
    Json one = {{"case", f.case_text},  {"plan", f.plan},
                {"rule", Name(f.rule)}, {"outcome", Name(f.outcome)},
                {"rounds", f.rounds},   {"elements", f.elements},
                {"processor", nullptr}, {"resident_peak_bytes", nullptr}};
    one["processor"] = {{"seconds", f.seconds}, {"ns_per_element", f.ElementNs()}};
    if (f.resident_peak_bytes) one["resident_peak_bytes"] = *f.resident_peak_bytes;
    json["judged"].push_back(std::move(one));
  }
  return Written(json);
}

}  // namespace kvcheck
