#include "tools/measure/scatter_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <pugixml.hpp>
#include <sstream>

namespace kvcheck {
namespace {

// Pixels.
constexpr double kLeft = 64, kTop = 56, kBottom = 48, kRight = 60;
constexpr double kWidth = 640, kHeight = 760;
constexpr double kFontSize = 10, kLetterWidth = 5.4, kLineHeight = 11;
constexpr const char* kInk = "#222222";
constexpr const char* kGridInk = "#dddddd";
// Told apart by those who do not see all colours (Okabe, Ito, "Color universal design", 2008).
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#000000", "#8a6d00"};

std::string Pixels(double value) { return fmt::format("{:.1f}", value); }

void AddLine(pugi::xml_node parent, double x1, double y1, double x2, double y2, const char* ink) {
  pugi::xml_node line = parent.append_child("line");
  line.append_attribute("x1") = Pixels(x1).c_str();
  line.append_attribute("y1") = Pixels(y1).c_str();
  line.append_attribute("x2") = Pixels(x2).c_str();
  line.append_attribute("y2") = Pixels(y2).c_str();
  line.append_attribute("stroke") = ink;
}

pugi::xml_node AddText(pugi::xml_node parent, double x, double y, const char* anchor,
                       const std::string& content, const char* ink = kInk) {
  pugi::xml_node text = parent.append_child("text");
  text.append_attribute("x") = Pixels(x).c_str();
  text.append_attribute("y") = Pixels(y).c_str();
  text.append_attribute("text-anchor") = anchor;
  text.append_attribute("fill") = ink;
  text.text().set(content.c_str());
  return text;
}

struct Box {
  double x, y, width, height;
  bool Meets(const Box& other) const {
    return x < other.x + other.width && other.x < x + width && y < other.y + other.height &&
           other.y < y + height;
  }
};

// Where values stand.
class Scale {
 public:
  explicit Scale(const PlotPanel& panel) {
    double least_x = 4, most_x = 8, least_y = 0, most_y = 0;
    for (const PlotPoint& point : panel.points) {
      least_x = std::min(least_x, point.x);
      most_x = std::max(most_x, point.x);
      if (point.y == 0) has_zero_ = true;
      if (point.y == 0 || !std::isfinite(point.y)) continue;
      least_y = least_y == 0 ? point.y : std::min(least_y, point.y);
      most_y = std::max(most_y, point.y);
    }
    left_ = static_cast<int>(std::floor(std::log2(least_x)));
    right_ = static_cast<int>(std::ceil(std::log2(most_x)));
    low_ = static_cast<int>(std::floor(std::log10(least_y == 0 ? 0.1 : least_y)));
    high_ = std::max(low_ + 1, static_cast<int>(std::ceil(std::log10(most_y == 0 ? 1 : most_y))));
    if (has_zero_) --low_;
  }

  int low() const { return low_; }
  int high() const { return high_; }
  int left() const { return left_; }
  int right() const { return right_; }
  bool has_zero() const { return has_zero_; }
  double X(double x) const { return kLeft + kWidth * (std::log2(x) - left_) / (right_ - left_); }
  double Y(double y) const { return y == 0 ? kTop + kHeight : AtPower(std::log10(y)); }
  double AtPower(double power) const {
    return kTop + kHeight * (high_ - power) / static_cast<double>(high_ - low_);
  }

 private:
  int left_ = 2, right_ = 3;  // powers of 2
  int low_ = 0, high_ = 1;    // of 10
  bool has_zero_ = false;
};

void AddAxes(pugi::xml_node group, const PlotPanel& panel, const Scale& scale) {
  for (int power = scale.low(); power <= scale.high(); ++power) {
    const double y = scale.AtPower(power);
    AddLine(group, kLeft, y, kLeft + kWidth, y, kGridInk);
    const bool zero = scale.has_zero() && power == scale.low();
    AddText(group, kLeft - 6, y + 3, "end", zero ? "0" : fmt::format("1e{}", power));
  }
  for (int power = scale.left(); power <= scale.right(); ++power) {
    const double x = std::exp2(power);
    AddLine(group, scale.X(x), kTop, scale.X(x), kTop + kHeight, kGridInk);
    AddText(group, scale.X(x), kTop + kHeight + 16, "middle", fmt::format("{:g}", x));
  }
  AddLine(group, kLeft, kTop + kHeight, kLeft + kWidth, kTop + kHeight, kInk);
  AddLine(group, kLeft, kTop, kLeft, kTop + kHeight, kInk);
  AddText(group, kLeft + kWidth / 2, kTop + kHeight + 36, "middle", panel.x_label);
  AddText(group, kLeft + kWidth / 2, kTop - 12, "middle", panel.title);
  pugi::xml_node label = AddText(group, 16, kTop + kHeight / 2, "middle", panel.y_label);
  label.append_attribute("transform") =
      fmt::format("rotate(-90 16 {})", Pixels(kTop + kHeight / 2)).c_str();
}

// The place of a name beside its point that meets no other: to the right, to the left, then
// further and further down and up.
Box PlaceName(double x, double y, const std::string& name, const std::vector<Box>& taken) {
  const double width = kLetterWidth * static_cast<double>(name.size());
  const auto free = [&](const Box& box) {
    return box.y >= kTop - kLineHeight && box.y + kLineHeight <= kTop + kHeight + 4 &&
           box.x >= kLeft &&
           std::none_of(taken.begin(), taken.end(), [&](const Box& b) { return b.Meets(box); });
  };
  const Box beside = {x + 6, y - kLineHeight / 2, width, kLineHeight};
  for (int step = 0; step < 40; ++step) {
    for (const double sign : {1.0, -1.0}) {
      const double down = sign * step * kLineHeight / 2;
      for (const double left : {x + 6, x - 6 - width}) {
        const Box box = {left, beside.y + down, width, kLineHeight};
        if (free(box)) return box;
      }
    }
  }
  return beside;
}

void AddPoints(pugi::xml_node group, const PlotPanel& panel, const Scale& scale,
               const std::vector<std::string>& families) {
  std::vector<Box> taken;
  std::vector<PlotPoint> points = panel.points;
  std::erase_if(points, [](const PlotPoint& p) { return !std::isfinite(p.y); });
  std::sort(points.begin(), points.end(), [](const PlotPoint& a, const PlotPoint& b) {
    return a.y != b.y ? a.y > b.y : a.name < b.name;
  });
  for (const PlotPoint& p : points) {
    taken.push_back({scale.X(p.x) - 4, scale.Y(p.y) - 4, 8, 8});
  }
  for (const PlotPoint& p : points) {
    const auto family = std::find(families.begin(), families.end(), p.family) - families.begin();
    const char* colour = kColours[static_cast<size_t>(family) % kColours.size()];
    const double x = scale.X(p.x), y = scale.Y(p.y);
    const Box name = PlaceName(x, y, p.name, taken);
    taken.push_back(name);
    const bool right = name.x > x;
    const double middle = name.y + kLineHeight / 2;
    if (std::fabs(middle - y) > kLineHeight) {
      AddLine(group, x, y, right ? name.x - 1 : name.x + name.width + 1, middle, colour);
    }
    pugi::xml_node circle = group.append_child("circle");
    circle.append_attribute("cx") = Pixels(x).c_str();
    circle.append_attribute("cy") = Pixels(y).c_str();
    circle.append_attribute("r") = "3.5";
    circle.append_attribute("fill") = colour;
    const std::string exact = fmt::format("{}: {} bits, {:.4g}", p.name, p.x, p.y);
    circle.append_child("title").text().set(exact.c_str());
    AddText(group, right ? name.x : name.x + name.width, name.y + 9, right ? "start" : "end",
            p.name, colour);
  }
}

}  // namespace

std::string ScatterSvg(const std::string& title, std::span<const PlotPanel> panels) {
  const double panel_width = kLeft + kWidth + kRight;
  const double width = panel_width * static_cast<double>(panels.size());
  const double height = kTop + kHeight + kBottom + 20;
  std::vector<std::string> families;
  for (const PlotPanel& panel : panels) {
    for (const PlotPoint& point : panel.points) {
      if (std::find(families.begin(), families.end(), point.family) == families.end()) {
        families.push_back(point.family);
      }
    }
  }
  pugi::xml_document document;
  pugi::xml_node svg = document.append_child("svg");
  svg.append_attribute("xmlns") = "http://www.w3.org/2000/svg";
  svg.append_attribute("viewBox") = fmt::format("0 0 {} {}", Pixels(width), Pixels(height)).c_str();
  svg.append_attribute("width") = Pixels(width).c_str();
  svg.append_attribute("height") = Pixels(height).c_str();
  svg.append_attribute("font-family") = "sans-serif";
  svg.append_attribute("font-size") = kFontSize;
  pugi::xml_node paper = svg.append_child("rect");
  paper.append_attribute("width") = "100%";
  paper.append_attribute("height") = "100%";
  paper.append_attribute("fill") = "#ffffff";
  AddText(svg, width / 2, 20, "middle", title).append_attribute("font-weight") = "bold";
  for (size_t i = 0; i < panels.size(); ++i) {
    pugi::xml_node group = svg.append_child("g");
    group.append_attribute("transform") =
        fmt::format("translate({} 0)", Pixels(panel_width * static_cast<double>(i))).c_str();
    const Scale scale(panels[i]);
    AddAxes(group, panels[i], scale);
    AddPoints(group, panels[i], scale, families);
  }
  std::ostringstream text;
  document.save(text, " ", pugi::format_indent | pugi::format_no_declaration, pugi::encoding_utf8);
  return text.str();
}

}  // namespace kvcheck
