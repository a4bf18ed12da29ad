#include "tools/agree/compare_dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "reference/spec/error.h"
#include "tools/agree/storage_figures.h"

namespace kvcheck {
namespace {

// visit(i of a, j of b) for the tokens that both have.
template <typename Visit>
void ForCommon(const TokenDistribution& a, const TokenDistribution& b, Visit visit) {
  size_t j = 0;
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    while (j < b.tokens.size() && b.tokens[j] < a.tokens[i]) ++j;
    if (j < b.tokens.size() && b.tokens[j] == a.tokens[i]) visit(i, j);
  }
}

// p log(p / q), of p = 0 nothing.
double Term(double log_p, double log_q) {
  const double p = std::exp(log_p);
  return p > 0 ? p * (log_p - log_q) : 0;
}

// The largest |difference| of a token that `gold` puts first or second.
double TopDifference(const TokenDistribution& gold, const TokenDistribution& other) {
  const size_t top = gold.Top();
  std::optional<size_t> second;
  for (size_t i = 0; i < gold.tokens.size(); ++i) {
    if (i != top && (!second || gold.log_p[i] > gold.log_p[*second])) second = i;
  }
  double largest = 0;
  for (const std::optional<size_t> i : {std::optional<size_t>(top), second}) {
    if (!i) continue;
    const std::optional<size_t> j = other.Find(gold.tokens[*i]);
    if (j) largest = std::max(largest, std::fabs(gold.log_p[*i] - other.log_p[*j]));
  }
  return largest;
}

bool IsFinite(const TokenDistribution& position) {
  return std::all_of(position.log_p.begin(), position.log_p.end(), [](double log_p) {
    return log_p < std::numeric_limits<double>::infinity();  // -inf is a probability of 0
  });
}

// One position of two dumps after the other.
class Pair {
 public:
  Pair(const std::string& gold, const std::string& got)
      : gold_path_(gold), got_path_(got), gold_(OpenLogitsDump(gold)), got_(OpenLogitsDump(got)) {}

  bool Read(TokenDistribution* gold, TokenDistribution* got) {
    const bool more = gold_->Read(gold);
    const bool other_more = got_->Read(got);
    if (more != other_more) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("it ends after {} positions, and {} does not: dumps of one text are "
                              "asked for",
                              at_, more ? gold_path_ : got_path_),
                  more ? got_path_ : gold_path_);
    }
    if (!more) return false;
    if (gold->complete && got->complete && gold->tokens.size() != got->tokens.size()) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("its vocabulary has {} tokens, that of {} {}", got->tokens.size(),
                              gold_path_, gold->tokens.size()),
                  got_path_);
    }
    if (gold->next && got->next && *gold->next != *got->next) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("after position {} its text goes on with token {}, that of {} with "
                              "{}: dumps of one text are asked for",
                              at_, *got->next, gold_path_, *gold->next),
                  got_path_);
    }
    if (!gold->next) gold->next = got->next;
    ++at_;
    return true;
  }
  const LogitsDump& gold() const { return *gold_; }
  const LogitsDump& got() const { return *got_; }

 private:
  std::string gold_path_, got_path_;
  std::unique_ptr<LogitsDump> gold_, got_;
  int64_t at_ = 0;
};

double NoiseOf(const DumpQuestion& question, const Cancel& cancel) {
  Pair pair(question.gold, question.noise);
  TokenDistribution gold, again;
  double noise = 0;
  while (pair.Read(&gold, &again)) {
    cancel();
    noise = std::max(noise, TopDifference(gold, again));
  }
  return noise;
}

PositionFigures FiguresOf(const TokenDistribution& gold, const TokenDistribution& got,
                          bool* has_next) {
  PositionFigures figures;
  figures.kl = LumpedKl(gold, got);
  figures.same_top1 = gold.tokens[gold.Top()] == got.tokens[got.Top()];
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

void Conclude(DumpReport* report) {
  const auto unexcused = static_cast<int64_t>(report->flips.size()) - report->excused;
  const auto positions = static_cast<double>(report->figures.positions);
  if (report->not_finite > 0) {
    report->outcome = Outcome::kFail;
    report->why =
        fmt::format("{} positions have a log-probability that is no number", report->not_finite);
  } else if (unexcused > 0) {
    const DumpFlip& flip = *std::find_if(report->flips.begin(), report->flips.end(),
                                         [](const DumpFlip& f) { return !f.excused(); });
    report->outcome = Outcome::kFail;
    report->why = fmt::format(
        "{} flips that no error explains; the first at position {}: token {} instead of {}, whose "
        "margin is {}{:.3g} and {:.3g} is explained",
        unexcused, flip.position, flip.got, flip.expected, flip.at_least ? "at least " : "",
        flip.margin, flip.allowed);
  } else if (!(static_cast<double>(report->excused) <= kMostExcused * positions)) {
    report->outcome = Outcome::kMistrusted;
    report->why = fmt::format("{} of {} positions are excused flips", report->excused,
                              report->figures.positions);
  } else if (report->undecided > 0) {
    report->outcome = Outcome::kMistrusted;
    report->why = fmt::format("of {} flips the dump holds too few tokens to tell the margin",
                              report->undecided);
  }
}

}  // namespace

double LumpedKl(const TokenDistribution& gold, const TokenDistribution& got) {
  double kl = 0;
  double gold_mass = 0;
  double got_mass = 0;
  ForCommon(gold, got, [&](size_t i, size_t j) {
    kl += Term(gold.log_p[i], got.log_p[j]);
    gold_mass += std::exp(gold.log_p[i]);
    got_mass += std::exp(got.log_p[j]);
  });
  if (!(gold.complete && got.complete)) {
    // What is left of 1, never less than nothing.
    const double gold_rest = std::max(0.0, 1 - gold_mass);
    const double got_rest = std::max(0.0, 1 - got_mass);
    if (gold_rest > 0 && got_rest > 0) kl += Term(std::log(gold_rest), std::log(got_rest));
  }
  // Rounding alone makes it negative. NaN stays.
  return kl < 0 ? 0 : kl;
}

DumpReport CompareDumps(const DumpQuestion& question, const Cancel& cancel) {
  DumpReport report;
  if (!question.noise.empty()) report.noise = NoiseOf(question, cancel);
  Pair pair(question.gold, question.got);
  report.gold = pair.gold().Description();
  report.got = pair.got().Description();
  report.has_next = true;
  TokenDistribution gold, got;
  std::vector<PositionFigures> positions;
  while (pair.Read(&gold, &got)) {
    cancel();
    const auto at = static_cast<int64_t>(positions.size());
    if (!IsFinite(gold)) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("position {} has a log-probability that is no number", at),
                  question.gold);
    }
    if (!IsFinite(got)) {
      ++report.not_finite;
      positions.emplace_back();
      continue;
    }
    report.is_lower_bound = report.is_lower_bound || !gold.complete || !got.complete;
    positions.push_back(FiguresOf(gold, got, &report.has_next));
    report.largest = std::max(report.largest, TopDifference(gold, got));
    if (positions.back().same_top1) continue;
    DumpFlip flip;
    flip.position = at;
    const size_t top = gold.Top();
    flip.expected = gold.tokens[top];
    flip.got = got.tokens[got.Top()];
    const std::optional<size_t> other = gold.Find(flip.got);
    const double least = *std::min_element(gold.log_p.begin(), gold.log_p.end());
    flip.at_least = !other || !(gold.log_p[*other] > gold.floor);
    flip.margin = gold.log_p[top] - (other ? gold.log_p[*other] : least);
    // Each of two log-probabilities may be off in each of two dumps.
    flip.allowed = 2 * (gold.error + got.error + 2 * question.logit_error + question.got_error +
                        report.noise.value_or(0));
    report.excused += flip.excused() ? 1 : 0;
    report.undecided += flip.excused() && flip.at_least ? 1 : 0;
    report.flips.push_back(flip);
  }
  if (positions.empty()) {
    throw Error(ErrorCode::kSelection, "it holds no position", question.gold);
  }
  report.figures = Summarize(positions);
  Conclude(&report);
  return report;
}

}  // namespace kvcheck
