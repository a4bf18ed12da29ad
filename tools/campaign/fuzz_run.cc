#include "tools/campaign/fuzz_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "reference/spec/error.h"
#include "tools/campaign/campaign_kind.h"
#include "tools/campaign/saved_tally.h"
#include "tools/corridor/adapters.h"
#include "tools/report/number_text.h"
#include "tools/report/output_file.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

template <typename Sum>
std::vector<CampaignFinding> FindingsOf(const std::vector<Sum>& sums) {
  std::vector<CampaignFinding> findings;
  for (const Sum& sum : sums) {
    findings.push_back({sum.signature, sum.outcome, sum.reason, sum.cases, sum.first_case});
  }
  return findings;
}

CampaignCounts CountsOf(const Subject& subject, const FuzzSettings& settings,
                        const FuzzTally& tally) {
  CampaignCounts counts;
  counts.kind = subject.Kind();
  counts.implementation = subject.Implementation();
  counts.version = subject.Version();
  counts.seed = settings.draw.seed;
  counts.cases = tally.cases;
  counts.passed = tally.passed;
  counts.failed = tally.failed;
  counts.crashed = tally.crashed;
  counts.timed_out = tally.timed_out;
  counts.mistrusted = tally.mistrusted;
  counts.by_data = tally.by_data;
  counts.unsupported = tally.unsupported;
  counts.operations = tally.counts.operations;
  counts.states = tally.counts.states;
  counts.elements = tally.counts.elements;
  const std::vector<std::string> names = subject.ProbeNames();
  for (size_t i = 0; i < names.size(); ++i) {
    counts.probes.push_back({names[i], tally.counts.probes[i]});
  }
  const std::vector<std::string> kinds = subject.StepKinds();
  for (size_t i = 0; i < std::min(kinds.size(), tally.counts.declined.size()); ++i) {
    const int64_t count = tally.counts.declined[i];
    if (count > 0) counts.declined.push_back({kinds[i], count});
  }
  counts.must_reach = !names.empty() && tally.cases >= kProbeCases && subject.DrawsEverything() &&
                      settings.draw.layouts.empty() && settings.draw.formats.empty();
  counts.failures = FindingsOf(tally.failures);
  counts.unproved = FindingsOf(tally.unproved);
  return counts;
}

// More than so many percent, without a rounding.
bool IsAboveShare(int64_t part, int64_t whole, int percent) {
  return static_cast<double>(part) * 100 > static_cast<double>(whole) * percent;
}

CaseResult OverallOf(const Subject& subject, const FuzzSettings& settings,
                     const CampaignCounts& counts) {
  CaseResult result;
  result.name = "fuzz " + counts.kind;
  result.drawn = true;
  result.verdict.implementation = subject.Shown();
  std::vector<std::string>& reasons = result.verdict.reasons;
  bool illegal = false;
  for (const CampaignFinding& finding : counts.unproved) {
    illegal = illegal || finding.outcome == Outcome::kIllegalCase;
    reasons.push_back(fmt::format("{} in {}, case {} the first: {}", Name(finding.outcome),
                                  Plural(finding.cases, "case"), finding.first_case,
                                  finding.reason));
  }
  std::vector<std::string> holes;
  for (const ProbeReach& probe : counts.probes) {
    if (probe.reached == 0) holes.push_back("probe " + probe.name + " was not reached");
  }
  if (counts.must_reach) reasons.insert(reasons.begin(), holes.begin(), holes.end());
  // Part of the question was not answered: strict runs do not let that pass.
  int64_t declined = 0;
  for (const DeclinedSteps& steps : counts.declined) declined += steps.count;
  if (declined > 0) result.verdict.warnings.push_back(Plural(declined, "operation") + " declined");
  if (counts.unsupported > 0) {
    result.verdict.warnings.push_back(Plural(counts.unsupported, "case") + " UNSUPPORTED");
  }
  if (counts.mistrusted > counts.by_data) {
    result.verdict.warnings.push_back(Plural(counts.mistrusted - counts.by_data, "case") +
                                      " MISTRUSTED");
  }
  const bool too_many = IsAboveShare(counts.Unproved(), counts.Provable(), settings.max_unproved);
  if (too_many) {
    reasons.insert(
        reasons.begin(),
        fmt::format("{} of {} proved nothing, more than {} % (--max-unproved)", counts.Unproved(),
                    Plural(counts.Provable(), "case"), settings.max_unproved));
  }
  Outcome& outcome = result.verdict.outcome;
  if (illegal) {
    outcome = Outcome::kIllegalCase;
  } else if (counts.passed == 0) {
    outcome = counts.mistrusted > 0 || too_many ? Outcome::kMistrusted : Outcome::kUnsupported;
  } else if (too_many || (counts.must_reach && !holes.empty())) {
    outcome = Outcome::kMistrusted;
  }
  if (outcome == Outcome::kPass && counts.states == 0 && counts.elements == 0) {
    outcome = Outcome::kMistrusted;
    reasons.insert(reasons.begin(),
                   "no state and no element was judged: every operation is refused, as where no "
                   "cache has such a layout in such a format");
  }
  // No file is written of what proved nothing: the first such case is the one to look at.
  if (!counts.unproved.empty() && counts.Unproved() > 0) {
    const auto is_by_data = [](const CampaignFinding& finding) {
      return finding.signature.ends_with(kByItsOwnData);
    };
    const auto first = std::find_if_not(counts.unproved.begin(), counts.unproved.end(), is_by_data);
    if (first != counts.unproved.end()) {
      result.verdict.command = subject.Command(subject.Draw(first->first_case));
    }
  }
  if (outcome == Outcome::kPass) {
    std::string sentence = Plural(counts.passed, "case") + " passed";
    if (counts.must_reach) sentence += ", every probe was reached";
    reasons.insert(reasons.begin(), sentence);
  }
  return result;
}

std::string CaseText(const CaseEntry& entry) {
  std::string text = CaseLines(entry.c);
  text.pop_back();
  return text;
}

// "cache append visible_missing": the signature with the kind before it.
std::string TitleOf(const Subject& subject, const std::string& signature) {
  if (signature.starts_with(subject.Kind() + " ")) return signature;
  return subject.Kind() + " " + signature;
}

// Writes failures as files of names of their own: as drawn at once, and again when they are shrunk.
class CaseWriter {
 public:
  CaseWriter(const FuzzSettings& settings, Progress* progress)
      : settings_(settings), progress_(progress) {}

  void Write(const Subject& subject, const FoundFailure& failure) {
    if (settings_.out.empty()) return;
    std::string& path = paths_[KeyOf(failure)];
    if (path.empty()) path = NewPath(subject, failure);
    const std::string& impl = failure.shrunk.implementation;
    const std::string named = !FitsCasesFile(impl)  ? " --impl " + ShellWord(impl)
                              : IsCommandLine(impl) ? " --allow-commands"
                                                    : "";
    const std::vector<std::string> comments = {
        fmt::format("{} on {}: {}", failure.sum.signature, subject.Shown(), failure.reason),
        fmt::format("{}: {}, {} when drawn{}; {}", ToolVersion(), subject.Origin(failure.index),
                    subject.SizeOf(failure.drawn), failure.is_final ? "" : " and not yet shrunk",
                    settings_.command),
        fmt::format("Replay: kvcheck run {}{}", ShellWord(path), named)};
    // The folder could be written at the start; what was found is not lost when it no longer can.
    try {
      std::filesystem::create_directories(settings_.out);
      WriteOutput(path, Print(failure.shrunk, comments));
      unwritten_.erase(path);
    } catch (const std::exception& error) {
      progress_->Notice(fmt::format("kvcheck: {} could not be written: {}", path, error.what()));
      unwritten_.insert(path);
    }
  }

  // "" of one that could not be written.
  std::string PathOf(const FoundFailure& failure) const {
    const auto found = paths_.find(KeyOf(failure));
    return found == paths_.end() || unwritten_.contains(found->second) ? "" : found->second;
  }

 private:
  using Key = std::tuple<Outcome, std::string, int64_t>;
  static Key KeyOf(const FoundFailure& failure) {
    return {failure.sum.outcome, failure.sum.signature, failure.variant};
  }

  std::string NewPath(const Subject& subject, const FoundFailure& failure) {
    const std::string slug = CaseName(TitleOf(subject, failure.sum.signature));
    std::string name = slug;
    for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}-{}", slug, i);
    return (std::filesystem::path(settings_.out) / (name + ".case")).string();
  }

  const FuzzSettings& settings_;
  Progress* progress_;
  std::set<std::string> names_;
  std::map<Key, std::string> paths_;
  std::set<std::string> unwritten_;
};

CaseResult ResultOf(const Subject& subject, const FoundFailure& failure, const std::string& path) {
  CaseResult result;
  result.name = TitleOf(subject, failure.sum.signature);
  result.drawn = true;
  Verdict& verdict = result.verdict;
  std::vector<std::string> hints;
  if (failure.verdict) {
    verdict = *failure.verdict;
    for (const std::string& reason : verdict.reasons) {
      if (reason.starts_with("hint: ")) hints.push_back(reason);
    }
    verdict.reasons.clear();
  }
  verdict.outcome = failure.sum.outcome;
  verdict.reasons.push_back(failure.reason);
  verdict.reasons.insert(verdict.reasons.end(), hints.begin(), hints.end());
  verdict.reasons.push_back(fmt::format("signature \"{}\": {}, {} the first", failure.sum.signature,
                                        Plural(failure.sum.cases, "case"),
                                        subject.Origin(failure.sum.first_case)));
  if (failure.looked_at > 1) {
    verdict.reasons.push_back(fmt::format("{} of {} shrunk cases came to this form: {}; here {}",
                                          failure.of_this_form, failure.looked_at, failure.form,
                                          subject.Origin(failure.index)));
  }
  verdict.reasons.push_back(fmt::format(
      "{} when drawn, {} after {}{}", subject.SizeOf(failure.drawn), subject.SizeOf(failure.shrunk),
      Plural(failure.runs, "run"), failure.shrunk_whole ? "" : " (not shrunk to the end)"));
  if (!failure.repeats) {
    verdict.reasons.push_back(
        "asked again alone it did not fail so: the answer changes from run to run, or with what "
        "was "
        "asked before");
  }
  if (!path.empty()) verdict.reasons.push_back("written to " + path);
  verdict.case_text = CaseText(failure.shrunk);
  verdict.implementation = subject.Shown();
  if (!failure.verdict) {
    verdict.plan = failure.shrunk.plan;
    verdict.profile = failure.shrunk.profile;
  }
  verdict.command = subject.Command(failure.shrunk);
  return result;
}

std::string ProgressText(const FuzzTally& tally, double seconds) {
  std::string text = fmt::format("{} cases, {:.0f}/s", tally.cases,
                                 seconds > 0 ? static_cast<double>(tally.cases) / seconds : 0.0);
  const auto reached = std::count_if(tally.counts.probes.begin(), tally.counts.probes.end(),
                                     [](int64_t n) { return n > 0; });
  if (!tally.counts.probes.empty()) {
    text += fmt::format(", {} of {} probes reached", reached, tally.counts.probes.size());
  }
  if (tally.failed > 0) {
    text +=
        fmt::format(", {} failed in {}", tally.failed, Plural(std::ssize(tally.failures), "way"));
  }
  return text;
}

}  // namespace

FuzzOutcome RunFuzz(const Answerer& answerer, const FuzzSettings& settings) {
  const std::unique_ptr<Subject> subject = MakeSubject(answerer, settings.draw, settings.cancel);
  Progress nobody;
  Progress* const progress = settings.progress == nullptr ? &nobody : settings.progress;
  const auto started = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  CampaignOptions options;
  options.workers = settings.workers;
  options.cases = settings.cases.value_or(-1);
  options.time = settings.time;
  options.keep_going = settings.keep_going;
  options.since_progress = settings.since_progress;
  options.shrink_time = settings.shrink_time;
  options.shrink_cases = settings.shrink_cases;
  options.causes = settings.causes;
  options.tells_all_apart = settings.tells_all_apart;
  options.stop_at_new = settings.stop_at_new;
  options.stride = settings.stride;
  options.offset = settings.offset;
  options.largest_batch = CampaignKindOf(answerer.kind).largest_batch;
  options.interrupted = [&] { return settings.cancel.IsRequested(); };
  options.progress = [&](const FuzzTally& tally) {
    if (progress->IsDue()) progress->Show(ProgressText(tally, seconds()));
  };
  CaseWriter writer(settings, progress);
  options.found = [&](const FoundFailure& failure) { writer.Write(*subject, failure); };
  std::optional<SavedTally> saved;
  if (settings.resumes && !settings.out.empty()) {
    saved.emplace(settings.out, *subject, settings.command, progress);
    options.earlier = saved->Read();
    if (options.earlier.cases > 0) {
      progress->Notice(
          fmt::format("kvcheck fuzz: {} of an earlier run that did not come to its end are "
                      "counted, and it goes on behind them; remove {} to begin anew",
                      Plural(options.earlier.cases, "case"), saved->path()));
    }
    options.delivered = [&](const FuzzTally& tally) { saved->Note(tally); };
  }
  double drawn_seconds = -1;
  options.shrinking = [&](const std::string& signature) {
    if (drawn_seconds < 0) drawn_seconds = seconds();
    progress->Show("shrinking: " + signature);
  };
  EndIdleAdapters();
  const CampaignResult result = RunCampaign(*subject, options);
  progress->Clear();
  FuzzOutcome outcome;
  outcome.interrupted = result.interrupted;
  outcome.seconds = drawn_seconds < 0 ? seconds() : drawn_seconds;
  outcome.counts = CountsOf(*subject, settings, result.tally);
  outcome.counts.left_open = answerer.left_open;
  outcome.counts.not_asked = answerer.not_asked;
  outcome.overall = OverallOf(*subject, settings, outcome.counts);
  for (const FoundFailure& failure : result.failures) {
    outcome.failures.push_back(
        {failure.sum.signature, failure.form, ResultOf(*subject, failure, writer.PathOf(failure)),
         failure.of_this_form, failure.looked_at, failure.sum.cases, failure.shrunk_whole});
  }
  if (saved) outcome.interrupted ? saved->Save(result.tally) : saved->Remove();
  return outcome;
}

}  // namespace kvcheck
