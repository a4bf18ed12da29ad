#include "tools/agree/compare_dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <thread>

#include "optimized/model/logits_pair.h"
#include "reference/spec/error.h"
#include "tools/agree/distribution_check.h"
#include "tools/agree/storage_figures.h"

namespace kvcheck {
namespace {

// visit(i of a, j of b) for the tokens that both have.
template <typename Visit>
void ForCommon(const TokenDistribution& a, const TokenDistribution& b, Visit visit) {
  size_t j = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    while (j < b.size() && b.Token(j) < a.Token(i)) ++j;
    if (j < b.size() && b.Token(j) == a.Token(i)) visit(i, j);
  }
}

// p log(p / q), of p = 0 nothing.
double Term(double log_p, double log_q) {
  const double p = std::exp(log_p);
  return p > 0 ? p * (log_p - log_q) : 0;
}

// Index of the most likely token but `other`, the first of several.
size_t TopBut(const TokenDistribution& position, std::optional<size_t> other) {
  size_t top = other == size_t{0} && position.size() > 1 ? 1 : 0;
  for (size_t i = top + 1; i < position.size(); ++i) {
    if (i != other && position.log_p[i] > position.log_p[top]) top = i;
  }
  return top;
}

// KL(gold || got) in nats over the tokens that both have, and all the others as one: at most the
// true one, since lumping tokens together never makes KL larger.
double LumpedKl(const TokenDistribution& gold, const TokenDistribution& got) {
  double kl = 0;
  double gold_mass = 0;
  double got_mass = 0;
  ForCommon(gold, got, [&](size_t i, size_t j) {
    kl += Term(gold.log_p[i], got.log_p[j]);
    gold_mass += std::exp(gold.log_p[i]);
    got_mass += std::exp(got.log_p[j]);
  });
  // What is left of 1, never less than nothing; of `got` never less than its roundings can hide, or
  // what it excludes and the gold says would cost nothing.
  const double hidden = std::min(1.0, got_mass * std::expm1(got.error + got.rounding) +
                                          static_cast<double>(got.size()) * 0x1p-53);
  const double gold_rest = std::max(0.0, 1 - gold_mass);
  const double got_rest = std::max(hidden, 1 - got_mass);
  if (gold_rest > 0) kl += Term(std::log(gold_rest), std::log(got_rest));
  return kl;
}

// As optimized::ComparePair, of distributions that need not be complete.
optimized::LogitsPair PairOf(const TokenDistribution& gold, const TokenDistribution& got) {
  if (gold.complete && got.complete) return optimized::ComparePair(gold.log_p, got.log_p);
  optimized::LogitsPair pair;
  pair.is_finite = IsFinite(gold);
  pair.other_is_finite = IsFinite(got);
  if (!pair.is_finite || !pair.other_is_finite) return pair;
  pair.kl = LumpedKl(gold, got);
  pair.top = TopBut(gold, std::nullopt);
  pair.second = TopBut(gold, pair.top);
  pair.other_top = TopBut(got, std::nullopt);
  return pair;
}

// The largest |difference| of a token that `gold` puts first or second.
double TopDifference(const TokenDistribution& gold, const TokenDistribution& other,
                     const optimized::LogitsPair& pair) {
  double largest = 0;
  for (const size_t i : {pair.top, pair.second}) {
    const std::optional<size_t> j = other.Find(gold.Token(i));
    if (j) largest = std::max(largest, std::fabs(gold.log_p[i] - other.log_p[*j]));
  }
  return largest;
}

// One position of two dumps after the other.
class Pair {
 public:
  Pair(const std::string& gold, const std::string& got)
      : gold_path_(gold), got_path_(got), gold_(OpenLogitsDump(gold)), got_(OpenLogitsDump(got)) {}

  // How many there are of both; nullopt where only reading them tells, or they differ.
  std::optional<int64_t> Positions() const {
    return gold_->Positions() == got_->Positions() ? gold_->Positions() : std::nullopt;
  }
  // Only the positions [first, end) are read; end: nullopt, to the end of both.
  void Cut(int64_t first, std::optional<int64_t> end) {
    gold_->Skip(first);
    got_->Skip(first);
    at_ = first;
    end_ = end;
  }
  int64_t at() const { return at_; }  // of the next one

  bool Read(TokenDistribution* gold, TokenDistribution* got) {
    if (at_ == end_) return false;
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
    if (gold->complete && got->complete && gold->size() != got->size()) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("its vocabulary has {} tokens, that of {} {}", got->size(),
                              gold_path_, gold->size()),
                  got_path_);
    }
    if (gold->text && got->text && *gold->text != *got->text) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("position {} is of its text {}, and of text {} of {}: texts of the "
                              "same lengths are asked for",
                              at_, *got->text + 1, *gold->text + 1, gold_path_),
                  got_path_);
    }
    CheckVocabulary(*gold, got_path_, *got, gold_path_);
    CheckVocabulary(*got, gold_path_, *gold, got_path_);
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

 private:
  // listed, of the file `path`, names no token that a complete position of `whole_path` has not.
  void CheckVocabulary(const TokenDistribution& whole, const std::string& path,
                       const TokenDistribution& listed, const std::string& whole_path) const {
    if (!whole.complete) return;
    const auto size = static_cast<int64_t>(whole.size());
    const int64_t largest =
        std::max(listed.Token(listed.size() - 1), listed.next.value_or(int64_t{0}));
    if (largest < size) return;
    throw Error(ErrorCode::kMissingData,
                fmt::format("position {} names token {}, and the vocabulary of {} has {}", at_,
                            largest, whole_path, size),
                path);
  }

  std::string gold_path_, got_path_;
  std::unique_ptr<LogitsDump> gold_, got_;
  int64_t at_ = 0;
  std::optional<int64_t> end_;
};

// What work(pair, &part) makes of consecutive parts of two dumps, each read by a thread of its own.
// Errors: the first in the order of positions.
template <typename Part, typename Work>
std::vector<Part> InParts(const std::string& gold, const std::string& got, int threads,
                          const Work& work) {
  const std::optional<int64_t> positions = Pair(gold, got).Positions();
  const int64_t count =
      positions ? std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, *positions)) : 1;
  std::vector<Part> parts(static_cast<size_t>(count));
  std::vector<std::exception_ptr> errors(parts.size());
  const auto run = [&](int64_t i) {
    try {
      Pair pair(gold, got);
      if (i + 1 < count) {
        pair.Cut(*positions * i / count, *positions * (i + 1) / count);
      } else if (i > 0) {
        pair.Cut(*positions * i / count, std::nullopt);
      }
      work(&pair, &parts[static_cast<size_t>(i)]);
    } catch (...) {
      errors[static_cast<size_t>(i)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < count; ++i) others.emplace_back(run, i);
    run(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return parts;
}

[[noreturn]] void RefuseNumber(int64_t at, const std::string& path) {
  throw Error(ErrorCode::kMissingData,
              fmt::format("position {} has a log-probability that is no number", at), path);
}

double NoiseOf(const DumpQuestion& question, const Cancel& cancel) {
  const auto parts = InParts<double>(
      question.gold, question.noise, question.threads, [&](Pair* pair, double* noise) {
        TokenDistribution gold, again;
        while (pair->Read(&gold, &again)) {
          cancel();
          const optimized::LogitsPair compared = PairOf(gold, again);
          if (!compared.is_finite) RefuseNumber(pair->at() - 1, question.gold);
          if (!compared.other_is_finite) RefuseNumber(pair->at() - 1, question.noise);
          *noise = std::max(*noise, TopDifference(gold, again, compared));
        }
      });
  return *std::max_element(parts.begin(), parts.end());
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

// Consecutive positions.
struct ComparedPart {
  std::vector<PositionFigures> positions;
  std::vector<DumpFlip> flips;
  int64_t not_finite = 0;
  double largest = 0;
  bool is_lower_bound = false;
  bool has_next = true;
};

// noise: of the gold's engine.
void ComparePart(const DumpQuestion& question, double noise, const Cancel& cancel, Pair* pair,
                 ComparedPart* part) {
  TokenDistribution gold, got;
  while (pair->Read(&gold, &got)) {
    cancel();
    const int64_t at = pair->at() - 1;
    const optimized::LogitsPair compared = PairOf(gold, got);
    if (!compared.is_finite) RefuseNumber(at, question.gold);
    if (!compared.other_is_finite) {
      ++part->not_finite;
      part->positions.emplace_back();
      continue;
    }
    part->is_lower_bound = part->is_lower_bound || !gold.complete || !got.complete;
    part->positions.push_back(FiguresOf(gold, got, compared, &part->has_next));
    part->largest = std::max(part->largest, TopDifference(gold, got, compared));
    if (part->positions.back().same_top1) continue;
    DumpFlip flip;
    flip.position = at;
    const size_t top = compared.top;
    flip.expected = gold.Token(top);
    flip.got = got.Token(compared.other_top);
    const std::optional<size_t> other = gold.Find(flip.got);
    const double least = *std::min_element(gold.log_p.begin(), gold.log_p.end());
    flip.at_least = !other || !(gold.log_p[*other] > gold.floor);
    flip.margin = gold.log_p[top] - (other ? gold.log_p[*other] : least);
    // Each of two log-probabilities may be off in each of two dumps.
    flip.allowed =
        2 * (gold.error + got.error + 2 * question.logit_error + question.got_error + noise);
    part->flips.push_back(flip);
  }
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

DumpReport CompareDumps(const DumpQuestion& question, const Cancel& cancel) {
  DumpReport report;
  report.gold = OpenLogitsDump(question.gold)->Description();
  report.got = OpenLogitsDump(question.got)->Description();
  if (!question.noise.empty()) report.noise = NoiseOf(question, cancel);
  const auto parts = InParts<ComparedPart>(
      question.gold, question.got, question.threads, [&](Pair* pair, ComparedPart* part) {
        ComparePart(question, report.noise.value_or(0), cancel, pair, part);
      });
  report.has_next = true;
  std::vector<PositionFigures> positions;
  for (const ComparedPart& part : parts) {
    positions.insert(positions.end(), part.positions.begin(), part.positions.end());
    report.flips.insert(report.flips.end(), part.flips.begin(), part.flips.end());
    report.not_finite += part.not_finite;
    report.largest = std::max(report.largest, part.largest);
    report.is_lower_bound = report.is_lower_bound || part.is_lower_bound;
    report.has_next = report.has_next && part.has_next;
  }
  for (const DumpFlip& flip : report.flips) {
    report.excused += flip.excused() ? 1 : 0;
    report.undecided += flip.excused() && flip.at_least ? 1 : 0;
  }
  if (positions.empty()) {
    throw Error(ErrorCode::kSelection, "it holds no position", question.gold);
  }
  report.figures = Summarize(positions);
  Conclude(&report);
  return report;
}

}  // namespace kvcheck
