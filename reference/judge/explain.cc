#include "reference/judge/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

namespace kvcheck {
namespace {

std::optional<ExpectedTile> TileOf(const OutputView& view, int64_t index, int64_t row,
                                   const TileRequest& request) {
  for (ExpectedTile& tile : view.source.Tiles(index, request)) {
    const bool holds = row >= tile.first_row && row < tile.first_row + tile.row_count;
    if (tile.output == view.output && holds) return std::move(tile);
  }
  return std::nullopt;
}

// Bound plus the reference's own; 0 where codes are compared.
std::vector<double> Tolerances(const OutputInfo& info, const ExpectedTile& tile) {
  std::vector<double> tolerances(tile.value.size(), 0);
  if (info.claim == Claim::kConformance) return tolerances;
  for (size_t i = 0; i < tolerances.size(); ++i) {
    tolerances[i] = tile.bound[i] + ReferenceBoundAt(tile, i);
  }
  return tolerances;
}

bool Overlaps(const TileSpan& span, int64_t row_length, int64_t first, int64_t last) {
  return span.first_row * row_length <= last &&
         (span.first_row + span.row_count) * row_length > first;
}

void CopyRows(const OutputInfo& info, const ExpectedTile& tile, const ObservedTile& observed,
              const Evaluation& evaluation, Window* window) {
  const std::vector<double> tolerances = Tolerances(info, tile);
  const size_t length = static_cast<size_t>(info.row_length);
  for (size_t row = 0; row < static_cast<size_t>(tile.row_count); ++row) {
    const int64_t first = (tile.first_row + static_cast<int64_t>(row)) * info.row_length;
    const int64_t probe = info.row_length > 1 ? first + window->first.back() : first;
    if (window->IndexOf(probe) < 0) continue;
    for (size_t c = 0; c < length; ++c) {
      const int64_t index = window->IndexOf(first + static_cast<int64_t>(c));
      if (index < 0) continue;
      const size_t i = row * length + c;
      const size_t to = static_cast<size_t>(index);
      window->expected[to] = tile.value[i];
      window->got[to] = observed.got[i];
      window->tolerance[to] = tolerances[i];
      window->judged[to] = evaluation.state[i] != ElementState::kNotJudged ? 1 : 0;
      window->failed[to] = evaluation.state[i] == ElementState::kFailed ? 1 : 0;
    }
  }
}

}  // namespace

void FailingRowList::Add(const FailureRun& run, int64_t row_length) {
  const int64_t first = std::max(run.first / row_length, last_ + 1);
  const int64_t last = (run.first + run.count - 1) / row_length;
  for (int64_t row = first; row <= last; ++row) {
    if (count_++ % stride_ != 0) continue;
    rows_.push_back(row);
    if (rows_.size() <= kMost) continue;
    size_t kept = 0;
    for (size_t i = 0; i < rows_.size(); i += 2) rows_[kept++] = rows_[i];
    rows_.resize(kept);
    stride_ *= 2;
  }
  last_ = std::max(last_, last);
}

std::optional<SeenKeys> SeenKeysOf(const OutputView& view, const FailingRowList& failing) {
  // Rows in whose place others may be taken.
  constexpr int64_t kOthers = 256;
  const OutputInfo& info = view.info();
  const int64_t all = info.shape.ElementCount() / info.row_length;
  RowsToExplain rows;
  rows.failing = failing.rows();
  rows.is_part = failing.is_part();
  for (int64_t i = 0; i < std::min(all, kOthers); ++i) {
    rows.others.push_back(i * all / std::min(all, kOthers));
  }
  rows.read = [&](int64_t row, std::span<double> got) {
    const ObservedTile observed = ReadObserved(view.observed, info, row, 1);
    std::copy(observed.got.begin(), observed.got.end(), got.begin());
  };
  const auto seen = view.source.Seen(view.output, rows);
  if (seen == nullptr || seen->rows == 0) return std::nullopt;
  return *seen;
}

std::string HintOf(const SeenKeys& seen) {
  constexpr size_t kShown = 4;
  if (!seen.cause.empty()) {
    return fmt::format("looks as if {} ({:.4g} % of the error)", seen.text,
                       std::min(100.0, 100 * seen.explained));
  }
  std::string text = "not explained: none of the faults that were tried makes these errors";
  if (!seen.text.empty()) {
    text = fmt::format("not explained as a whole: it looks as if {} ({:.3g} % of the error)",
                       seen.text, 100 * seen.explained);
  }
  std::string keys;
  for (size_t i = 0; i < std::min(kShown, seen.keys.size()); ++i) {
    const WeightEstimate& key = seen.keys[i];
    keys += fmt::format("{}{} by {:+.2g} (z {:.0f})", i == 0 ? "" : ", ", key.first, key.change,
                        std::fabs(key.Z()));
  }
  if (!keys.empty()) text += "; the keys whose weights differ most: " + keys;
  return text;
}

std::vector<TermShare> TermsAt(const OutputView& view, const WorstElement& worst) {
  std::vector<TermShare> shares;
  const OutputInfo& info = view.info();
  TileRequest request;
  request.noise = view.noise;
  request.precision = worst.report.precision;
  request.terms = true;
  const int64_t row = worst.report.element / info.row_length;
  const auto tile = TileOf(view, worst.tile_index, row, request);
  if (!tile.has_value()) return shares;
  const size_t i = static_cast<size_t>(worst.report.element - tile->first_row * info.row_length);
  for (size_t k = 0; k < tile->terms.size(); ++k) {
    if (i >= tile->terms[k].size()) continue;
    TermShare term;
    term.name = k < info.terms.size() ? info.terms[k] : fmt::format("term {}", k);
    term.value = tile->terms[k][i];
    if (std::isnan(term.value)) term.value = std::numeric_limits<double>::infinity();
    term.share = worst.report.bound > 0 ? term.value / worst.report.bound : 0;
    shares.push_back(std::move(term));
  }
  std::sort(shares.begin(), shares.end(), [](const TermShare& a, const TermShare& b) {
    return std::tie(b.value, a.name) < std::tie(a.value, b.name);
  });
  return shares;
}

std::vector<DirectionFit> FitDirections(const OutputView& view,
                                        const std::vector<TileSpan>& spans) {
  const OutputInfo& info = view.info();
  if (info.directions.empty()) return {};
  DirectionRegression regression;
  TileRequest request;
  request.noise = view.noise;
  request.statistics = request.every_row = true;
  int64_t tiles = 0;
  for (const TileSpan& span : spans) {
    if (span.failed == 0) continue;
    if (++tiles > kHintTiles) break;
    auto tile = TileOf(view, span.index, span.first_row, request);
    if (!tile.has_value()) continue;
    const ObservedTile observed =
        ReadObserved(view.observed, info, tile->first_row, tile->row_count);
    TakeGiven(observed, &*tile);
    const Evaluation evaluation = Evaluate(info, *tile, observed, view.special);
    const size_t length = static_cast<size_t>(info.row_length);
    std::vector<uint8_t> takes_part(static_cast<size_t>(tile->row_count), 0);
    for (size_t row = 0; row < takes_part.size(); ++row) {
      bool fails = false;
      bool finite = true;
      for (size_t i = row * length; i < (row + 1) * length; ++i) {
        fails = fails || evaluation.state[i] == ElementState::kFailed;
        finite = finite && std::isfinite(evaluation.error[i]);
      }
      takes_part[row] = fails && finite ? 1 : 0;
    }
    regression.Add(*tile, info.row_length, evaluation.error, Tolerances(info, *tile), takes_part);
  }
  return regression.Finish(info);
}

Window LoadWindow(const OutputView& view, const std::vector<TileSpan>& spans, int64_t around) {
  const OutputInfo& info = view.info();
  Window window = MakeWindow(info.shape, around);
  int64_t first = 0;
  int64_t last = 0;
  for (size_t a = 0; a < info.shape.axes.size(); ++a) {
    first = first * info.shape.axes[a].extent + window.first[a];
    last = last * info.shape.axes[a].extent + window.first[a] + window.extent[a] - 1;
  }
  for (const TileSpan& span : spans) {
    if (!Overlaps(span, info.row_length, first, last)) continue;
    TileRequest request;
    request.noise = view.noise;
    auto tile = TileOf(view, span.index, span.first_row, request);
    if (!tile.has_value()) continue;
    const ObservedTile observed =
        ReadObserved(view.observed, info, tile->first_row, tile->row_count);
    TakeGiven(observed, &*tile);
    CopyRows(info, *tile, observed, Evaluate(info, *tile, observed, view.special), &window);
  }
  return window;
}

}  // namespace kvcheck
