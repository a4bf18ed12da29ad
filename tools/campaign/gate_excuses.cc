#include "tools/campaign/gate_excuses.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reference/spec/error.h"
#include "tools/campaign/canonical_form.h"
#include "tools/report/number_text.h"
#include "tools/report/output_file.h"

namespace kvcheck {
namespace {

bool IsFailure(const CaseResult& result) {
  const Outcome outcome = result.verdict.outcome;
  return outcome == Outcome::kFail || outcome == Outcome::kCrashed || outcome == Outcome::kTimedOut;
}

}  // namespace

GateExcuses::GateExcuses(const std::string& file, bool writes, const Cancel& cancel)
    : writes_(writes), today_(Today()) {
  if (file.empty()) return;
  content_ = ReadTextFile(file, cancel);
  known_ = KnownFailures(content_, file);
}

void GateExcuses::CheckCases(const std::vector<CaseEntry>& cases) const {
  std::set<std::string> names;
  for (const CaseEntry& entry : cases) names.insert(entry.name);
  for (const KnownFailure& known : known_.entries()) {
    if (known.case_name.empty() || names.contains(known.case_name)) continue;
    throw Error(ErrorCode::kSelection,
                fmt::format("there is no case '{}' in the suites", known.case_name),
                fmt::format("{}:{}", known_.file(), known.line));
  }
}

const KnownCauses& GateExcuses::CausesOf(const Answerer& answerer) {
  const auto found = causes_.find(answerer.kind);
  if (found != causes_.end()) return found->second;
  return causes_
      .emplace(answerer.kind, KnownCauses(known_, answerer.title, answerer.version, today_))
      .first->second;
}

bool GateExcuses::NeedsShrinking(const std::string& signature, const Answerer& answerer,
                                 const CaseEntry& entry, const CaseResult& result) {
  if (!IsFailure(result)) return false;
  for (const KnownFailure& known : known_.entries()) {
    const bool named = known.case_name == result.name && known.signature == signature;
    if (named && KnownFailures::IsOf(known, answerer.title, answerer.version)) return false;
  }
  const KnownCauses& causes = CausesOf(answerer);
  const bool told_apart = writes_ || causes.HasTraces(signature);
  return told_apart && causes.Find(signature, CanonicalForm(entry.c)) == nullptr;
}

const KnownFailure* GateExcuses::Excuse(const std::string& signature, const Answerer& answerer,
                                        const std::string& form, CaseResult* result) {
  const KnownCauses& causes = CausesOf(answerer);
  const KnownFailure* known = causes.Find(signature, form);
  std::vector<std::string>& reasons = result->verdict.reasons;
  if (known != nullptr) {
    hit_.insert(known->line);
    reasons.push_back(fmt::format(
        "known by {}: {}:{}",
        known->traces.empty() ? "its signature alone, which may hide another cause" : "its trace",
        known_.file(), known->line));
    result->expectation = Expectation::kFinding;
    result->finding = known->reason;
    result->same_finding = true;
    return known;
  }
  if (causes.HasTraces(signature)) {
    reasons.push_back(
        fmt::format("the signature is known, this cause is not: no trace of {} has the form {}",
                    known_.file(), form));
  }
  for (const KnownFailure& expired : known_.entries()) {
    if (expired.signature != signature || !KnownFailures::HasExpired(expired, today_) ||
        !KnownFailures::IsOf(expired, answerer.title, answerer.version)) {
      continue;
    }
    hit_.insert(expired.line);
    reasons.push_back(fmt::format("known ({}), until {}: {}:{}", expired.reason, expired.expires,
                                  known_.file(), expired.line));
  }
  return nullptr;
}

void GateExcuses::ExcuseCase(const std::string& signature, const Answerer& answerer,
                             const Case& shrunk, bool shrunk_whole, CaseResult* result) {
  const bool failed = IsFailure(*result);
  for (const KnownFailure& known : known_.entries()) {
    if (known.case_name != result->name || KnownFailures::HasExpired(known, today_) ||
        !KnownFailures::IsOf(known, answerer.title, answerer.version)) {
      continue;
    }
    const bool same = failed && known.signature == signature;
    if (same) hit_.insert(known.line);
    // A failure other than the known one is a failure.
    if (!same && failed) continue;
    result->expectation = Expectation::kFinding;
    result->finding = known.reason;
    result->same_finding = same;
    if (same) return;
  }
  if (!failed) return;
  const KnownFailure* known = Excuse(signature, answerer, CanonicalForm(shrunk), result);
  if (known == nullptr) {
    unmatched_ += CausesOf(answerer).HasTraces(signature) ? 1 : 0;
    Remember(signature, answerer, Print(shrunk), shrunk_whole);
  } else {
    ++(known->traces.empty() ? by_signature_ : matched_);
  }
}

void GateExcuses::ExcuseDrawn(const Answerer& answerer, std::vector<FuzzFailure>* failures,
                              CampaignCounts* counts) {
  // Forms of one signature follow each other.
  for (size_t begin = 0; begin < failures->size();) {
    size_t end = begin;
    int64_t matched = 0;
    bool by_signature = false;
    const std::string signature = (*failures)[begin].signature;
    const Outcome outcome = (*failures)[begin].result.verdict.outcome;
    for (; end < failures->size(); ++end) {
      FuzzFailure& failure = (*failures)[end];
      if (failure.signature != signature || failure.result.verdict.outcome != outcome) break;
      const KnownFailure* known = Excuse(signature, answerer, failure.form, &failure.result);
      if (known == nullptr) {
        Remember(signature, answerer, failure.result.verdict.case_text, failure.shrunk_whole);
      } else {
        matched += failure.of_this_form;
        by_signature = by_signature || known->traces.empty();
      }
    }
    const FuzzFailure& first = (*failures)[begin];
    const int64_t others = first.cases - first.looked_at;
    const bool told_apart = CausesOf(answerer).HasTraces(signature);
    const int64_t unseen = matched > 0 ? others : 0;
    counts->known += matched + unseen;
    if (by_signature && !told_apart) {
      by_signature_ += first.cases;
    } else if (told_apart) {
      matched_ += matched;
      unmatched_ += first.looked_at - matched;
      unseen_ += unseen;
    }
    for (size_t i = begin; i < end && matched > 0; ++i) {
      FuzzFailure& failure = (*failures)[i];
      if (failure.result.expectation != Expectation::kFinding) continue;
      failure.result.verdict.reasons.push_back(fmt::format(
          "{} of the signature shrunk, {} of them of known causes; {} attributed unseen",
          Plural(first.looked_at, "case"), matched, unseen));
    }
    for (CampaignFinding& finding : counts->failures) {
      if (finding.signature != signature || finding.outcome != outcome) continue;
      finding.shrunk = first.looked_at;
      finding.unseen = unseen;
    }
    begin = end;
  }
}

void GateExcuses::Remember(const std::string& signature, const Answerer& answerer,
                           const std::string& text, bool shrunk_whole) {
  const Case c = ParseCase(text);
  KnownTrace trace = {Print(c), CanonicalForm(c), TraitsOf(c, -1)};
  auto entry = std::find_if(new_.begin(), new_.end(), [&](const KnownFailure& known) {
    return known.signature == signature && known.version == answerer.version;
  });
  if (entry != new_.end() && entry->Holds(trace.form)) return;
  if (!shrunk_whole) {
    ++not_shrunk_;
    return;
  }
  if (entry == new_.end()) {
    KnownFailure known;
    known.signature = signature;
    known.implementation = answerer.title;
    known.version = answerer.version;
    entry = new_.insert(new_.end(), std::move(known));
  }
  entry->traces.push_back(std::move(trace));
}

std::vector<std::string> GateExcuses::Notes(const std::map<CaseKind, Answerer>& answerers) const {
  std::vector<std::string> notes;
  for (const KnownFailure& known : known_.entries()) {
    bool ours = false;
    for (const auto& [kind, answerer] : answerers) {
      ours = ours || KnownFailures::IsOf(known, answerer.title, answerer.version);
    }
    if (!ours) continue;
    const std::string what = fmt::format("{}:{}: \"{}\" of {} ({})", known_.file(), known.line,
                                         known.signature, known.implementation, known.reason);
    if (KnownFailures::HasExpired(known, today_)) {
      notes.push_back(fmt::format("{} was excused until {}", what, known.expires));
    } else if (!hit_.contains(known.line)) {
      notes.push_back(fmt::format("{} was not seen in this run", what));
    }
  }
  if (matched_ + unmatched_ + unseen_ > 0) {
    notes.push_back(fmt::format(
        "failing cases of known signatures: {} shrunk to a known trace, {} to none; {} attributed "
        "unseen (--shrink-cases)",
        matched_, unmatched_, unseen_));
  }
  if (by_signature_ > 0) {
    notes.push_back(fmt::format("{} attributed by the signature alone: the entry has no traces",
                                Plural(by_signature_, "failing case")));
  }
  return notes;
}

int64_t GateExcuses::Write(const std::string& path, const std::string& reason,
                           const std::string& expires) const {
  std::string text = content_;
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  for (KnownFailure known : new_) {
    known.reason = reason;
    known.expires = expires;
    text += Print(known);
  }
  WriteOutput(path, text);
  return not_shrunk_;
}

}  // namespace kvcheck
