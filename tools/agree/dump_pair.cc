#include "tools/agree/dump_pair.h"

#include <fmt/format.h>

#include <cmath>

#include "reference/spec/error.h"
#include "tools/agree/distribution_check.h"
#include "tools/agree/token_texts.h"

namespace kvcheck {
namespace {

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

// Of a list: its tokens are named by their text.
bool IsByText(const TokenDistribution& position) {
  return !position.complete && IsTextToken(position.tokens.back());
}

}  // namespace

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

double TopDifference(const TokenDistribution& gold, const TokenDistribution& other,
                     const optimized::LogitsPair& pair) {
  double largest = 0;
  for (const size_t i : {pair.top, pair.second}) {
    const std::optional<size_t> j = other.Find(gold.Token(i));
    if (j) largest = std::max(largest, std::fabs(gold.log_p[i] - other.log_p[*j]));
  }
  return largest;
}

DumpPair::DumpPair(const std::string& gold, const std::string& got)
    : gold_path_(gold), got_path_(got), gold_(OpenLogitsDump(gold)), got_(OpenLogitsDump(got)) {}

std::optional<int64_t> DumpPair::Positions() const {
  return gold_->Positions() == got_->Positions() ? gold_->Positions() : std::nullopt;
}

void DumpPair::Cut(int64_t first, std::optional<int64_t> end) {
  gold_->Skip(first);
  got_->Skip(first);
  at_ = first;
  end_ = end;
}

bool DumpPair::Read(TokenDistribution* gold, TokenDistribution* got) {
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
                fmt::format("its vocabulary has {} tokens, that of {} {}", got->size(), gold_path_,
                            gold->size()),
                got_path_);
  }
  if (gold->text && got->text && *gold->text != *got->text) {
    throw Error(ErrorCode::kMissingData,
                fmt::format("position {} is of its text {}, and of text {} of {}: texts of the "
                            "same lengths are asked for",
                            at_, *got->text + 1, *gold->text + 1, gold_path_),
                got_path_);
  }
  if (IsByText(*gold) != IsByText(*got)) {
    const bool is_got = IsByText(*got);
    throw Error(
        ErrorCode::kMissingData,
        fmt::format("position {} names its tokens by their text, and {} by their ids: dumps "
                    "of one kind are asked for (vLLM names ids in OpenAI's format under "
                    "return_tokens_as_token_ids)",
                    at_, is_got ? gold_path_ : got_path_),
        is_got ? got_path_ : gold_path_);
  }
  CheckVocabulary(*gold, got_path_, *got, gold_path_);
  CheckVocabulary(*got, gold_path_, *gold, got_path_);
  if (gold->next && got->next && *gold->next != *got->next) {
    throw Error(ErrorCode::kMissingData,
                fmt::format("after position {} its text goes on with token {}, that of {} with "
                            "{}: dumps of one text are asked for",
                            at_, TokenName(*got->next), gold_path_, TokenName(*gold->next)),
                got_path_);
  }
  if (!gold->next) gold->next = got->next;
  ++at_;
  return true;
}

void DumpPair::CheckVocabulary(const TokenDistribution& whole, const std::string& path,
                               const TokenDistribution& listed,
                               const std::string& whole_path) const {
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

}  // namespace kvcheck
