// Figures of agreement for a reader, of both reports.

#ifndef TOOLS_AGREE_FIGURES_TEXT_H_
#define TOOLS_AGREE_FIGURES_TEXT_H_

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tools/agree/measures.h"

namespace kvcheck {

inline std::string Figure(double value) { return fmt::format("{:.3g}", value); }

// The interval after a figure, where there is one.
inline std::string Behind(const Interval& i, const std::string& text) {
  return i.is_known && i.low < i.high ? text : "";
}

inline std::string Range(const Interval& i) {
  return Figure(i.value) + Behind(i, fmt::format(" [{:.3g}, {:.3g}]", i.low, i.high));
}

inline std::string Percent(const Interval& i) {
  if (std::isnan(i.value)) return "not known";
  return fmt::format("{:.2f} %", 100 * i.value) +
         Behind(i, fmt::format(" [{:.2f}, {:.2f}]", 100 * i.low, 100 * i.high));
}

inline std::string Ratio(const Interval& i) {
  return fmt::format("{:.4f}", i.value) +
         Behind(i, fmt::format(" [{:.4f}, {:.4f}]", i.low, i.high));
}

// Rows of cells; the first column to the left, the others to the right.
class FiguresTable {
 public:
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const {
    std::vector<size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line = fmt::format("  {:<{}}", row[0], widths[0]);
      for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvcheck

#endif  // TOOLS_AGREE_FIGURES_TEXT_H_
