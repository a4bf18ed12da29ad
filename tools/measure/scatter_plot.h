// Points of two numbers each, with names, as an SVG picture: panels side by side, both axes
// logarithmic. Drawn here and not by another program, so that a plot exists wherever kvcheck runs
// and its points can be tested.

#ifndef TOOLS_MEASURE_SCATTER_PLOT_H_
#define TOOLS_MEASURE_SCATTER_PLOT_H_

#include <span>
#include <string>
#include <vector>

namespace kvcheck {

struct PlotPoint {
  std::string name;
  std::string family;  // points of one family have one colour
  double x = 1;        // positive
  double y = 0;        // not negative; 0, which no logarithm has, stands on the lower edge
};

struct PlotPanel {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<PlotPoint> points;  // those that are not finite are left out
};

std::string ScatterSvg(const std::string& title, std::span<const PlotPanel> panels);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_SCATTER_PLOT_H_
