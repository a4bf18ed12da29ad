#include "tools/agree/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "reference/model/propagation.h"
#include "reference/spec/error.h"
#include "tools/agree/prefix_hit.h"
#include "tools/agree/reference_logits.h"

namespace kvcheck {
namespace {

// Tokens of a sequence that are judged together: an attention case of so many queries.
constexpr int64_t kJudgedTokens = 128;
// Tokens over which the noise floor is measured.
constexpr int64_t kNoiseTokens = 512;

std::vector<double> Doubles(const float* values, int64_t count) { return {values, values + count}; }

// Everything that is the same for all storages.
class Campaign {
 public:
  Campaign(const AgreeQuestion& question, const Cancel& cancel)
      : question_(question),
        cancel_(cancel),
        weights_(question.model.config, question.model.weights),
        decoder_(question.model.config, question.model.weights, question.threads),
        windows_(WindowsOf(question)) {
    for (const TextWindow& window : windows_) {
      full_.push_back(FullPrecisionLogits(weights_, window, question.threads, cancel));
    }
  }

  // stored: null, or given the reference's logits over the stored bytes, by window.
  AgreeReport Run(std::vector<Matrix>* stored) {
    AgreeReport report;
    report.sequences = static_cast<int64_t>(windows_.size());
    stored_ = stored;
    if (stored != nullptr) {
      stored->clear();
      for (const Matrix& full : full_) stored->emplace_back(full.rows, full.columns);
    }
    for (const PathStorage& storage : question_.storages) {
      report.storages.push_back(RunStorage(storage));
    }
    const AgreementFigures& any = report.storages.front().quality;
    report.positions = any.positions;
    report.reference_bits = any.reference_bits;
    return report;
  }

 private:
  int64_t vocabulary() const { return question_.model.config.vocabulary; }
  int64_t Batches() const {
    return (static_cast<int64_t>(windows_.size()) + question_.batch - 1) / question_.batch;
  }

  std::vector<std::span<const int64_t>> BatchOf(int64_t first, int64_t count, int64_t most) const {
    std::vector<std::span<const int64_t>> rows;
    for (int64_t i = first; i < first + count; ++i) {
      const std::span<const int64_t> all = windows_[static_cast<size_t>(i)].tokens;
      rows.push_back(all.first(std::min(all.size(), static_cast<size_t>(most))));
    }
    return rows;
  }

  StorageFigures RunStorage(const PathStorage& storage) {
    StorageFigures figures;
    figures.storage = storage;
    std::vector<PositionFigures> quality, correctness;
    std::vector<double> propagated;
    for (int64_t b = 0; b < Batches(); ++b) {
      const int64_t first = b * question_.batch;
      const int64_t rows = std::min(question_.batch, static_cast<int64_t>(windows_.size()) - first);
      JudgeBatch(storage, first, rows, &figures, &quality, &correctness, &propagated);
    }
    figures.quality = Summarize(quality);
    figures.correctness = Summarize(correctness);
    if (!propagated.empty()) {
      std::sort(propagated.begin(), propagated.end());
      figures.propagated_median = propagated[(propagated.size() - 1) / 2];
      figures.propagated_largest = propagated.back();
    }
    MeasureNoise(storage, &figures);
    if (question_.batch > 1) MeasureSingle(storage, &figures);
    if (question_.times) figures.times = TimeOf(storage, question_.batch);
    Conclude(&figures);
    return figures;
  }

  void JudgeBatch(const PathStorage& storage, int64_t first, int64_t rows, StorageFigures* figures,
                  std::vector<PositionFigures>* quality, std::vector<PositionFigures>* correctness,
                  std::vector<double>* propagated) {
    PathRun run(&decoder_, storage, BatchOf(first, rows, question_.context));
    const CacheCapabilities capabilities = run.capabilities();
    StepQuestion steps;
    steps.weights = &weights_;
    steps.profile = capabilities.profile;
    steps.threads = question_.threads;
    Recorder recorder(question_.model.config, rows, capabilities.plan);
    std::vector<DecoderSequence> references;
    for (int64_t r = 0; r < rows; ++r) references.emplace_back(weights_, question_.threads);

    std::vector<StepFinding> findings;
    // By row: blocks of the bootstrap are neighbours in one text.
    std::vector<std::vector<PositionFigures>> row_quality(static_cast<size_t>(rows));
    std::vector<std::vector<PositionFigures>> row_correctness(static_cast<size_t>(rows));
    const std::function<void(int64_t)> judge = [&](int64_t r) {
      cancel_();
      SequenceRecord& record = recorder.row(r);
      if (record.pending == 0) return;
      const int64_t sequence = first + r;
      const TextWindow& window = windows_[static_cast<size_t>(sequence)];
      JudgeSteps(steps, record, sequence, &findings, &figures->steps);
      DecoderSequence& reference = references[static_cast<size_t>(r)];
      const Matrix stored = reference.Forward(
          std::span(window.tokens)
              .subspan(static_cast<size_t>(record.first), static_cast<size_t>(record.pending)),
          StoredRowsOf(steps, record));
      if (stored_ != nullptr) {
        std::copy(stored.values.begin(), stored.values.end(),
                  (*stored_)[static_cast<size_t>(sequence)].Row(record.first));
      }
      Compare(steps, record, sequence, reference, stored, figures,
              &row_quality[static_cast<size_t>(r)], &row_correctness[static_cast<size_t>(r)],
              propagated);
      recorder.Clear(r);
    };
    recorder.OnOtherPlan(judge);
    run.Run(TeacherForcedSteps(run.columns(), question_.chunk), &recorder,
            [&](std::span<const int64_t>, int64_t, std::span<const float>) {
              for (int64_t r = 0; r < rows; ++r) {
                if (recorder.row(r).pending >= kJudgedTokens) judge(r);
              }
            });
    int64_t bytes = 0;
    int64_t tokens = 0;
    for (int64_t r = 0; r < rows; ++r) {
      judge(r);
      const auto& row_figures = row_quality[static_cast<size_t>(r)];
      quality->insert(quality->end(), row_figures.begin(), row_figures.end());
      const auto& row_same = row_correctness[static_cast<size_t>(r)];
      correctness->insert(correctness->end(), row_same.begin(), row_same.end());
      bytes = std::max(bytes, recorder.row(r).live_bytes);
      tokens += static_cast<int64_t>(windows_[static_cast<size_t>(first + r)].tokens.size());
    }
    if (first == 0) {
      figures->bytes_per_token = static_cast<double>(bytes) / static_cast<double>(tokens);
    }
    for (StepFinding& finding : findings) {
      (finding.outcome == Outcome::kFail ? figures->steps_failed : figures->steps_mistrusted) += 1;
      if (!figures->first || ComesBefore(finding, *figures->first)) {
        figures->first = std::move(finding);
      }
    }
  }

  void Compare(const StepQuestion& steps, const SequenceRecord& record, int64_t sequence,
               const DecoderSequence& reference, const Matrix& stored, StorageFigures* figures,
               std::vector<PositionFigures>* quality, std::vector<PositionFigures>* correctness,
               std::vector<double>* propagated) const {
    const TextWindow& window = windows_[static_cast<size_t>(sequence)];
    const Matrix& full = full_[static_cast<size_t>(sequence)];
    const auto width = static_cast<size_t>(vocabulary());
    // The least certain position of the chunk shows how large propagated bounds are.
    int64_t closest = 0;
    double least = HUGE_VAL;
    std::vector<int64_t> flipped;
    for (int64_t t = 0; t < record.pending; ++t) {
      const std::vector<double> got =
          Doubles(record.logits.data() + static_cast<size_t>(t) * width, vocabulary());
      const std::span<const double> expected(stored.Row(t), width);
      const int64_t position = record.first + t;
      const int64_t next = window.next[static_cast<size_t>(position)];
      quality->push_back(ComparePosition({full.Row(position), width}, got, next));
      correctness->push_back(ComparePosition(expected, got, next));
      if (!correctness->back().same_top1) flipped.push_back(t);
      const double margin = Margin(expected);
      if (margin < least) least = margin, closest = t;
    }
    const auto moved = [&](int64_t t, int64_t a, int64_t b) {
      const double bound =
          PropagatedError(weights_, reference, t, a, b, BoundsOf(steps, record, t));
      propagated->push_back(bound);
      return bound;
    };
    const int64_t a = Top1({stored.Row(closest), width});
    const int64_t b = Second({stored.Row(closest), width}, a);
    const float* got = record.logits.data() + static_cast<size_t>(closest) * width;
    const double change = (static_cast<double>(got[a]) - static_cast<double>(got[b])) -
                          (stored.Row(closest)[a] - stored.Row(closest)[b]);
    const double share = std::fabs(change) / moved(closest, a, b);
    if (!(share <= figures->propagated_share)) figures->propagated_share = share;
    for (const int64_t t : flipped) {
      const std::vector<double> path =
          Doubles(record.logits.data() + static_cast<size_t>(t) * width, vocabulary());
      Flip flip;
      flip.sequence = sequence;
      flip.position = record.first + t;
      flip.expected = Top1({stored.Row(t), width});
      flip.got = Top1(path);
      flip.margin = stored.Row(t)[flip.expected] - stored.Row(t)[flip.got];
      flip.propagated = moved(t, flip.expected, flip.got);
      figures->excused += flip.excused() ? 1 : 0;
      figures->flips.push_back(flip);
    }
  }

  static int64_t Second(std::span<const double> logits, int64_t top) {
    int64_t second = top == 0 ? 1 : 0;
    for (int64_t i = 0; i < static_cast<int64_t>(logits.size()); ++i) {
      if (i != top && logits[static_cast<size_t>(i)] > logits[static_cast<size_t>(second)]) {
        second = i;
      }
    }
    return second;
  }
  static double Margin(std::span<const double> logits) {
    const int64_t top = Top1(logits);
    return logits[static_cast<size_t>(top)] - logits[static_cast<size_t>(Second(logits, top))];
  }

  // Logits of the rows, each (tokens, vocabulary).
  std::vector<std::vector<float>> LogitsOf(const PathStorage& storage,
                                           std::vector<std::span<const int64_t>> rows,
                                           int64_t chunk) {
    PathRun run(&decoder_, storage, rows);
    std::vector<std::vector<float>> logits(rows.size());
    run.Run(TeacherForcedSteps(run.columns(), chunk), nullptr,
            [&](std::span<const int64_t> positions, int64_t columns, std::span<const float> all) {
              cancel_();
              for (size_t i = 0; i < positions.size(); ++i) {
                if (positions[i] == optimized::kPadding) continue;
                const auto from = all.subspan(i * static_cast<size_t>(vocabulary()),
                                              static_cast<size_t>(vocabulary()));
                auto& to = logits[i / static_cast<size_t>(columns)];
                to.insert(to.end(), from.begin(), from.end());
              }
            });
    return logits;
  }

  NoiseFloor Difference(std::string what, const std::vector<float>& a,
                        const std::vector<float>& b) const {
    NoiseFloor noise;
    noise.what = std::move(what);
    const auto width = static_cast<size_t>(vocabulary());
    for (size_t t = 0; t + width <= a.size(); t += width, ++noise.positions) {
      const std::vector<double> x(a.begin() + static_cast<ptrdiff_t>(t),
                                  a.begin() + static_cast<ptrdiff_t>(t + width));
      const std::vector<double> y(b.begin() + static_cast<ptrdiff_t>(t),
                                  b.begin() + static_cast<ptrdiff_t>(t + width));
      const PositionFigures figures = ComparePosition(x, y, 0);
      noise.flips += figures.same_top1 ? 0 : 1;
      noise.kl_max = std::max(noise.kl_max, figures.kl);
      for (size_t i = 0; i < width; ++i) {
        noise.largest = std::max(noise.largest, std::fabs(x[i] - y[i]));
      }
    }
    return noise;
  }

  // The same path, other chunks, beside another row, and behind a hit of a prefix cache.
  void MeasureNoise(const PathStorage& storage, StorageFigures* figures) {
    const auto alone = BatchOf(0, 1, kNoiseTokens);
    const std::vector<float> base = LogitsOf(storage, alone, question_.chunk).front();
    // Coprime to blocks of 16, 64 and 128, so that chunks end anywhere in them.
    constexpr int64_t kOtherChunk = 37;
    figures->noise.push_back(Difference(fmt::format("chunks of {}", kOtherChunk), base,
                                        LogitsOf(storage, alone, kOtherChunk).front()));
    std::vector<std::span<const int64_t>> pair = alone;
    pair.push_back(alone.front().first(alone.front().size() - alone.front().size() / 3));
    figures->noise.push_back(Difference("a batch of 2, the other row padded", base,
                                        LogitsOf(storage, pair, question_.chunk).front()));
    const BehindHit hit = FeedBehindHit(&decoder_, storage, alone.front(), question_.chunk);
    const auto fresh = base.begin() + static_cast<ptrdiff_t>(hit.hit_tokens * vocabulary());
    figures->noise.push_back(Difference(fmt::format("{} tokens of a prefix cache", hit.hit_tokens),
                                        {fresh, base.end()}, hit.logits));
  }

  void MeasureSingle(const PathStorage& storage, StorageFigures* figures) {
    std::vector<PositionFigures> single;
    const auto width = static_cast<size_t>(vocabulary());
    NoiseFloor rows;
    rows.what = "rows one by one";
    for (int64_t b = 0; b < Batches(); ++b) {
      const int64_t first = b * question_.batch;
      const int64_t count =
          std::min(question_.batch, static_cast<int64_t>(windows_.size()) - first);
      const auto batch =
          LogitsOf(storage, BatchOf(first, count, question_.context), question_.chunk);
      for (int64_t r = 0; r < count; ++r) {
        const std::vector<float> alone =
            LogitsOf(storage, BatchOf(first + r, 1, question_.context), question_.chunk).front();
        const NoiseFloor row = Difference("", batch[static_cast<size_t>(r)], alone);
        rows.positions += row.positions;
        rows.flips += row.flips;
        rows.largest = std::max(rows.largest, row.largest);
        rows.kl_max = std::max(rows.kl_max, row.kl_max);
        const auto sequence = static_cast<size_t>(first + r);
        for (int64_t t = 0; t < full_[sequence].rows; ++t) {
          single.push_back(
              ComparePosition({full_[sequence].Row(t), width},
                              Doubles(alone.data() + static_cast<size_t>(t) * width, vocabulary()),
                              windows_[sequence].next[static_cast<size_t>(t)]));
        }
      }
    }
    figures->noise.push_back(rows);
    figures->single = Summarize(single);
    if (question_.times) figures->single_times = TimeOf(storage, 1);
  }

  // The first rows, as batches of `batch`.
  PathTimes TimeOf(const PathStorage& storage, int64_t batch) {
    using Clock = std::chrono::steady_clock;
    double prefill = 0, decode = 0, prefilled = 0, decoded = 0;
    const int64_t rows = std::min(question_.batch, static_cast<int64_t>(windows_.size()));
    for (int64_t first = 0; first < rows; first += batch) {
      PathRun run(&decoder_, storage,
                  BatchOf(first, std::min(batch, rows - first), question_.context));
      const std::vector<PathStep> steps =
          WithoutDrafts(TeacherForcedSteps(run.columns(), question_.chunk));
      auto last = Clock::now();
      run.Run(steps, nullptr,
              [&](std::span<const int64_t> positions, int64_t columns, std::span<const float>) {
                cancel_();
                const auto now = Clock::now();
                const double seconds = std::chrono::duration<double>(now - last).count();
                last = now;
                const auto tokens = static_cast<double>(std::count_if(
                    positions.begin(), positions.end(),
                    [](int64_t position) { return position != optimized::kPadding; }));
                (columns > 1 ? prefill : decode) += seconds;
                (columns > 1 ? prefilled : decoded) += tokens;
              });
    }
    return {prefill > 0 ? prefilled / prefill : 0, decode > 0 ? decoded / decode : 0};
  }

  static void Conclude(StorageFigures* figures) {
    const auto unexcused = static_cast<int64_t>(figures->flips.size()) - figures->excused;
    const auto say = [&](Outcome outcome, std::string why) {
      if (Combine(figures->outcome, outcome) == figures->outcome) return;
      figures->outcome = outcome;
      figures->why = std::move(why);
    };
    if (figures->steps_failed > 0) say(Outcome::kFail, Print(*figures->first));
    if (unexcused > 0) {
      const auto flip = std::find_if(figures->flips.begin(), figures->flips.end(),
                                     [](const Flip& f) { return !f.excused(); });
      say(Outcome::kFail,
          fmt::format("token {} of sequence {}: top-1 is {} instead of {}, whose margin {:.2g} is "
                      "more than the {:.2g} that arithmetic explains",
                      flip->position, flip->sequence, flip->got, flip->expected, flip->margin,
                      flip->propagated));
    }
    if (!(figures->propagated_share <= 1)) {
      say(Outcome::kFail, fmt::format("a margin moved by {:.3g} times what arithmetic explains",
                                      figures->propagated_share));
    }
    if (figures->steps_mistrusted > 0) say(Outcome::kMistrusted, Print(*figures->first));
    const auto positions = static_cast<double>(figures->correctness.positions);
    if (!(static_cast<double>(figures->excused) <= kMostExcused * positions)) {
      say(Outcome::kMistrusted, fmt::format("{} of {} positions are excused flips",
                                            figures->excused, figures->correctness.positions));
    }
    if (figures->steps.elements == 0) say(Outcome::kMistrusted, "nothing was judged");
  }

  const AgreeQuestion& question_;
  const Cancel& cancel_;
  DecoderWeights weights_;
  optimized::Decoder decoder_;
  std::vector<TextWindow> windows_;
  std::vector<Matrix> full_;
  std::vector<Matrix>* stored_ = nullptr;
};

}  // namespace

Outcome AgreeReport::outcome() const {
  Outcome outcome = Outcome::kPass;
  for (const StorageFigures& figures : storages) outcome = Combine(outcome, figures.outcome);
  return outcome;
}

std::vector<TextWindow> WindowsOf(const AgreeQuestion& question) {
  if (question.batch < 1 || question.context < 1 || question.positions < 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("batch {}, context {} and positions {} must each be at least 1",
                            question.batch, question.context, question.positions));
  }
  // Rows of a batch get shorter by an odd share of the context, so that padding ends anywhere.
  const auto length = [&](int64_t context, int64_t row) {
    const int64_t step = question.batch > 1 ? context / (3 * question.batch) | 1 : 0;
    return std::max<int64_t>(1, context - row * step);
  };
  const auto of_batch = [&](int64_t context) {
    int64_t sum = 0;
    for (int64_t row = 0; row < question.batch; ++row) sum += length(context, row);
    return sum;
  };
  int64_t context = question.context;
  if (of_batch(context) > question.positions) {
    context = std::max<int64_t>(1, question.positions / question.batch);
    while (of_batch(context) < question.positions) ++context;
  }
  const int64_t batches = (question.positions + of_batch(context) - 1) / of_batch(context);
  const auto text = static_cast<int64_t>(question.text.size());
  if (batches * of_batch(context) > text) {
    throw Error(ErrorCode::kSelection,
                fmt::format("the text has {} tokens, and {} positions need {}: ask for fewer, or "
                            "give a longer one",
                            text, question.positions, batches * of_batch(context)),
                question.text_path);
  }
  std::vector<TextWindow> windows;
  int64_t at = 0;
  for (int64_t i = 0; i < batches * question.batch; ++i) {
    TextWindow window;
    window.tokens.push_back(question.model.config.bos);
    for (const int64_t end = at + length(context, i % question.batch); at < end; ++at) {
      window.next.push_back(question.text[static_cast<size_t>(at)]);
      if (at + 1 < end) window.tokens.push_back(window.next.back());
    }
    windows.push_back(std::move(window));
  }
  return windows;
}

AgreeReport Agree(const AgreeQuestion& question, const Cancel& cancel,
                  std::vector<Matrix>* stored) {
  KVCHECK_CHECK(stored == nullptr || question.storages.size() == 1,
                "stored logits are those of one storage");
  return Campaign(question, cancel).Run(stored);
}

}  // namespace kvcheck
