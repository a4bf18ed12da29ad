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

inline OrderedJson IntervalJson(const Interval& i) {
  return {{"value", FigureJson(i.value)}, {"low", FigureJson(i.low)}, {"high", FigureJson(i.high)}};
}

inline OrderedJson FiguresJson(const AgreementFigures& f) {
  return {{"positions", f.positions},
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
