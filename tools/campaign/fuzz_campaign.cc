#include "tools/campaign/fuzz_campaign.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "tools/campaign/canonical_form.h"
#include "tools/campaign/case_steps.h"
#include "tools/campaign/contained_call.h"
#include "tools/campaign/process_pool.h"
#include "tools/campaign/sort_stably.h"
#include "tools/campaign/verdict_message.h"
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

// Cases that cannot be of a known cause are looked at first.
constexpr const char* kApart = "apart";

// Where several cases of a signature are shrunk: which are likely to be of different causes.
void SetGroup(const CampaignOptions& options, const CaseEntry& entry, JudgedCase* judged) {
  if (options.shrink_cases <= 1 || judged->signature.empty()) return;
  const CaseTraits traits = TraitsOf(entry.c, judged->step);
  const bool known =
      options.causes != nullptr && options.causes->MayBeKnown(judged->signature, traits);
  judged->group = (known ? "" : kApart) + (" " + traits.group);
}

// The cases of a signature that are shrunk: of each group one, then of each another one.
std::vector<int64_t> CasesToShrink(const CampaignOptions& options, const FailureSum& sum) {
  const bool told_apart = options.tells_all_apart || options.causes == nullptr ||
                          options.causes->HasTraces(sum.signature);
  const size_t wanted =
      told_apart ? static_cast<size_t>(std::max<int64_t>(1, options.shrink_cases)) : 1;
  if (wanted == 1) return {sum.first_case};
  std::vector<FailureGroup> groups = sum.groups;
  SortStably(&groups, [](const FailureGroup& group) { return !group.name.starts_with(kApart); });
  std::vector<int64_t> cases;
  for (size_t turn = 0; turn < kGroupCases; ++turn) {
    for (const FailureGroup& group : groups) {
      if (cases.size() == wanted) return cases;
      if (turn < group.cases.size()) cases.push_back(group.cases[turn]);
    }
  }
  return cases;
}

// Whether no entry speaks of the signature, or none of this shrunk case.
bool IsNewSignature(const CampaignOptions& options, const FailureSum& sum) {
  return options.causes == nullptr || (!options.causes->HasTraces(sum.signature) &&
                                       options.causes->Find(sum.signature, "") == nullptr);
}

bool IsNew(const CampaignOptions& options, const FoundFailure& found) {
  return options.causes == nullptr ||
         options.causes->Find(found.sum.signature, found.form) == nullptr;
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
      const CaseEntry entry = subject.Draw(index);
      JudgedCase judged = judge->Judge(entry, mark, &tally.counts);
      SetGroup(options, entry, &judged);
      tally.Add(index, judged);
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
            MessageDecoder request(message);
            const auto asked = static_cast<Asked>(request.Byte());
            const CaseEntry entry = ParseCases(request.Text(), "a case to shrink").front();
            if (asked == Asked::kVerdict) {
              SignedVerdict said;
              said.verdict = judge->Explain(entry, mark, &said.signature);
              return kvcheck::Encode(said);
            }
            const std::string signature = request.Text();
            return Encode(judge->JudgeLike(entry, mark, signature, asked == Asked::kExplanation));
          };
        }) {}

  // signature: of the failure that it is to be. explains: with the explanation, where it is.
  JudgedCase operator()(const CaseEntry& entry, const std::string& signature, bool explains) {
    const ContainedCall::Answer answer =
        call_(Request(entry, explains ? Asked::kExplanation : Asked::kOutcome, signature));
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
    judged.step = decoder.Integer();
    judged.explanation.cause = decoder.Text();
    judged.explanation.left_out = decoder.Text();
    for (int64_t left = decoder.Integer(); left > 0; --left) {
      judged.explanation.words.insert(decoder.Text());
    }
    return judged;
  }

  // The same with all that a report shows; nullopt where the process is lost.
  std::optional<SignedVerdict> Explain(const CaseEntry& entry) {
    const ContainedCall::Answer answer = call_(Request(entry, Asked::kVerdict, ""));
    if (answer.IsLost()) return std::nullopt;
    return DecodeVerdict(answer.message);
  }

 private:
  enum class Asked : char { kOutcome, kExplanation, kVerdict };

  static Message Request(const CaseEntry& entry, Asked asked, const std::string& signature) {
    MessageEncoder encoder;
    encoder.Byte(static_cast<char>(asked));
    encoder.Text(Print(entry));
    encoder.Text(signature);
    return encoder.message();
  }

  static Message Encode(const JudgedCase& judged) {
    MessageEncoder encoder;
    encoder.Byte(static_cast<char>(judged.outcome));
    encoder.Text(judged.signature);
    encoder.Text(judged.reason);
    encoder.Integer(judged.step);
    encoder.Text(judged.explanation.cause);
    encoder.Text(judged.explanation.left_out);
    encoder.Integer(std::ssize(judged.explanation.words));
    for (const std::string& word : judged.explanation.words) encoder.Text(word);
    return encoder.message();
  }

  const Subject& subject_;
  ContainedCall call_;
};

CaseEntry DrawFailing(const Subject& subject, const FailureSum& sum, int64_t index) {
  CaseEntry drawn = subject.Draw(index);
  drawn.name = CaseName(sum.signature);
  drawn.reason = "found by kvcheck fuzz: " + subject.Origin(index);
  drawn.implementation = subject.Implementation();
  return drawn;
}

// As it was drawn.
FoundFailure AsDrawn(const FailureSum& sum, CaseEntry drawn) {
  FoundFailure found;
  found.sum = sum;
  found.index = sum.first_case;
  found.drawn = std::move(drawn);
  found.shrunk = found.drawn;
  found.form = CanonicalForm(found.drawn.c);
  found.reason = sum.reason;
  return found;
}

// A failing case that is shrunk: of which signature, and which one of it.
struct Look {
  const FailureSum* sum;
  int64_t index;
  size_t turn;
};

// By signature; where the first failure that is not known ends it all, what nothing is known of
// comes first, and signatures take turns.
std::vector<Look> CasesToLookAt(const CampaignOptions& options,
                                const std::vector<FailureSum>& sums) {
  std::vector<Look> looks;
  for (const FailureSum& sum : sums) {
    size_t turn = 0;
    for (const int64_t index : CasesToShrink(options, sum)) looks.push_back({&sum, index, turn++});
  }
  if (!options.stop_at_new) return looks;
  SortStably(&looks, [&](const Look& look) {
    return std::pair(!IsNewSignature(options, *look.sum), look.turn);
  });
  return looks;
}

// What was found of one signature.
struct OfSignature {
  std::vector<FoundFailure> failures;
  std::set<std::string> forms;  // of what was shrunk to the end
  int64_t looked_at = 0;
};

// Shrinks what stands for each signature, and joins what comes to one form.
void ShrinkFailures(const Subject& subject, const CampaignOptions& options,
                    CampaignResult* result) {
  FailureShrinker shrink(subject, options);
  const std::vector<FailureSum>& sums = result->tally.failures;
  std::vector<OfSignature> found_of(sums.size());
  for (const Look& look : CasesToLookAt(options, sums)) {
    const FailureSum& sum = *look.sum;
    OfSignature& of = found_of[static_cast<size_t>(&sum - sums.data())];
    if (options.shrinking && of.looked_at == 0) options.shrinking(sum.signature);
    if (of.looked_at > 0 && Interrupted(options)) continue;
    ++of.looked_at;
    FoundFailure found = shrink(sum, DrawFailing(subject, sum, look.index), of.forms);
    found.index = look.index;
    const bool ends = options.stop_at_new && IsNew(options, found);
    const auto same =
        std::find_if(of.failures.begin(), of.failures.end(),
                     [&](const FoundFailure& known) { return known.form == found.form; });
    if (same == of.failures.end()) {
      found.variant = std::ssize(of.failures);
      if (options.found) options.found(found);
      if (found.shrunk_whole) of.forms.insert(found.form);
      of.failures.push_back(std::move(found));
    } else {
      ++same->of_this_form;
    }
    if (ends) break;
  }
  for (OfSignature& of : found_of) {
    for (FoundFailure& found : of.failures) {
      found.looked_at = of.looked_at;
      result->failures.push_back(std::move(found));
    }
  }
}

}  // namespace

FailureShrinker::FailureShrinker(const Subject& subject, const CampaignOptions& options)
    : subject_(subject), options_(options) {}

FoundFailure FailureShrinker::operator()(const FailureSum& sum, CaseEntry drawn,
                                         const std::set<std::string>& forms) {
  const CampaignOptions& options = options_;
  FoundFailure found = AsDrawn(sum, std::move(drawn));
  if (Interrupted(options)) return found;
  found.is_final = true;
  const bool hangs = sum.outcome == Outcome::kTimedOut;
  const auto same = [&](const JudgedCase& judged) {
    return judged.outcome == sum.outcome && judged.signature == sum.signature;
  };
  // The operation that fails is the last one: what comes behind it says nothing.
  bool fails_at_end = false;
  // A smaller case of which less can be said is no better case.
  Explanation said;
  const auto limit =
      hangs ? std::min(options.since_progress,
                       std::max(kLeastShrinkLimit, options.since_progress / kShrinkLimitDivisor))
            : options.since_progress;
  const auto is_known = [&](const CaseEntry& entry) {
    if (forms.contains(CanonicalForm(entry.c))) return true;
    return options.causes != nullptr && options.causes->HasTraces(sum.signature) &&
           options.causes->Find(sum.signature, CanonicalForm(entry.c)) != nullptr;
  };
  bool known = is_known(found.drawn);
  if (known) return found;
  // To start a process costs as much as some hundred cases.
  if (!judge_ || judge_limit_ != limit) {
    judge_ = [lone = std::make_shared<LoneJudge>(subject_, limit)](
                 const CaseEntry& entry, const std::string& signature, bool explains) {
      return (*lone)(entry, signature, explains);
    };
    judge_limit_ = limit;
  }
  CaseEntry begin = found.drawn;
  if (HasSteps(begin.c) && !hangs) {
    begin.c = JudgedAtEachStep(std::move(begin.c));
    found.runs += 2;
    const JudgedCase whole = judge_(begin, sum.signature, false);
    if (same(whole)) begin.c = UpToStep(std::move(begin.c), whole.step);
    const JudgedCase judged = judge_(begin, sum.signature, true);
    fails_at_end = same(judged) && EndsAtStep(begin.c, judged.step);
    if (fails_at_end) said = judged.explanation;
    if (!fails_at_end) begin = found.drawn;
    if (is_known(begin)) {
      found.shrunk = begin;
      found.form = CanonicalForm(begin.c);
      return found;
    }
  }
  if (!fails_at_end && sum.outcome == Outcome::kFail) {
    ++found.runs;
    const JudgedCase judged = judge_(begin, sum.signature, true);
    if (same(judged)) said = judged.explanation;
  }
  const auto started = Clock::now();
  bool in_time = true;
  const ShrunkEntry shrunk = subject_.Shrink(
      begin,
      [&](const CaseEntry& candidate) {
        in_time = in_time && Clock::now() - started < options.shrink_time;
        if (known || !in_time || Interrupted(options)) return false;
        ++found.runs;
        const JudgedCase judged = judge_(candidate, sum.signature, !said.empty());
        if (!same(judged) || (fails_at_end && !EndsAtStep(candidate.c, judged.step))) return false;
        if (IsPoorer(judged.explanation, said)) return false;
        known = is_known(candidate);
        return true;
      },
      hangs ? std::min(kHangRuns, options.shrink_runs) : options.shrink_runs);
  // What is reported fails in a fresh process, and under the whole limit.
  if (!known) {
    LoneJudge patient(subject_, options.since_progress);
    const JudgedCase last = patient(shrunk.entry, sum.signature, false);
    if (!same(last)) {
      found.repeats = same(patient(found.drawn, sum.signature, false));
      return found;
    }
    found.reason = last.reason;
    // What a report says is of this very failure.
    const std::optional<SignedVerdict> whole = patient.Explain(shrunk.entry);
    if (whole && whole->verdict.outcome == sum.outcome && whole->signature == sum.signature) {
      found.verdict = whole->verdict;
    }
  }
  found.shrunk = shrunk.entry;
  found.form = CanonicalForm(found.shrunk.c);
  found.shrunk_whole = shrunk.complete && in_time && !known && !Interrupted(options);
  return found;
}

CampaignResult RunCampaign(const Subject& subject, const CampaignOptions& options) {
  KVCHECK_CHECK(options.cases >= 0 || options.time, "a campaign has an end");
  CampaignResult result;
  result.tally = options.earlier;
  result.tally.counts.probes.resize(subject.ProbeNames().size());
  const auto tell_new = [&](size_t known) {
    for (size_t i = known; options.found && i < result.tally.failures.size(); ++i) {
      const FailureSum& sum = result.tally.failures[i];
      options.found(AsDrawn(sum, DrawFailing(subject, sum, sum.first_case)));
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
  ProcessPool pool(pool_options, [&] { return MakeEvaluator(subject, options); });
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
      JudgedCase lost = {answer.outcome, LossSignature(subject, entry, answer.outcome, answer.step),
                         answer.reason, answer.step};
      SetGroup(options, entry, &lost);
      result.tally.Add(index, lost);
    } else {
      result.tally.Add(DecodeTally(answer.answer));
    }
    tell_new(known);
    if (options.delivered) options.delivered(result.tally);
    for (size_t i = known; options.stop_at_new && i < result.tally.failures.size(); ++i) {
      if (IsNewSignature(options, result.tally.failures[i])) return false;
    }
    return options.keep_going || result.tally.failed == 0;
  };
  if (options.keep_going || result.tally.failed == 0) pool.Run();
  ShrinkFailures(subject, options, &result);
  if (Interrupted(options)) result.interrupted = true;
  return result;
}

}  // namespace kvcheck
