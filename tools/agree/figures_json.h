// Figures of agreement as JSON, of both reports.

#ifndef TOOLS_AGREE_FIGURES_JSON_H_
#define TOOLS_AGREE_FIGURES_JSON_H_

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/agree/measures.h"

namespace kvcheck {

// Keeps the order in which fields are written.
using OrderedJson = nlohmann::ordered_json;

inline OrderedJson FigureJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : "inf";
}

// low and high are null where there are too few positions for an interval.
inline OrderedJson IntervalJson(const Interval& i) {
  OrderedJson json = {{"value", FigureJson(i.value)}, {"low", nullptr}, {"high", nullptr}};
  if (i.is_known) json["low"] = FigureJson(i.low), json["high"] = FigureJson(i.high);
  return json;
}

inline OrderedJson FiguresJson(const AgreementFigures& f) {
  return {{"positions", f.positions},
          {"top1_positions", f.top1_positions},
          {"top1", IntervalJson(f.top1)},
          {"kl_mean", IntervalJson(f.kl_mean)},
          {"kl_median", IntervalJson(f.kl_median)},
          {"kl_99", IntervalJson(f.kl_99)},
          {"kl_max", FigureJson(f.kl_max)},
          {"perplexity_ratio", IntervalJson(f.perplexity_ratio)}};
}

inline std::string Written(const OrderedJson& json) {
  return json.dump(1, ' ', true, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace kvcheck

#endif  // TOOLS_AGREE_FIGURES_JSON_H_
