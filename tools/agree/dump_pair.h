// Two dumps of one text, read side by side, and what one position of both has in common.

#ifndef TOOLS_AGREE_DUMP_PAIR_H_
#define TOOLS_AGREE_DUMP_PAIR_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "optimized/model/logits_pair.h"
#include "tools/agree/logits_dump.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

// visit(i of a, j of b) for the tokens that both have.
template <typename Visit>
void ForCommon(const TokenDistribution& a, const TokenDistribution& b, Visit visit) {
  size_t j = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    while (j < b.size() && b.Token(j) < a.Token(i)) ++j;
    if (j < b.size() && b.Token(j) == a.Token(i)) visit(i, j);
  }
}

// As optimized::ComparePair, of distributions that need not be complete.
optimized::LogitsPair PairOf(const TokenDistribution& gold, const TokenDistribution& got);

// The largest |difference| of a token that `gold` puts first or second.
double TopDifference(const TokenDistribution& gold, const TokenDistribution& other,
                     const optimized::LogitsPair& pair);

// One position of two dumps after the other.
class DumpPair {
 public:
  // Errors: those of OpenLogitsDump.
  DumpPair(const std::string& gold, const std::string& got);

  // How many there are of both; nullopt where only reading them tells, or they differ.
  std::optional<int64_t> Positions() const;
  // Only the positions [first, end) are read; end: nullopt, to the end of both.
  void Cut(int64_t first, std::optional<int64_t> end);
  int64_t at() const { return at_; }  // of the next one

  // Errors: as LogitsDump::Read; kMissingData where one dump has more positions, another vocabulary
  // or another text than the other.
  bool Read(TokenDistribution* gold, TokenDistribution* got);

 private:
  void CheckVocabulary(const TokenDistribution& whole, const std::string& path,
                       const TokenDistribution& listed, const std::string& whole_path) const;

  std::string gold_path_, got_path_;
  std::unique_ptr<LogitsDump> gold_, got_;
  int64_t at_ = 0;
  std::optional<int64_t> end_;
};

// What work(pair, &part) makes of consecutive parts of two dumps, each read by a thread of its own.
// Where work throws Cancelled its part stays as it is, and *interrupted is set.
// Errors: the first in the order of positions.
template <typename Part, typename Work>
std::vector<Part> InParts(const std::string& gold, const std::string& got, int threads,
                          const Work& work, bool* interrupted) {
  const std::optional<int64_t> positions = DumpPair(gold, got).Positions();
  const int64_t count =
      positions ? std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, *positions)) : 1;
  std::vector<Part> parts(static_cast<size_t>(count));
  std::vector<std::exception_ptr> errors(parts.size());
  std::atomic<bool> cancelled = false;
  const auto run = [&](int64_t i) {
    try {
      DumpPair pair(gold, got);
      if (i + 1 < count) {
        pair.Cut(*positions * i / count, *positions * (i + 1) / count);
      } else if (i > 0) {
        pair.Cut(*positions * i / count, std::nullopt);
      }
      work(&pair, &parts[static_cast<size_t>(i)]);
    } catch (const Cancelled&) {
      cancelled = true;
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
  *interrupted = *interrupted || cancelled;
  return parts;
}

}  // namespace kvcheck

#endif  // TOOLS_AGREE_DUMP_PAIR_H_
