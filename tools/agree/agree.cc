#include "tools/agree/agree.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "reference/spec/error.h"
#include "tools/agree/reference_logits.h"

namespace kvcheck {
namespace {

// Tokens of a sequence that are judged together: an attention case of so many queries.
constexpr int64_t kJudgedTokens = 128;
// Tokens over which the noise floor is measured.
constexpr int64_t kNoiseTokens = 512;

// Everything that is the same for all storages.
class Campaign {
 public:
  Campaign(const AgreeQuestion& question, const Cancel& cancel)
      : question_(question),
        cancel_(cancel),
        weights_(question.model.config, question.model.weights),
        decoder_(question.model.config, question.model.weights, question.threads),
        windows_(WindowsOf(question)) {}

  // stored: null, or given the reference's logits over the stored bytes, by window. When it is
  // cancelled the report is of what was done until then.
  AgreeReport Run(std::vector<Matrix>* stored, const std::function<void(AgreeReport)>& so_far) {
    AgreeReport report;
    report.sequences = static_cast<int64_t>(windows_.size());
    stored_ = stored;
    try {
      for (const TextWindow& window : windows_) {
        full_.push_back(FullPrecisionLogits(weights_, window, question_.threads, cancel_));
      }
    } catch (const Cancelled&) {
      report.interrupted = true;
      return report;
    }
    if (stored != nullptr) {
      stored->clear();
      for (const Matrix& full : full_) stored->emplace_back(full.rows, full.columns);
    }
    for (const PathStorage& storage : question_.storages) {
      report.storages.push_back(RunStorage(storage));
      report.interrupted = report.storages.back().interrupted;
      const AgreementFigures& any = report.storages.front().quality;
      report.positions = any.positions;
      report.reference_bits = any.reference_bits;
      if (report.interrupted) break;
      if (!so_far || report.storages.size() == question_.storages.size()) continue;
      AgreeReport partial = report;
      partial.interrupted = true;
      so_far(std::move(partial));
    }
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

  // What the path says of position t of a sequence beside the reference in full precision.
  PositionFigures BesideFull(int64_t sequence, int64_t t, const float* logits) const {
    const auto width = static_cast<size_t>(vocabulary());
    const auto at = static_cast<size_t>(sequence);
    return ComparePosition({full_[at].Row(t), width}, std::vector<double>(logits, logits + width),
                           windows_[at].next[static_cast<size_t>(t)]);
  }

  // By sequence: blocks of the bootstrap are neighbours in one text.
  struct ComparedPositions {
    std::vector<std::vector<PositionFigures>> quality, correctness;
    std::vector<double> propagated;  // a chunk each
  };

  StorageFigures RunStorage(const PathStorage& storage) {
    StorageFigures figures;
    figures.storage = storage;
    ComparedPositions compared;
    compared.quality.resize(windows_.size());
    compared.correctness.resize(windows_.size());
    // Steps that were judged before it was cancelled stay judged.
    const auto until_cancelled = [&](const std::function<void()>& work) {
      if (figures.interrupted) return;
      try {
        work();
      } catch (const Cancelled&) {
        figures.interrupted = true;
      }
    };
    until_cancelled([&] {
      for (int64_t b = 0; b < Batches(); ++b) {
        const int64_t first = b * question_.batch;
        const int64_t rows =
            std::min(question_.batch, static_cast<int64_t>(windows_.size()) - first);
        JudgeBatch(storage, first, rows, &figures, &compared);
      }
    });
    figures.quality = Summarize(Joined(compared.quality));
    figures.correctness = Summarize(Joined(compared.correctness));
    std::vector<double>& propagated = compared.propagated;
    if (!propagated.empty()) {
      std::sort(propagated.begin(), propagated.end());
      figures.propagated_median = propagated[(propagated.size() - 1) / 2];
      figures.propagated_largest = propagated.back();
    }
    until_cancelled([&] {
      figures.noise = MeasureNoise(&decoder_, storage, BatchOf(0, 1, kNoiseTokens).front(),
                                   question_.chunk, cancel_);
    });
    until_cancelled([&] {
      if (question_.batch > 1) MeasureSingle(storage, &figures);
    });
    until_cancelled([&] {
      if (question_.times) figures.times = TimeOf(storage, question_.batch);
    });
    Conclude(&figures);
    return figures;
  }

  static std::vector<PositionFigures> Joined(
      const std::vector<std::vector<PositionFigures>>& sequences) {
    std::vector<PositionFigures> all;
    for (const auto& one : sequences) all.insert(all.end(), one.begin(), one.end());
    return all;
  }

  void JudgeBatch(const PathStorage& storage, int64_t first, int64_t rows, StorageFigures* figures,
                  ComparedPositions* compared) {
    PathRun run(&decoder_, storage, BatchOf(first, rows, question_.context));
    const CacheCapabilities capabilities = run.capabilities();
    StepQuestion steps;
    steps.weights = &weights_;
    steps.profile = capabilities.profile;
    steps.threads = question_.threads;
    Recorder recorder(question_.model.config, rows, capabilities.plan);
    std::vector<DecoderSequence> references;
    for (int64_t r = 0; r < rows; ++r) references.emplace_back(weights_, question_.threads);

    const std::function<void(int64_t)> judge = [&](int64_t r) {
      cancel_();
      SequenceRecord& record = recorder.row(r);
      if (record.pending == 0) return;
      const int64_t sequence = first + r;
      std::vector<StepFinding> findings;
      JudgeSteps(steps, record, sequence, &findings, &figures->steps);
      Count(std::move(findings), figures);
      DecoderSequence& reference = references[static_cast<size_t>(r)];
      const Matrix stored = reference.Forward(
          std::span(windows_[static_cast<size_t>(sequence)].tokens)
              .subspan(static_cast<size_t>(record.first), static_cast<size_t>(record.pending)),
          StoredRowsOf(steps, record));
      if (stored_ != nullptr) {
        std::copy(stored.values.begin(), stored.values.end(),
                  (*stored_)[static_cast<size_t>(sequence)].Row(record.first));
      }
      Compare({steps, record, sequence, reference, stored}, figures, compared);
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
      bytes = std::max(bytes, recorder.row(r).live_bytes);
      tokens += static_cast<int64_t>(windows_[static_cast<size_t>(first + r)].tokens.size());
    }
    if (first == 0) {
      figures->bytes_per_token = static_cast<double>(bytes) / static_cast<double>(tokens);
    }
  }

  static void Count(std::vector<StepFinding> findings, StorageFigures* figures) {
    for (StepFinding& finding : findings) {
      (finding.outcome == Outcome::kFail ? figures->steps_failed : figures->steps_mistrusted) += 1;
      if (!figures->first || ComesBefore(finding, *figures->first)) {
        figures->first = std::move(finding);
      }
    }
  }

  // A chunk beside the reference, in full precision and over the stored bytes.
  void Compare(const FlipQuestion& chunk, StorageFigures* figures,
               ComparedPositions* compared) const {
    const auto sequence = static_cast<size_t>(chunk.sequence);
    const auto width = static_cast<size_t>(vocabulary());
    for (int64_t t = 0; t < chunk.record.pending; ++t) {
      const int64_t position = chunk.record.first + t;
      const float* got = chunk.record.logits.data() + static_cast<size_t>(t) * width;
      compared->quality[sequence].push_back(BesideFull(chunk.sequence, position, got));
      compared->correctness[sequence].push_back(
          ComparePosition({chunk.stored.Row(t), width}, std::vector<double>(got, got + width),
                          windows_[sequence].next[static_cast<size_t>(position)]));
    }
    ChunkFlips judged = JudgeFlips(chunk);
    compared->propagated.push_back(judged.least_propagated);
    // A share that is NaN stays.
    if (!(judged.least_share <= figures->propagated_share)) {
      figures->propagated_share = judged.least_share;
    }
    for (Flip& flip : judged.flips) {
      figures->excused += flip.excused() ? 1 : 0;
      figures->flips.push_back(std::move(flip));
    }
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
      const auto batch = FeedRows(&decoder_, storage, BatchOf(first, count, question_.context),
                                  question_.chunk, cancel_);
      for (int64_t r = 0; r < count; ++r) {
        const std::vector<float> alone =
            FeedRows(&decoder_, storage, BatchOf(first + r, 1, question_.context), question_.chunk,
                     cancel_)
                .front();
        rows.Add(Difference("", vocabulary(), batch[static_cast<size_t>(r)], alone));
        const int64_t tokens = full_[static_cast<size_t>(first + r)].rows;
        for (int64_t t = 0; t < tokens; ++t) {
          single.push_back(BesideFull(first + r, t, alone.data() + static_cast<size_t>(t) * width));
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
  Outcome outcome = interrupted ? Outcome::kMistrusted : Outcome::kPass;
  for (const StorageFigures& figures : storages) outcome = Combine(outcome, figures.outcome);
  return outcome;
}

AgreeReport Agree(const AgreeQuestion& question, const Cancel& cancel, std::vector<Matrix>* stored,
                  const std::function<void(AgreeReport)>& so_far) {
  KVCHECK_CHECK(stored == nullptr || question.storages.size() == 1,
                "stored logits are those of one storage");
  return Campaign(question, cancel).Run(stored, so_far);
}

}  // namespace kvcheck
