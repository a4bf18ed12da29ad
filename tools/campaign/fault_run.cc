#include "tools/campaign/fault_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/implementations.h"

namespace kvcheck {
namespace {

// Cases that are drawn at most: some seconds of one core.
int64_t MostCases(FaultKind kind) {
  if (kind == FaultKind::kCache) return 100'000;
  if (kind == FaultKind::kPrefix) return 20'000;
  return kind == FaultKind::kCodec ? 10'000 : 1'000;
}

double CpuSecondsOfThread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What is wrong with a trial that should have been caught by a check of the fault's line; "": none.
std::string NotCaught(const FaultText& fault, const Trial& trial, std::string_view which) {
  if (trial.hits == 0) {
    return fmt::format("{}: never hit: the replaced rule made no difference", which);
  }
  if (!IsCaught(fault, trial)) {
    return fmt::format("{}: {} in spite of {} differences", which, Name(trial.outcome), trial.hits);
  }
  if (!NamesCheck(fault, trial.check)) {
    return fmt::format("{}: caught by '{}', its line names '{}'", which, trial.check, fault.checks);
  }
  return "";
}

void RunSmallest(FaultTrials* trials, FaultOutcome* outcome) {
  const CaseEntry entry = SmallestCase(outcome->fault);
  const Trial healthy = trials->Healthy(entry);
  if (healthy.outcome != HealthyOutcome(*outcome->fault.text)) {
    outcome->failures.push_back(fmt::format("the smallest case, without the fault: {}: {}",
                                            Name(healthy.outcome), healthy.reason));
  }
  outcome->smallest = trials->Faulty(entry);
  outcome->smallest_size = trials->SizeOf(entry);
  const std::string why = NotCaught(*outcome->fault.text, outcome->smallest, "the smallest case");
  if (!why.empty()) outcome->failures.push_back(why);
}

void RunDrawn(FaultTrials* trials, FaultOutcome* outcome, const Cancel& cancel) {
  const Fault& fault = outcome->fault;
  int64_t hits = 0;
  for (int64_t i = 0; !outcome->caught && i < MostCases(fault.kind); ++i) {
    cancel.ThrowIfRequested();
    const Trial healthy = trials->DrawnHealthy(i);
    if (healthy.outcome == Outcome::kFail) {
      outcome->failures.push_back(fmt::format("case {} of seed {}, without the fault: FAIL: {}", i,
                                              kFaultSeed, healthy.reason));
    }
    const double start = CpuSecondsOfThread();
    outcome->drawn = trials->DrawnFaulty(i);
    outcome->seconds += CpuSecondsOfThread() - start;
    ++outcome->cases;
    hits += outcome->drawn.hits;
    outcome->caught = IsCaught(*fault.text, outcome->drawn);
  }
  if (!outcome->caught) {
    outcome->failures.push_back(
        fmt::format("not caught in {} drawn cases, with {} differences", outcome->cases, hits));
    return;
  }
  const CaseEntry entry = trials->Draw(outcome->cases - 1);
  const std::string which = fmt::format("case {} of seed {}", outcome->cases - 1, kFaultSeed);
  const std::string why = NotCaught(*fault.text, outcome->drawn, which);
  if (!why.empty()) outcome->failures.push_back(why);
  outcome->elements = trials->SizeOf(entry);
  outcome->rejected = trials->OtherRules(entry);
  const ShrunkEntry shrunk = trials->Shrink(entry, [&](const CaseEntry& candidate) {
    const Trial trial = trials->Faulty(candidate);
    return trial.hits > 0 && trial.outcome == outcome->drawn.outcome &&
           trial.check == outcome->drawn.check;
  });
  outcome->shrunk = trials->SizeOf(shrunk.entry);
  outcome->shrunk_command = CommandOf(fault, shrunk.entry, outcome->drawn.check);
}

}  // namespace

bool IsCaught(const FaultText& fault, const Trial& trial) {
  return trial.outcome == Outcome::kFail || (trial.outcome == Outcome::kMistrusted &&
                                             trial.hits > 0 && NamesCheck(fault, trial.check));
}

Outcome HealthyOutcome(const FaultText& fault) {
  return IsCaughtByMistrust(fault) ? Outcome::kMistrusted : Outcome::kPass;
}

std::string CommandOf(const Fault& fault, const CaseEntry& entry, const std::string& check) {
  if (check.ends_with(" repeat") || check.ends_with(" threads")) {
    return fmt::format("kvcheck faults explain {}", fault.text->id);
  }
  Answerer answerer;
  answerer.kind = *FindCaseKind(CaseKindOf(fault.kind));
  answerer.name = FaultyName(fault);
  return RunCommand(entry, answerer);
}

std::vector<FaultOutcome> RunFaults(const std::vector<Fault>& faults, int threads,
                                    const std::function<void(int64_t)>& progress,
                                    const Cancel& cancel) {
  std::map<FaultKind, DrawnCases> cases;
  for (const Fault& fault : faults) cases.try_emplace(fault.kind, fault.kind);
  std::vector<FaultOutcome> outcomes(faults.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  int64_t done = 0;
  std::exception_ptr thrown;
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < faults.size(); i = next.fetch_add(1)) {
      try {
        outcomes[i].fault = faults[i];
        const std::unique_ptr<FaultTrials> trials =
            MakeFaultTrials(faults[i], &cases.at(faults[i].kind));
        RunSmallest(trials.get(), &outcomes[i]);
        RunDrawn(trials.get(), &outcomes[i], cancel);
        outcomes[i].is_done = true;
      } catch (const Error& error) {
        outcomes[i].failures.push_back(fmt::format("{}: {}", error.context(), error.message()));
        outcomes[i].is_done = true;
      } catch (const Cancelled&) {
        next = faults.size();
      } catch (...) {
        const std::lock_guard lock(mutex);
        thrown = std::current_exception();
        next = faults.size();
      }
      const std::lock_guard lock(mutex);
      progress(++done);
    }
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(threads));
  bool may_start = true;
  for (int i = 1; may_start && i < threads; ++i) {
    try {
      others.emplace_back(work);
    } catch (const std::system_error&) {
      may_start = false;  // those that started do it
    }
  }
  work();
  for (std::thread& other : others) other.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  std::erase_if(outcomes, [](const FaultOutcome& outcome) { return !outcome.is_done; });
  return outcomes;
}

std::vector<Fault> SelectFaults(const std::vector<std::string>& patterns, std::string_view kind) {
  const std::vector<Glob> globs = ParseGlobs(patterns);
  std::vector<Fault> selected;
  for (const Fault& fault : AllFaults()) {
    if (kind.empty() || Name(fault.kind) == kind) selected.push_back(fault);
  }
  for (const Glob& glob : globs) {
    const bool any = std::any_of(selected.begin(), selected.end(),
                                 [&](const Fault& fault) { return glob.Matches(fault.text->id); });
    if (!any) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("no fault{} matches '{}'; kvcheck faults list shows all",
                              kind.empty() ? "" : fmt::format(" of kind {}", kind), glob.text()),
                  "faults");
    }
  }
  if (!globs.empty()) {
    std::erase_if(selected, [&](const Fault& fault) { return !MatchesAny(globs, fault.text->id); });
  }
  return selected;
}

}  // namespace kvcheck
