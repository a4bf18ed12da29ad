#include "tools/campaign/fuzz_campaign.h"

#include <algorithm>
#include <memory>

#include "reference/spec/error.h"
#include "tools/campaign/contained_call.h"
#include "tools/campaign/worker_pool.h"
#include "tools/process/attended_clock.h"
#include "tools/process/message_codec.h"

namespace kvcheck {
namespace {

// Time in which the campaign is suspended is not time that it had.
using Clock = AttendedClock;

// While a hang is made smaller, a candidate hangs that takes this part of the limit: cases take
// microseconds. The result is held to the whole limit.
constexpr int64_t kShrinkLimitDivisor = 20;
constexpr std::chrono::milliseconds kLeastShrinkLimit{250};
// Each candidate that still hangs costs its limit.
constexpr int64_t kHangRuns = 200;

ChildLimits LimitsOf(std::chrono::milliseconds since_progress) {
  ChildLimits limits;
  limits.since_progress = since_progress;
  limits.address_space_bytes = kWorkerBytes;
  return limits;
}

bool Interrupted(const CampaignOptions& options) {
  return options.interrupted && options.interrupted();
}

// Draws and judges a stretch of cases; in a worker.
EvaluateBatch MakeEvaluator(const Subject& subject, const CampaignOptions& options) {
  std::shared_ptr<CaseJudge> judge = subject.MakeJudge(options.since_progress);
  return [&subject, &options, judge](const Batch& batch, ItemMark& mark) {
    FuzzTally tally;
    tally.counts.probes.resize(subject.ProbeNames().size());
    for (int64_t item = batch.first; item < batch.end(); ++item) {
      mark.StartItem(item);
      const int64_t index = options.offset + options.stride * item;
      tally.Add(index, judge->Judge(subject.Draw(index), mark, &tally.counts));
      if (!options.keep_going && tally.failed > 0) break;
    }
    return Encode(tally);
  };
}

// Judges one case after the other in a child of its own.
class LoneJudge {
 public:
  LoneJudge(const Subject& subject, std::chrono::milliseconds limit)
      : subject_(subject), call_(LimitsOf(WorkerLimit(subject, limit)), [&subject, limit] {
          std::shared_ptr<CaseJudge> judge = subject.MakeJudge(limit);
          return [judge](const Message& message, ItemMark& mark) {
            const std::string text = MessageDecoder(message).Text();
            CaseCounts counts;
            const JudgedCase judged =
                judge->Judge(ParseCases(text, "a case to shrink").front(), mark, &counts);
            MessageEncoder encoder;
            encoder.Byte(static_cast<char>(judged.outcome));
            encoder.Text(judged.signature);
            encoder.Text(judged.reason);
            return encoder.message();
          };
        }) {}

  JudgedCase operator()(const CaseEntry& entry) {
    MessageEncoder encoder;
    encoder.Text(Print(entry));
    const ContainedCall::Answer answer = call_(encoder.message());
    JudgedCase judged;
    if (answer.IsLost()) {
      judged.outcome = answer.outcome;
      judged.signature = LossSignature(subject_, entry, answer.outcome, answer.step);
      judged.reason = answer.reason;
      return judged;
    }
    MessageDecoder decoder(answer.message);
    judged.outcome = static_cast<Outcome>(decoder.Byte());
    judged.signature = decoder.Text();
    judged.reason = decoder.Text();
    return judged;
  }

 private:
  const Subject& subject_;
  ContainedCall call_;
};

// As it was drawn.
FoundFailure Drawn(const Subject& subject, const FailureSum& sum) {
  FoundFailure found;
  found.sum = sum;
  found.drawn = subject.Draw(sum.first_case);
  found.drawn.name = CaseName(sum.signature);
  found.drawn.reason = "found by kvcheck fuzz: " + subject.Origin(sum.first_case);
  found.drawn.implementation = subject.Implementation();
  found.shrunk = found.drawn;
  found.reason = sum.reason;
  return found;
}

FoundFailure Shrink(const Subject& subject, const CampaignOptions& options, const FailureSum& sum) {
  FoundFailure found = Drawn(subject, sum);
  if (Interrupted(options)) return found;
  found.is_final = true;
  const bool hangs = sum.outcome == Outcome::kTimedOut;
  const auto same = [&](const JudgedCase& judged) {
    return judged.outcome == sum.outcome && judged.signature == sum.signature;
  };
  const auto limit =
      hangs ? std::min(options.since_progress,
                       std::max(kLeastShrinkLimit, options.since_progress / kShrinkLimitDivisor))
            : options.since_progress;
  LoneJudge lone(subject, limit);
  const auto started = Clock::now();
  bool in_time = true;
  const ShrunkCase shrunk = subject.Shrink(
      found.drawn,
      [&](const CaseEntry& candidate) {
        in_time = in_time && Clock::now() - started < options.shrink_time;
        return in_time && !Interrupted(options) && same(lone(candidate));
      },
      hangs ? std::min(kHangRuns, options.shrink_runs) : options.shrink_runs);
  found.runs = shrunk.runs;
  LoneJudge patient(subject, options.since_progress);
  const JudgedCase last = patient(shrunk.entry);
  if (!same(last)) return found;
  found.shrunk = shrunk.entry;
  found.reason = last.reason;
  found.shrunk_whole = shrunk.complete && in_time && !Interrupted(options);
  return found;
}

}  // namespace

CampaignResult RunCampaign(const Subject& subject, const CampaignOptions& options) {
  KVCHECK_CHECK(options.cases >= 0 || options.time, "a campaign has an end");
  CampaignResult result;
  result.tally = options.earlier;
  result.tally.counts.probes.resize(subject.ProbeNames().size());
  const auto tell_new = [&](size_t known) {
    for (size_t i = known; options.found && i < result.tally.failures.size(); ++i) {
      options.found(Drawn(subject, result.tally.failures[i]));
    }
  };
  // Files of an earlier run may be gone.
  tell_new(0);
  PoolOptions pool_options;
  pool_options.workers = options.workers;
  pool_options.limits = LimitsOf(WorkerLimit(subject, options.since_progress));
  pool_options.first = options.earlier.cases;
  pool_options.items = options.cases;
  pool_options.largest_batch = options.largest_batch;
  WorkerPool pool(pool_options, [&] { return MakeEvaluator(subject, options); });
  const auto started = Clock::now();
  pool.state = [&] {
    if (Interrupted(options)) {
      result.interrupted = true;
      return PoolState::kStop;
    }
    if (options.progress) options.progress(result.tally);
    const bool over = options.time && Clock::now() - started >= *options.time;
    return over ? PoolState::kFinish : PoolState::kGoOn;
  };
  pool.is_sound = [](const Message& message) {
    try {
      DecodeTally(message);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  pool.deliver = [&](const BatchAnswer& answer) {
    const size_t known = result.tally.failures.size();
    if (answer.IsLost()) {
      const int64_t index = options.offset + options.stride * answer.batch.first;
      const CaseEntry entry = subject.Draw(index);
      result.tally.Add(index,
                       {answer.outcome, LossSignature(subject, entry, answer.outcome, answer.step),
                        answer.reason});
    } else {
      result.tally.Add(DecodeTally(answer.answer));
    }
    tell_new(known);
    if (options.delivered) options.delivered(result.tally);
    return options.keep_going || result.tally.failed == 0;
  };
  if (options.keep_going || result.tally.failed == 0) pool.Run();
  for (const FailureSum& sum : result.tally.failures) {
    if (options.shrinking) options.shrinking(sum.signature);
    result.failures.push_back(Shrink(subject, options, sum));
    if (options.found) options.found(result.failures.back());
  }
  if (Interrupted(options)) result.interrupted = true;
  return result;
}

}  // namespace kvcheck
