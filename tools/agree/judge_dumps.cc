#include "tools/agree/judge_dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/agree/dump_pair.h"
#include "tools/agree/storage_figures.h"
#include "tools/agree/token_texts.h"

namespace kvcheck {
namespace {

// exp of it is 0 in double: no token of such a probability is told from one that has none.
constexpr double kNoProbability = -745.2;

// What GOT's types round of the difference of two of GOLD's tokens, as far as GOT lists them.
double GotRounding(const TokenDistribution& gold, const TokenDistribution& got, size_t a,
                   size_t b) {
  const auto i = got.Find(gold.Token(a));
  const auto j = got.Find(gold.Token(b));
  if (!i && !j) return 0;
  return got.MarginRounding(i.value_or(*(j ? j : i)), j.value_or(*(i ? i : j)));
}

DumpFlip FlipOf(const ExplainedErrors& errors, int64_t at, const TokenDistribution& gold,
                const TokenDistribution& got, const optimized::LogitsPair& pair) {
  DumpFlip flip;
  flip.position = at;
  flip.expected = gold.Token(pair.top);
  flip.got = got.Token(pair.other_top);
  const std::optional<size_t> other = gold.Find(flip.got);
  const auto least = static_cast<size_t>(std::min_element(gold.log_p.begin(), gold.log_p.end()) -
                                         gold.log_p.begin());
  const size_t second = other.value_or(least);
  flip.at_least = !other || !(gold.log_p[*other] > gold.floor);
  flip.margin = gold.log_p[pair.top] - gold.log_p[second];
  flip.allowed =
      2 * errors.each + gold.MarginRounding(pair.top, second) +
      got.MarginRounding(pair.other_top, got.Find(flip.expected).value_or(pair.other_top));
  flip.by_noise = 2 * errors.noise;
  flip.by_got = 2 * errors.own;
  return flip;
}

// A flip of this position would be a finding; else whether any other answer would be one.
void CountDecided(const ExplainedErrors& errors, int64_t at, const TokenDistribution& gold,
                  const TokenDistribution& got, const optimized::LogitsPair& pair,
                  DumpFindings* findings) {
  const double top = gold.log_p[pair.top];
  double rival = gold.UnlistedMost();
  if (pair.second != pair.top) rival = std::max(rival, gold.log_p[pair.second]);
  const double allowed = 2 * errors.each + gold.MarginRounding(pair.top, pair.second) +
                         GotRounding(gold, got, pair.top, pair.second);
  // A single token of a vocabulary of one has no rival, and decides nothing.
  const bool has_rival = !gold.complete || pair.second != pair.top;
  if (has_rival && top - rival > allowed) {
    ++findings->decided;
    return;
  }
  if (!gold.complete) return;
  const double least = *std::min_element(gold.log_p.begin(), gold.log_p.end());
  if (top - least > allowed) return;
  if (findings->flat++ == 0) findings->first_flat = at;
}

// Whether numbers a of GOLD and b of GOT differ by more than `allowed`. *_floor: where a dump's
// number may stand for any below it.
bool IsChanged(double a, double a_floor, double b, double b_floor, double allowed) {
  const bool a_is_open = !(a > a_floor);
  const bool b_is_open = !(b > b_floor);
  const double x = std::max(a, kNoProbability);
  const double y = std::max(b, kNoProbability);
  if (a_is_open && b_is_open) return false;
  if (a_is_open) return !(y - x <= allowed);
  if (b_is_open) return !(x - y <= allowed);
  return !(std::fabs(x - y) <= allowed);
}

// Of one position: the first log-probability that moved by more than `allowed`.
std::optional<DumpChange> ChangeOf(int64_t at, const TokenDistribution& gold,
                                   const TokenDistribution& got, double allowed) {
  std::optional<DumpChange> first;
  const auto add = [&](int64_t token, double expected, double actual) {
    if (!first) first = DumpChange{at, token, expected, actual, allowed};
  };
  ForCommon(gold, got, [&](size_t i, size_t j) {
    const double a = gold.log_p[i];
    const double b = got.log_p[j];
    if (!first && IsChanged(a, gold.floor, b, got.floor, allowed)) add(gold.Token(i), a, b);
  });
  if (first) return first;
  const auto beyond = [&](const TokenDistribution& listed, const TokenDistribution& other,
                          bool is_gold) {
    if (other.complete) return;
    const double most = std::max(other.UnlistedMost(), kNoProbability);
    for (size_t i = 0; i < listed.size() && !first; ++i) {
      const double log_p = listed.log_p[i];
      if (!(log_p > listed.floor) || !(log_p > most + allowed)) continue;
      if (other.Find(listed.Token(i))) continue;
      is_gold ? add(listed.Token(i), log_p, most) : add(listed.Token(i), most, log_p);
    }
  };
  beyond(gold, got, true);
  beyond(got, gold, false);
  return first;
}

void Say(DumpReport* report, Outcome outcome, std::string why) {
  report->outcome = outcome;
  report->why = std::move(why);
}

std::string WhyFlips(const DumpFlip& flip, int64_t count) {
  return fmt::format(
      "{} flips that no error explains; the first at position {}: token {} instead of {}, whose "
      "margin is {}{:.3g} and {:.3g} is explained",
      count, flip.position, TokenName(flip.got), TokenName(flip.expected),
      flip.at_least ? "at least " : "", flip.margin, flip.allowed);
}

std::string WhyChanges(const DumpChange& change, int64_t count) {
  return fmt::format(
      "{} positions with a log-probability that moved by more than is explained; the first at "
      "position {}: {:.6g} instead of {:.6g} of token {}, and {:.3g} is explained",
      count, change.position, change.got, change.expected, TokenName(change.token), change.allowed);
}

// What holds of figures too: where they mean nothing they are not to be trusted.
bool SaysNothing(DumpReport* report) {
  const int64_t positions = report->figures.positions;
  if (report->one_file) {
    Say(report, Outcome::kMistrusted, "compared with itself: GOLD and GOT are one file");
  } else if (report->top_unknown == positions) {
    Say(report, Outcome::kMistrusted,
        "no position of both lists its most likely token: ask the engine for more than the text's "
        "own token (vLLM: prompt_logprobs=20)");
  } else if (report->decided == 0) {
    Say(report, Outcome::kMistrusted,
        fmt::format("in none of {} positions GOLD's margin is more than what is explained: nothing "
                    "is decided",
                    positions));
  } else {
    return false;
  }
  return true;
}

}  // namespace

ExplainedErrors ErrorsOf(const DumpQuestion& question, double noise, const TokenDistribution& gold,
                         const TokenDistribution& got) {
  ExplainedErrors errors;
  errors.each = gold.error + (got.error_is_stated ? 0 : got.error);
  errors.own = got.error_is_stated ? got.error : 0;
  if (!question.judge) return errors;
  errors.noise = noise;
  errors.each +=
      2 * question.logit_error.value_or(0) + question.got_error.value_or(0) + errors.noise;
  return errors;
}

void JudgePosition(const DumpQuestion& question, double noise, int64_t at,
                   const TokenDistribution& gold, const TokenDistribution& got,
                   const optimized::LogitsPair& pair, DumpFindings* findings) {
  const ExplainedErrors errors = ErrorsOf(question, noise, gold, got);
  const double rounding = gold.rounding + got.rounding;
  findings->rounding = std::max(findings->rounding, rounding);
  if (gold.ListsTop() && got.ListsTop()) {
    if (!findings->positions.back().same_top1) {
      findings->flips.push_back(FlipOf(errors, at, gold, got, pair));
    }
    CountDecided(errors, at, gold, got, pair, findings);
  } else {
    findings->positions.back().top1_known = false;
    ++findings->top_unknown;
  }
  if (findings->same) {
    findings->same =
        gold.complete == got.complete && gold.tokens == got.tokens && gold.log_p == got.log_p;
  }
  if (findings->within_rounding) {
    const double files = gold.error + got.error + rounding;
    findings->within_rounding = !ChangeOf(at, gold, got, files);
  }
  if (!question.JudgesProbabilities()) return;
  const auto change = ChangeOf(at, gold, got, errors.each + rounding);
  if (!change) return;
  if (findings->changed++ == 0) findings->first_change = change;
  const auto beyond = ChangeOf(at, gold, got, errors.each + rounding + errors.own);
  if (beyond && findings->changed_beyond_own++ == 0) findings->first_change_beyond_own = beyond;
}

void Conclude(DumpReport* report) {
  const int64_t positions = report->figures.positions;
  int64_t unexcused = 0, by_own = 0, by_noise = 0;
  const DumpFlip* first = nullptr;
  for (const DumpFlip& flip : report->flips) {
    report->excused += flip.excused() ? 1 : 0;
    report->undecided += flip.excused() && flip.at_least ? 1 : 0;
    by_noise += flip.excused() && !(flip.margin <= flip.allowed - flip.by_noise) ? 1 : 0;
    if (flip.excused()) continue;
    if (flip.margin <= flip.allowed + flip.by_got) {
      ++by_own;
      continue;
    }
    if (unexcused++ == 0) first = &flip;
  }
  if (report->not_finite > 0) {
    return Say(
        report, Outcome::kFail,
        fmt::format("{} positions have a log-probability that is no number", report->not_finite));
  }
  if (!report->judged) {
    SaysNothing(report);
    return;
  }
  if (unexcused > 0) return Say(report, Outcome::kFail, WhyFlips(*first, unexcused));
  if (report->changed_beyond_own > 0) {
    return Say(report, Outcome::kFail,
               WhyChanges(*report->first_change_beyond_own, report->changed_beyond_own));
  }
  if (SaysNothing(report)) return;
  const auto mistrust = [&](std::string why) { Say(report, Outcome::kMistrusted, std::move(why)); };
  const auto share = [&](int64_t count) { return fmt::format("{} of {}", count, positions); };
  if (by_own + report->changed > 0) {
    return mistrust(fmt::format(
        "{} flips and {} positions are explained by nothing but what GOT's file says of its own "
        "error: where that is right, say it by --got-error",
        by_own, report->changed));
  }
  if (by_noise > 0 && report->noise_is_got) {
    return mistrust(fmt::format(
        "{} flips are explained by nothing but the noise, and that is what GOT says", by_noise));
  }
  if (!(static_cast<double>(report->excused) <= kMostExcused * static_cast<double>(positions))) {
    return mistrust(share(report->excused) + " positions are excused flips");
  }
  if (report->undecided > 0) {
    return mistrust(fmt::format("of {} flips the dump holds too few tokens to tell the margin",
                                report->undecided));
  }
  if (report->flat > 0) {
    return mistrust(fmt::format(
        "in {} positions (the first is {}) all of GOLD's log-probabilities lie within what is "
        "explained: no answer would be a finding",
        share(report->flat), report->first_flat));
  }
  if (report->top_unknown > 0 && !report->judged_probabilities) {
    return mistrust(fmt::format(
        "in {} positions a dump does not list its most likely token, and nothing was judged there",
        share(report->top_unknown)));
  }
  if (!(2 * report->decided > positions)) {
    return mistrust(fmt::format(
        "in {} positions no flip could have been seen: what is explained is no less than GOLD's "
        "margin",
        share(positions - report->decided)));
  }
}

}  // namespace kvcheck
