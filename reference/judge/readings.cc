#include "reference/judge/readings.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "reference/judge/evaluate.h"
#include "reference/judge/statistics.h"

namespace kvcheck {
namespace {

// The observed outputs with the rows of one of them in another order.
class ReorderedRows : public ObservedSource {
 public:
  ReorderedRows(const ObservedSource& observed, const OutputInfo& info,
                const std::function<int64_t(int64_t)>& row)
      : observed_(observed), info_(info), row_(row) {}

  const OutputInfo* Find(const std::string& name) const override { return observed_.Find(name); }
  std::vector<std::string> Names() const override { return observed_.Names(); }
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override {
    const auto row_bytes = static_cast<size_t>(info_.row_length) * SizeInBytes(info_.dtype);
    for (size_t at = 0; at < out.size(); at += row_bytes) {
      const int64_t row = first_element / info_.row_length + static_cast<int64_t>(at / row_bytes);
      observed_.Read(name, row_(row) * info_.row_length, out.subspan(at, row_bytes));
    }
  }

 private:
  const ObservedSource& observed_;
  const OutputInfo& info_;
  const std::function<int64_t(int64_t)>& row_;
};

// By which a sum of squares may exceed its mean.
constexpr double kStandardErrors = 4;

// What the source that was judged says of one tile.
struct JudgedTile {
  Evaluation evaluation;
  std::vector<uint8_t> fails;  // per row
  std::optional<TileStatistics> statistics;
};

// sample: the rows that are wanted; nullptr: all.
std::optional<ExpectedTile> TileAt(const ExpectedSource& source, int output, const TileSpan& span,
                                   const RowSample* sample = nullptr, bool statistics = false) {
  if (span.index >= source.TileCount()) return std::nullopt;
  TileRequest request;
  request.sample = sample;
  request.statistics = statistics;
  for (ExpectedTile& tile : source.Tiles(span.index, request)) {
    if (tile.output == output && tile.first_row == span.first_row &&
        tile.row_count == span.row_count) {
      return std::move(tile);
    }
  }
  return std::nullopt;
}

std::vector<uint8_t> FailingRows(const Evaluation& evaluation, size_t length) {
  std::vector<uint8_t> fails(evaluation.state.size() / length, 0);
  for (size_t i = 0; i < evaluation.state.size(); ++i) {
    if (evaluation.state[i] == ElementState::kFailed) fails[i / length] = 1;
  }
  return fails;
}

// One reading while tiles are shown to it.
class Candidate {
 public:
  // every_row: rows that pass as asked have to be explained too.
  Candidate(const OutputView& view, const OtherReading& reading, bool every_row)
      : view_(view), info_(view.info()), reading_(reading), every_row_(every_row) {
    if (reading.observed_row) reordered_.emplace(view.observed, info_, reading.observed_row);
    for (const auto& make : reading.sources) {
      std::shared_ptr<const ExpectedSource> source = make();
      if (source != nullptr && IsLikeView(*source)) sources_.push_back(std::move(source));
    }
  }

  const OtherReading& reading() const { return reading_; }
  const ExpectedSource& source() const { return *sources_[0]; }
  bool empty() const { return sources_.empty(); }
  bool WantsAllRows() const {
    return reordered_.has_value() || reading_.of_every_row || every_row_;
  }

  // Whether a row of a tile is what some source expects; what it proves is not kept.
  bool MayExplain(const TileSpan& span, const JudgedTile& judged, int64_t row) const {
    const RowSample sample({std::vector<int64_t>{row}});
    return ExplainsRows(span, judged, {static_cast<size_t>(row - span.first_row)}, &sample,
                        [](const ExpectedTile&, const Evaluation&, size_t) {});
  }

  // Whether every row of the tile that must be explained is.
  bool Explains(const TileSpan& span, const JudgedTile& judged) {
    std::vector<size_t> open;
    for (size_t row = 0; row < judged.fails.size(); ++row) {
      if (WantsAllRows() || judged.fails[row] != 0) open.push_back(row);
    }
    const auto length = static_cast<size_t>(info_.row_length);
    return ExplainsRows(span, judged, std::move(open), nullptr,
                        [&](const ExpectedTile& tile, const Evaluation& evaluation, size_t row) {
                          Weigh(tile, evaluation, judged, row * length, (row + 1) * length);
                        });
  }

  // Whether what was explained could not have been so by chance, under bounds that say something.
  bool Convinces(size_t readings) const { return Convinces(readings, log_chance_); }

  // The same of a question that leaves nothing of the output outside its bounds: also where errors
  // are gone, each of which may be small. A vector that has nothing to do with them takes a share s
  // of N errors with probability (1 - s)^((N - 1) / 2) at most (hints.h). Where no element failed,
  // a fault of the statistics may not leave less of them: the errors of a truncated output, which
  // every element has, are less under many a question.
  bool ConvincesOfAll(size_t readings) const {
    for (const double left : fault_square_) {
      if (random_square_ > left + kStandardErrors * std::sqrt(2 * random_)) return false;
    }
    const double left = asked_square_ > 0 ? std::min(1.0, read_square_ / asked_square_) : 1;
    const auto count = static_cast<double>(std::max<int64_t>(explained_, 1));
    return Convinces(readings,
                     std::min(log_chance_, std::log(std::max(left, 0x1p-53)) * (count - 1) / 2));
  }

 private:
  // open: rows of the tile. sample: the rows that the sources need to give; nullptr: all.
  // explained(tile, evaluation, row) is called once for each row that a source explains.
  template <typename Explained>
  bool ExplainsRows(const TileSpan& span, const JudgedTile& judged, std::vector<size_t> open,
                    const RowSample* sample, const Explained& explained) const {
    const ObservedSource& from =
        reordered_ ? static_cast<const ObservedSource&>(*reordered_) : view_.observed;
    const ObservedTile observed = ReadObserved(from, info_, span.first_row, span.row_count);
    if (reading_.observed_is &&
        !std::all_of(observed.got.begin(), observed.got.end(), reading_.observed_is)) {
      return false;
    }
    for (const auto& source : sources_) {
      auto tile = TileAt(*source, view_.output, span, sample);
      if (!tile) return false;
      TakeGiven(observed, &*tile);
      const Evaluation evaluation = Evaluate(info_, *tile, observed, view_.special);
      std::erase_if(open, [&](size_t row) {
        if (!IsExplained(*tile, evaluation, judged, row)) return false;
        explained(*tile, evaluation, row);
        return true;
      });
    }
    return open.empty();
  }

  bool Convinces(size_t readings, double log_chance) const {
    const double tries =
        static_cast<double>(readings * sources_.size()) * static_cast<double>(reading_.picked_from);
    return 2 * proving_ >= explained_ && explained_ > 0 &&
           log_chance + std::log(tries) <= std::log(kFalseAlarm);
  }

  bool IsLikeView(const ExpectedSource& source) const {
    const auto index = static_cast<size_t>(view_.output);
    if (source.Outputs().size() <= index) return false;
    const OutputInfo& other = source.Outputs()[index];
    return other.name == info_.name && other.dtype == info_.dtype &&
           other.shape.SameExtents(info_.shape) && source.TileCount() == view_.source.TileCount();
  }

  bool IsExplained(const ExpectedTile& tile, const Evaluation& evaluation, const JudgedTile& judged,
                   size_t row) const {
    if (!tile.standing.empty() && tile.standing[row] != Standing::kJudged) return false;
    const auto length = static_cast<size_t>(info_.row_length);
    for (size_t i = row * length; i < (row + 1) * length; ++i) {
      const ElementState state = evaluation.state[i];
      const bool was_open = judged.evaluation.state[i] == ElementState::kNotJudged;
      if (state == ElementState::kFailed) return false;
      if (state == ElementState::kNotJudged && !was_open) return false;
    }
    return true;
  }

  void Weigh(const ExpectedTile& tile, const Evaluation& read, const JudgedTile& judged,
             size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (judged.statistics) WeighFaults(*judged.statistics, judged.evaluation.error[i], read, i);
      const double bound = info_.claim == Claim::kConformance ? 0 : tile.bound[i];
      const double mass = tile.mass.empty() ? std::fabs(tile.value[i]) : tile.mass[i];
      ++explained_;
      proving_ += bound <= kVacuousShare * mass ? 1 : 0;
      const double error = judged.evaluation.error[i];
      if (std::isfinite(error) && std::isfinite(read.error[i]) && bound > 0) {
        asked_square_ += error / bound * (error / bound);
        read_square_ += read.error[i] / bound * (read.error[i] / bound);
      }
      if (judged.evaluation.state[i] != ElementState::kFailed) continue;
      // A value from anywhere within the error would fall within the bound so seldom.
      const double chance =
          std::isfinite(error) && error != 0 ? std::min(1.0, 2 * bound / std::fabs(error)) : 1;
      log_chance_ += std::log(std::max(chance, 0x1p-53));
    }
  }

  void WeighFaults(const TileStatistics& statistics, double error, const Evaluation& read,
                   size_t i) {
    const double variance = statistics.sigma_squared[i];
    if (!(variance > 0) || !std::isfinite(read.error[i]) || !std::isfinite(error)) return;
    ++random_;
    random_square_ += read.error[i] / variance * read.error[i];
    fault_square_.resize(statistics.effect.size());
    for (size_t k = 0; k < fault_square_.size(); ++k) {
      const double left = error - statistics.effect[k][i];
      fault_square_[k] += left / variance * left;
    }
  }

  const OutputView& view_;
  const OutputInfo& info_;
  const OtherReading& reading_;
  const bool every_row_;
  std::vector<std::shared_ptr<const ExpectedSource>> sources_;
  std::optional<ReorderedRows> reordered_;
  int64_t explained_ = 0;
  int64_t proving_ = 0;
  double log_chance_ = 0;
  double asked_square_ = 0, read_square_ = 0;  // of errors over the bounds of the reading
  // Of errors over the deviation of roundings, in rows that statistics look at: those of the
  // reading, what each fault leaves of those as asked, and how many they are.
  double random_square_ = 0;
  std::vector<double> fault_square_;
  double random_ = 0;
};

using Candidates = std::vector<std::unique_ptr<Candidate>>;

// Those that explain every row that they must: of tiles that fail, or of all.
Candidates Surviving(const OutputView& view, const std::vector<TileSpan>& spans,
                     const std::vector<OtherReading>& readings, bool every_row = false) {
  const auto judged_tile = [&](const TileSpan& span) -> std::optional<JudgedTile> {
    auto tile = TileAt(view.source, view.output, span, nullptr, every_row);
    if (!tile) return std::nullopt;
    const ObservedTile observed =
        ReadObserved(view.observed, view.info(), span.first_row, span.row_count);
    TakeGiven(observed, &*tile);
    JudgedTile judged;
    judged.evaluation = Evaluate(view.info(), *tile, observed, view.special);
    judged.fails = FailingRows(judged.evaluation, static_cast<size_t>(view.info().row_length));
    judged.statistics = std::move(tile->statistics);
    return judged;
  };
  const auto first = std::find_if(spans.begin(), spans.end(), [&](const TileSpan& span) {
    return span.failed > 0 || every_row;
  });
  if (readings.empty() || first == spans.end()) return {};
  const auto first_judged = judged_tile(*first);
  if (!first_judged) return {};
  // Most are refuted by a row or two: only what is left is asked of more, and keeps its inputs.
  std::vector<int64_t> few;
  for (size_t row = 0; row < first_judged->fails.size() && few.size() < kScreenRows; ++row) {
    if (first_judged->fails[row] != 0 || every_row) {
      few.push_back(first->first_row + static_cast<int64_t>(row));
    }
  }
  Candidates alive;
  for (const OtherReading& reading : readings) {
    auto candidate = std::make_unique<Candidate>(view, reading, every_row);
    const bool may_explain =
        !candidate->empty() && std::all_of(few.begin(), few.end(), [&](int64_t row) {
          return candidate->MayExplain(*first, *first_judged, row);
        });
    if (may_explain && candidate->Explains(*first, *first_judged)) {
      alive.push_back(std::move(candidate));
    }
  }
  const auto asked = [&](const TileSpan& span) {
    return &span != &*first &&
           (span.failed > 0 || std::any_of(alive.begin(), alive.end(), [](const auto& candidate) {
              return candidate->WantsAllRows();
            }));
  };
  const auto tiles = static_cast<size_t>(std::count_if(spans.begin(), spans.end(), asked));
  size_t at = 0;
  for (auto span = spans.begin(); span != spans.end() && !alive.empty(); ++span) {
    if (!asked(*span)) continue;
    // As many of the tiles as are asked at most, spread over all.
    const size_t index = at++;
    if (tiles > kReadingTiles &&
        index * kReadingTiles / tiles == (index + 1) * kReadingTiles / tiles) {
      continue;
    }
    const auto judged = judged_tile(*span);
    if (!judged) return {};
    std::erase_if(alive, [&](const auto& candidate) {
      if (span->failed == 0 && !candidate->WantsAllRows()) return false;
      return !candidate->Explains(*span, *judged);
    });
  }
  return alive;
}

}  // namespace

std::string ExplainingCompletion(const OutputView& view, const std::vector<TileSpan>& spans,
                                 int64_t row,
                                 const std::function<bool(const ExpectedSource& source)>& passes) {
  const ObservedTile observed = ReadObserved(view.observed, view.info(), row, 1);
  const std::vector<OtherReading> completions =
      view.source.Completions(view.output, row, observed.got);
  if (completions.empty()) return "";
  // Where no element fails, but what many of them have in common: some tiles, all rows.
  const bool any_fails =
      std::any_of(spans.begin(), spans.end(), [](const TileSpan& span) { return span.failed > 0; });
  std::vector<TileSpan> some;
  for (size_t i = 0; !any_fails && i < kCompletionTiles && i < spans.size(); ++i) {
    some.push_back(spans[i * spans.size() / std::min(kCompletionTiles, spans.size())]);
  }
  for (const auto& candidate :
       Surviving(view, any_fails ? spans : some, completions, /*every_row=*/!any_fails)) {
    if (candidate->ConvincesOfAll(completions.size()) && passes(candidate->source())) {
      return candidate->reading().text;
    }
  }
  return "";
}

std::vector<ExplainedReading> ExplainingReadings(
    const OutputView& view, const std::vector<TileSpan>& spans,
    const std::function<bool(const ExpectedSource& source)>& passes) {
  const std::vector<OtherReading> readings = view.source.OtherReadings(view.output);
  const Candidates alive = Surviving(view, spans, readings);
  std::vector<ExplainedReading> explained;
  for (const auto& candidate : alive) {
    const OtherReading& reading = candidate->reading();
    if (explained.size() == kMostReadings) break;
    // A mistake that explains everything leaves nothing to declare.
    if (reading.declared && !explained.empty() && !explained[0].declared) break;
    // Of changes together, where one of them is enough.
    const bool has_part = std::any_of(explained.begin(), explained.end(), [&](const auto& part) {
      if (reading.declared) return part.declared && reading.declared->Contains(*part.declared);
      return reading.name != part.name &&
             (" and " + reading.name + " and ").find(" and " + part.name + " and ") !=
                 std::string::npos;
    });
    if (has_part) continue;
    const bool holds =
        reading.declared ? passes(candidate->source()) : candidate->Convinces(readings.size());
    if (holds) explained.push_back({reading.name, reading.text, reading.declared});
    if (holds && reading.is_sufficient) break;
  }
  return explained;
}

}  // namespace kvcheck
