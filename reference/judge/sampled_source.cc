#include "reference/judge/sampled_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace kvcheck {
namespace {

// Rows of one head, which follow each other: the extent before the channels.
int64_t RowsPerHead(const OutputInfo& info) {
  const std::vector<Axis>& axes = info.shape.axes;
  const size_t channels = info.row_length == 1 ? 0 : 1;
  return axes.size() > channels ? std::max<int64_t>(axes[axes.size() - 1 - channels].extent, 1) : 1;
}

// part / parts of count, rounded down.
int64_t Share(int64_t part, int64_t count, int64_t parts) {
  return static_cast<int64_t>(static_cast<__int128>(part) * count / parts);
}

// `most` of the rows of a list that `count` and `at` describe, evenly spaced, added to *rows; how
// many were not there before.
template <typename At>
int64_t AddSpaced(int64_t count, int64_t most, At at, std::vector<int64_t>* rows) {
  const int64_t taken = std::min(count, most);
  const size_t before = rows->size();
  for (int64_t i = 0; i < taken; ++i) {
    rows->push_back(at(Share(i, count, taken)));
  }
  std::sort(rows->begin(), rows->end());
  rows->erase(std::unique(rows->begin(), rows->end()), rows->end());
  return static_cast<int64_t>(rows->size() - before);
}

// Uniform in 0..count - 1, the same on every machine: the high half of a 64 x 64 bit product, whose
// departure from uniform is below count / 2^64.
int64_t Below(std::mt19937_64& random, int64_t count) {
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(random()) * static_cast<uint64_t>(count)) >> 64);
}

}  // namespace

double ChanceToMiss(const SampleReport& sample, int64_t faulty) {
  if (faulty <= 0) return 1;
  if (sample.at_random == 0) return 1;
  const auto draws = static_cast<double>(sample.at_random);
  const double covered = draws * std::ceil(static_cast<double>(sample.of_rows) / draws);
  const double share = static_cast<double>(faulty) / covered;
  return share >= 1 ? 0 : std::exp(draws * std::log1p(-share));
}

ChosenRows ChooseRows(const OutputInfo& info, int64_t most, uint64_t seed,
                      const std::vector<int64_t>& unusual, double missed) {
  const int64_t row_count = info.shape.ElementCount() / info.row_length;
  const int64_t head_rows = RowsPerHead(info);
  const int64_t heads = row_count / head_rows;
  most = std::min(most, row_count);
  ChosenRows chosen;
  SampleReport& report = chosen.report;
  report.of_rows = row_count;
  report.seed = seed;
  report.missed = missed;
  std::vector<int64_t>& rows = chosen.rows;

  const int64_t ends = head_rows > 1 ? 2 : 1;
  report.at_ends = AddSpaced(
      heads * ends, most / 8,
      [&](int64_t i) { return i / ends * head_rows + (i % ends == 0 ? 0 : head_rows - 1); }, &rows);
  const int64_t edges = 2 * ((head_rows - 1) / kEdge);  // the row at each, and the one before
  report.at_edges = AddSpaced(
      heads * edges, most / 8,
      [&](int64_t i) {
        const int64_t edge = (i % edges / 2 + 1) * kEdge;
        return i / edges * head_rows + edge - i % 2;
      },
      &rows);
  report.unusual = AddSpaced(
      static_cast<int64_t>(unusual.size()), most / 4,
      [&](int64_t i) { return unusual[static_cast<size_t>(i)]; }, &rows);

  const int64_t draws = most - static_cast<int64_t>(rows.size());
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < draws; ++i) {
    const int64_t first = Share(i, row_count, draws);
    rows.push_back(first + Below(random, Share(i + 1, row_count, draws) - first));
  }
  report.at_random = draws;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  report.rows = static_cast<int64_t>(rows.size());

  int64_t below = 0;  // ChanceToMiss falls as the faulty rows grow in number
  int64_t above = row_count;
  while (above - below > 1) {
    const int64_t middle = below + (above - below) / 2;
    (ChanceToMiss(report, middle) <= missed ? above : below) = middle;
  }
  report.found_rows = above;
  return chosen;
}

SampledSource::Parts SampledSource::Choose(const ExpectedSource& source, int64_t rows,
                                           uint64_t seed, double missed) {
  Parts parts;
  const std::vector<OutputInfo>& infos = source.Outputs();
  for (size_t output = 0; output < infos.size(); ++output) {
    const OutputInfo& info = infos[output];
    const int64_t row_count = info.shape.ElementCount() / info.row_length;
    if (row_count <= rows) {
      parts.rows.emplace_back(static_cast<size_t>(row_count));
      std::iota(parts.rows.back().begin(), parts.rows.back().end(), int64_t{0});
      parts.reports.emplace_back();
      continue;
    }
    size_t alike = 0;
    while (alike < output &&
           !(parts.reports[alike] && parts.reports[alike]->of_rows == row_count)) {
      ++alike;
    }
    if (alike < output) {
      parts.rows.push_back(parts.rows[alike]);
      parts.reports.push_back(parts.reports[alike]);
      continue;
    }
    ChosenRows chosen = ChooseRows(
        info, rows, seed,
        source.UnusualRows(static_cast<int>(output), std::max<int64_t>(rows / 4, 1)), missed);
    parts.rows.push_back(std::move(chosen.rows));
    parts.reports.emplace_back(chosen.report);
  }
  return parts;
}

SampledSource::SampledSource(const ExpectedSource& source, int64_t rows, uint64_t seed,
                             double missed)
    : SampledSource(source, Choose(source, rows, seed, missed)) {}

SampledSource::SampledSource(const ExpectedSource& source, Parts parts)
    : source_(source), reports_(std::move(parts.reports)), sample_(std::move(parts.rows)) {}

std::vector<ExpectedTile> SampledSource::Tiles(int64_t index, const TileRequest& request) const {
  TileRequest sampled = request;
  if (request.sample == nullptr) sampled.sample = &sample_;
  std::vector<ExpectedTile> tiles = source_.Tiles(index, sampled);
  for (ExpectedTile& tile : tiles) {
    if (!reports_[static_cast<size_t>(tile.output)]) continue;
    const auto rows = static_cast<size_t>(tile.row_count);
    if (tile.standing.empty()) tile.standing.assign(rows, Standing::kJudged);
    for (size_t row = 0; row < rows; ++row) {
      if (!sample_.Has(tile.output, tile.first_row + static_cast<int64_t>(row))) {
        tile.standing[row] = Standing::kLeftOut;
      }
    }
  }
  return tiles;
}

}  // namespace kvcheck
