// The picture is XML with every point in its place.

#include "tools/measure/scatter_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <pugixml.hpp>

namespace kvcheck {
namespace {

double At(const pugi::xml_document& svg, size_t point, const char* attribute) {
  return svg.select_nodes("//circle")[point].node().attribute(attribute).as_double();
}

TEST(ScatterPlot, HigherErrorsStandHigherAndMoreBitsFurtherRight) {
  const PlotPanel panel = {
      "t",
      "x",
      "y",
      {{"a", "f", 4, 1e-1}, {"b", "f", 8, 1e-3}, {"c", "g", 16, 1e-5}, {"exact", "g", 32, 0}}};
  pugi::xml_document svg;
  ASSERT_TRUE(svg.load_string(ScatterSvg("title", std::vector{panel}).c_str()));
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_GT(At(svg, i, "cx"), At(svg, i - 1, "cx"));
    EXPECT_GT(At(svg, i, "cy"), At(svg, i - 1, "cy"));
  }
  // Equal ratios are equal distances.
  EXPECT_NEAR(At(svg, 1, "cy") - At(svg, 0, "cy"), At(svg, 2, "cy") - At(svg, 1, "cy"), 0.2);
}

TEST(ScatterPlot, NamesDoNotCoverEachOther) {
  PlotPanel panel = {"t", "x", "y", {}};
  for (int i = 0; i < 12; ++i) {
    panel.points.push_back({"format" + std::to_string(i), "f", 4.5, 0.08 + 0.0001 * i});
  }
  pugi::xml_document svg;
  ASSERT_TRUE(svg.load_string(ScatterSvg("title", std::vector{panel}).c_str()));
  std::vector<std::pair<double, double>> places;
  for (const pugi::xpath_node& text : svg.select_nodes("//text[starts-with(text(),'format')]")) {
    const double x = text.node().attribute("x").as_double();
    const double y = text.node().attribute("y").as_double();
    for (const auto& [other_x, other_y] : places) {
      EXPECT_FALSE(x == other_x && std::abs(y - other_y) < 10) << y;
    }
    places.emplace_back(x, y);
  }
  EXPECT_EQ(places.size(), 12);
}

TEST(ScatterPlot, WhatIsNotFiniteIsLeftOutAndTextIsEscaped) {
  const PlotPanel panel = {
      "<&>",
      "x",
      "y",
      {{"a", "f", 4, std::numeric_limits<double>::infinity()}, {"b", "f", 8, 1e-3}}};
  pugi::xml_document svg;
  ASSERT_TRUE(svg.load_string(ScatterSvg("<title>", std::vector{panel}).c_str()));
  EXPECT_EQ(svg.select_nodes("//circle").size(), 1);
  EXPECT_EQ(svg.select_nodes("//text[text()='<&>']").size(), 1);
}

}  // namespace
}  // namespace kvcheck
