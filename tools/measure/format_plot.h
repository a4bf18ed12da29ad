// The picture of `kvcheck bench formats --plot`: errors against bits per element.

#ifndef TOOLS_MEASURE_FORMAT_PLOT_H_
#define TOOLS_MEASURE_FORMAT_PLOT_H_

#include <span>
#include <string>
#include <string_view>

#include "tools/measure/format_bench.h"

namespace kvcheck {

// SVG: mean error of rows, and relative error of attention.
std::string FormatPlot(const FormatBenchQuestion& question, std::span<const FormatFigures> figures,
                       std::string_view data);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_FORMAT_PLOT_H_
