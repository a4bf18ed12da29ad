#include "tools/measure/format_plot.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "tools/measure/scatter_plot.h"
#include "tools/report/shown_text.h"

namespace kvcheck {

std::string FormatPlot(const FormatBenchQuestion& question, std::span<const FormatFigures> figures,
                       std::string_view data) {
  std::array<PlotPanel, 2> panels = {{{"rows", "bits per element", "mean error", {}},
                                      {"attention", "bits per element", "relative error", {}}}};
  for (const FormatFigures& f : figures) {
    const std::string name = Print(f.format);
    const std::string kind = KindOf(f.format);
    const std::string family = kind.substr(0, kind.find(':'));
    panels[0].points.push_back({name, family, f.bits, f.rows.Mean()});
    panels[1].points.push_back({name, family, f.bits, std::sqrt(f.attention.Nmse())});
  }
  const KvRows& rows = question.rows;
  return ScatterSvg(fmt::format("storage formats on {}: {} tokens of {} channels", NameText(data),
                                rows.heads * rows.tokens, rows.KDim()),
                    panels);
}

}  // namespace kvcheck
