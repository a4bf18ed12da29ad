#include "tools/agree/agree_text.h"
#include "tools/agree/figures_json.h"
#include "tools/agree/storage_choice.h"
#include "tools/measure/format_choice.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

using Json = OrderedJson;

Json TimesJson(const std::optional<PathTimes>& times) {
  if (!times) return nullptr;
  return {{"prefill_tokens_per_s", times->prefill_tokens_per_s},
          {"decode_tokens_per_s", times->decode_tokens_per_s}};
}

Json FindingJson(const StepFinding& f, int64_t layers) {
  Json json = {{"outcome", Name(f.outcome)}, {"sequence", f.sequence}};
  json["layer"] = f.layer < layers ? Json(f.layer) : Json(nullptr);
  json["step"] = Name(f.step);
  json["head"] = f.head >= 0 ? Json(f.head) : Json(nullptr);
  json["token"] = f.token >= 0 ? Json(f.token) : Json(nullptr);
  json["message"] = f.message;
  json["hints"] = f.hints;
  return json;
}

Json StorageJson(const AgreeQuestion& question, const StorageFigures& f) {
  const DecoderConfig& config = question.model.config;
  Json json = {{"k", Print(f.storage.k)},
               {"v", Print(f.storage.v)},
               {"layout", PrintLayout(f.storage)},
               {"outcome", Name(f.outcome)},
               {"why", f.why},
               {"interrupted", f.interrupted},
               {"bits_per_element", (BitsPerElement(f.storage.k, config.head_dim) +
                                     BitsPerElement(f.storage.v, config.head_dim)) /
                                        2},
               {"bytes_per_token", f.bytes_per_token},
               {"quality", FiguresJson(f.quality)},
               {"correctness", FiguresJson(f.correctness)},
               {"excused", f.excused},
               {"propagated",
                {{"median", FigureJson(f.propagated_median)},
                 {"largest", FigureJson(f.propagated_largest)},
                 {"share_used", FigureJson(f.propagated_share)}}},
               {"steps",
                {{"elements", f.steps.elements},
                 {"failed", f.steps_failed},
                 {"mistrusted", f.steps_mistrusted}}},
               {"flips", Json::array()},
               {"noise", Json::array()}};
  for (int step = 0; step < kDecoderSteps; ++step) {
    const auto i = static_cast<size_t>(step);
    json["steps"]["largest_bound_share"][std::string(Name(static_cast<DecoderStep>(step)))] =
        FigureJson(f.steps.bound_share[i]);
  }
  for (const Flip& flip : f.flips) {
    json["flips"].push_back({{"sequence", flip.sequence},
                             {"position", flip.position},
                             {"expected", flip.expected},
                             {"got", flip.got},
                             {"margin", FigureJson(flip.margin)},
                             {"propagated", FigureJson(flip.propagated)},
                             {"excused", flip.excused()}});
  }
  for (const NoiseFloor& noise : f.noise) {
    json["noise"].push_back({{"what", noise.what},
                             {"positions", noise.positions},
                             {"flips", noise.flips},
                             {"largest_logit_change", FigureJson(noise.largest)},
                             {"kl_max", FigureJson(noise.kl_max)},
                             {"missing_tokens", noise.missing_tokens}});
  }
  json["first"] = f.first ? FindingJson(*f.first, config.layers()) : Json(nullptr);
  json["single"] = f.single ? FiguresJson(*f.single) : Json(nullptr);
  json["times"] = TimesJson(f.times);
  json["single_times"] = TimesJson(f.single_times);
  return json;
}

}  // namespace

std::string AgreeJson(const AgreeQuestion& question, const AgreeReport& report) {
  Json json = {{"schema", kAgreeSchema},
               {"tool", ToolVersion()},
               {"command", "agree"},
               {"model", question.model.path},
               {"text", question.text_path},
               {"implementation", PrintPath(question.storages.front().fault)},
               {"batch", question.batch},
               {"context", question.context},
               {"chunk", question.chunk},
               {"positions", report.positions},
               {"sequences", report.sequences},
               {"reference_bits_per_token", report.reference_bits},
               {"outcome", Name(report.outcome())},
               {"interrupted", report.interrupted},
               {"storages", Json::array()}};
  for (const StorageFigures& f : report.storages) {
    json["storages"].push_back(StorageJson(question, f));
  }
  return Written(json);
}

}  // namespace kvcheck
