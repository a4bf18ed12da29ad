#include "tools/agree/compare_dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "reference/spec/error.h"
#include "tools/agree/dump_pair.h"
#include "tools/agree/file_identity.h"
#include "tools/agree/judge_dumps.h"

namespace kvcheck {
namespace {

[[noreturn]] void RefuseNumber(int64_t at, const std::string& path) {
  throw Error(ErrorCode::kMissingData,
              fmt::format("position {} has a log-probability that is no number", at), path);
}

PositionFigures FiguresOf(const TokenDistribution& gold, const TokenDistribution& got,
                          const optimized::LogitsPair& pair, bool* has_next) {
  PositionFigures figures;
  // By the log-sum inequality sum p log(p / q) >= P log(P / Q), P = sum p, Q = sum q. Read passes
  // no sums but those that the files' errors explain (distribution_check.h), and so they explain
  // all that is below 0. NaN stays.
  figures.kl = pair.kl < 0 ? 0 : pair.kl;
  figures.same_top1 = gold.Token(pair.top) == got.Token(pair.other_top);
  const auto next = [&](const TokenDistribution& position) {
    return gold.next ? position.Find(*gold.next) : std::nullopt;
  };
  const auto in_gold = next(gold);
  const auto in_got = next(got);
  *has_next = *has_next && in_gold && in_got;
  if (in_gold && in_got) {
    figures.reference_log_p = gold.log_p[*in_gold];
    figures.log_p = got.log_p[*in_got];
  }
  return figures;
}

// noise: of both engines.
void ComparePart(const DumpQuestion& question, double noise, const Cancel& cancel, DumpPair* pair,
                 DumpFindings* part) {
  TokenDistribution gold, got;
  while (pair->Read(&gold, &got)) {
    cancel();
    const int64_t at = pair->at() - 1;
    const optimized::LogitsPair compared = PairOf(gold, got);
    if (!compared.is_finite) RefuseNumber(at, question.gold);
    if (!compared.other_is_finite) {
      ++part->not_finite;
      part->positions.emplace_back();
      part->same = part->within_rounding = false;
      continue;
    }
    part->is_lower_bound = part->is_lower_bound || !gold.complete || !got.complete;
    part->positions.push_back(FiguresOf(gold, got, compared, &part->has_next));
    part->largest = std::max(part->largest, TopDifference(gold, got, compared));
    JudgePosition(question, noise, at, gold, got, compared, part);
  }
}

DumpFindings Find(const DumpQuestion& question, double noise, const Cancel& cancel,
                  bool* interrupted) {
  auto parts = InParts<DumpFindings>(
      question.gold, question.got, question.threads,
      [&](DumpPair* pair, DumpFindings* part) { ComparePart(question, noise, cancel, pair, part); },
      interrupted);
  DumpFindings all = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) all.Append(std::move(parts[i]));
  return all;
}

// Two dumps of one engine, of which nothing is asked but how far they are apart.
DumpFindings NoiseOf(const std::string& once, const std::string& again, int threads,
                     const Cancel& cancel, bool* interrupted) {
  DumpQuestion question;
  question.gold = once;
  question.got = again;
  question.threads = threads;
  question.judge = false;
  DumpFindings findings = Find(question, 0, cancel, interrupted);
  if (findings.not_finite > 0) {
    throw Error(ErrorCode::kMissingData, "it has a log-probability that is no number", again);
  }
  return findings;
}

void RefuseNoiseThatIs(const std::string& noise, const std::string& other, const char* whose) {
  if (noise.empty() || !AreOneFile(noise, other)) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("{} is {} itself: another run of GOLD's engine is asked for", noise, whose),
      "--noise");
}

// What one engine says, and says again.
struct Noise {
  double largest = 0;
  AgreementFigures figures;
  bool has_next = false;
};

DumpReport Compare(const DumpQuestion& question, const std::optional<Noise>& noise,
                   const Cancel& cancel) {
  DumpReport report;
  report.gold_dump = OpenLogitsDump(question.gold)->Description();
  report.got_dump = OpenLogitsDump(question.got)->Description();
  report.judged = question.judge;
  report.judged_probabilities = question.JudgesProbabilities();
  report.one_file = AreOneFile(question.gold, question.got);
  RefuseNoiseThatIs(question.noise, question.got, "GOT");
  try {
    if (!report.one_file && HaveSameBytes(question.gold, question.got, cancel)) {
      report.notes.push_back(
          "GOT is byte for byte GOLD: one run that was copied, or two that say "
          "the same in every bit");
    }
    if (noise) {
      report.noise = noise->largest;
      report.noise_figures = noise->figures;
      report.noise_has_next = noise->has_next;
    }
    const double explained = report.noise.value_or(0) + question.got_noise;
    static_cast<DumpFindings&>(report) = Find(question, explained, cancel, &report.interrupted);
    if (report.same && !report.one_file && report.notes.empty()) {
      report.notes.push_back(
          "every number of GOT is that of GOLD: one run that was copied, or two "
          "that say the same in every bit");
    }
    if (!question.noise.empty() && !report.flips.empty() && question.judge) {
      report.noise_is_got =
          NoiseOf(question.noise, question.got, question.threads, cancel, &report.interrupted)
              .within_rounding;
    }
  } catch (const Cancelled&) {
    report.interrupted = true;
  }
  if (report.positions.empty() && !report.interrupted) {
    throw Error(ErrorCode::kSelection, "it holds no position", question.gold);
  }
  if (report.flat > 0 && !question.judge) {
    report.notes.push_back(fmt::format(
        "in {} positions, the first of which is {}, every token of GOLD is as likely as any other",
        report.flat, report.first_flat));
  }
  report.figures = Summarize(report.positions);
  report.positions.clear();
  if (report.interrupted && report.figures.positions == 0) {
    report.outcome = Outcome::kMistrusted;
    report.why = "nothing was compared";
  } else {
    Conclude(&report);
    if (report.interrupted && report.judged && report.outcome == Outcome::kPass) {
      report.outcome = Outcome::kMistrusted;
      report.why = "it was interrupted, and what was left was not looked at";
    }
  }
  return report;
}

// nullopt: none was asked for, or it was cancelled (*interrupted).
std::optional<Noise> NoiseOfGold(const DumpQuestion& question, const Cancel& cancel,
                                 bool* interrupted) {
  if (question.noise.empty()) return std::nullopt;
  RefuseNoiseThatIs(question.noise, question.gold, "GOLD");
  const DumpFindings findings =
      NoiseOf(question.gold, question.noise, question.threads, cancel, interrupted);
  if (*interrupted) return std::nullopt;
  return Noise{findings.largest, Summarize(findings.positions), findings.has_next};
}

}  // namespace

void DumpFindings::Append(DumpFindings more) {
  positions.insert(positions.end(), more.positions.begin(), more.positions.end());
  std::move(more.flips.begin(), more.flips.end(), std::back_inserter(flips));
  not_finite += more.not_finite;
  top_unknown += more.top_unknown;
  decided += more.decided;
  if (flat == 0) first_flat = more.first_flat;
  flat += more.flat;
  changed += more.changed;
  changed_beyond_own += more.changed_beyond_own;
  if (!first_change) first_change = more.first_change;
  if (!first_change_beyond_own) first_change_beyond_own = more.first_change_beyond_own;
  largest = std::max(largest, more.largest);
  rounding = std::max(rounding, more.rounding);
  same = same && more.same;
  within_rounding = within_rounding && more.within_rounding;
  is_lower_bound = is_lower_bound || more.is_lower_bound;
  has_next = has_next && more.has_next;
}

DumpReport CompareDumps(const DumpQuestion& question, const Cancel& cancel) {
  GotDump got;
  got.path = question.got;
  DumpsReport report = CompareSeveralDumps(question, {got}, cancel);
  if (!report.reports.empty()) return std::move(report.reports.front());
  DumpReport none;
  none.interrupted = true;
  none.outcome = report.outcome();
  none.why = "nothing was compared";
  return none;
}

Outcome DumpsReport::outcome() const {
  Outcome outcome = reports.empty() ? Outcome::kMistrusted : Outcome::kPass;
  for (const DumpReport& one : reports) outcome = Combine(outcome, one.outcome);
  return outcome;
}

DumpsReport CompareSeveralDumps(const DumpQuestion& common, std::vector<GotDump> gots,
                                const Cancel& cancel,
                                const std::function<void(DumpsReport)>& so_far) {
  DumpsReport all;
  all.gots = std::move(gots);
  for (size_t i = 0; i < all.gots.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!AreOneFile(all.gots[i].path, all.gots[j].path)) continue;
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} and {} are one file: each GOT is a run of its own",
                              all.gots[j].path, all.gots[i].path),
                  "--logits");
    }
  }
  // What cannot be read is said before anything is.
  OpenLogitsDump(common.gold);
  for (const GotDump& got : all.gots) OpenLogitsDump(got.path);
  const std::optional<Noise> noise = NoiseOfGold(common, cancel, &all.interrupted);
  for (const GotDump& got : all.gots) {
    if (all.interrupted) break;
    DumpQuestion question = common;
    question.got = got.path;
    all.reports.push_back(Compare(question, noise, cancel));
    all.interrupted = all.reports.back().interrupted;
    if (!so_far || all.interrupted || all.reports.size() == all.gots.size()) continue;
    DumpsReport partial = all;
    partial.interrupted = true;
    so_far(std::move(partial));
  }
  return all;
}

}  // namespace kvcheck
