// What made the rows wrong? Causes are proposed from the sums of seen_keys.h, each with its
// numbers, and every one is put to the test: what all rows would be under it, exactly, against what
// they are.
//
// Q = sum ((got - predicted) / sigma)^2 over N elements; Q_0 of the right answer, phi = Q / N of
// the best cause (what its noise is beside the expected). A cause is named where it
// * leaves a hundredth of the excess, or noise: Q - N <= max(0.01 (Q_0 - N), 4 sqrt(2 N));
// * gains much: Q_0 - Q > 50 phi;
// * stands alone: Q' - Q > 20 phi for every Q' of a cause that predicts something else.
// In the last two Q has what free numbers cost: 2 each, and 2 ln(n) for a choice of n. Causes that
// predict the same (sum ((one - other) / sigma)^2 < 20 phi) are one under several names. Otherwise
// nothing is named: a correlation is no cause.

#ifndef REFERENCE_ATTENTION_CAUSES_H_
#define REFERENCE_ATTENTION_CAUSES_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention/seen_keys.h"

namespace kvcheck {

struct CauseText {
  std::string name;
  std::string text;      // a clause: "keys 64 to 127 are left out"
  int rank = 0;          // of causes that predict the same, the lowest is named
  double numbers = 0;    // that it takes from the errors
  double choices = 1;    // among so many of its kind
  bool of_rows = false;  // says nothing of rows that it was not found on
};

struct Candidate {
  CauseText what;
  std::vector<double> predicted;  // [row or control][channel]
  double misfit = 0;
  // What is added to the text of a cause that is named, where others are no worse by `least`.
  std::function<std::string(double least)> doubt;

  double Charged() const { return misfit + 2 * what.numbers + 2 * std::log(what.choices); }
};

class Causes {
 public:
  // Of Q, over what the right answer leaves; from one cause to another; the share that is left.
  static constexpr double kNamedGain = 50;
  static constexpr double kDistinct = 20;
  static constexpr double kLeftOfExcess = 0.01;

  explicit Causes(const SeenProblem& problem);

  const SeenProblem& problem() const { return problem_; }
  const AttentionCase& c() const { return problem_.asked.c; }
  // Those that are explained; predictions are asked for the controls too, by later indices.
  std::span<const SeenRow> rows() const { return std::span(problem_.rows).first(problem_.counted); }
  // By the index of the row or control.
  const std::vector<KeySums>& sums() const { return sums_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  std::vector<size_t> AllRows() const;
  // Rows that are computed anew in one try, so that a try takes a bounded time.
  std::vector<size_t> FewRows() const;

  // predict(row, index of the row) -> std::optional<Mixture>; nullopt: the row is as it should be.
  // Sum over some rows (problem().screen, ...) of the misfit; not below infinity where it is none.
  template <typename Predict>
  double Misfit(const std::vector<size_t>& of, const Predict& predict) const {
    double misfit = 0;
    for (const size_t r : of) {
      const std::optional<Mixture> mixture = predict(rows()[r], r);
      misfit += mixture ? MisfitOf(rows()[r], *mixture) : MisfitOf(rows()[r], rows()[r].o);
    }
    return misfit == misfit ? misfit : HUGE_VAL;
  }
  // Share of the excess of some rows that a cause explains.
  template <typename Predict>
  double Explains(const std::vector<size_t>& of, const Predict& predict) const {
    double right = 0, elements = 0;
    for (const size_t r : of) {
      right += MisfitOf(rows()[r], rows()[r].o);
      elements += static_cast<double>(problem_.channels);
    }
    const double left = Misfit(of, predict);
    return right > left ? (right - left) / std::max(right - elements, 1.0) : 0;
  }
  template <typename Predict>
  Candidate* Add(CauseText what, const Predict& predict) {
    Candidate candidate;
    candidate.what = std::move(what);
    candidate.predicted.reserve(problem_.rows.size() * problem_.channels);
    for (size_t r = 0; r < problem_.rows.size(); ++r) {
      std::optional<Mixture> mixture = predict(problem_.rows[r], r);
      const std::vector<double>& o = problem_.rows[r].o;
      for (size_t channel = 0; channel < problem_.channels; ++channel) {
        candidate.predicted.push_back(mixture ? mixture->sum[channel] / mixture->share
                                              : o[channel]);
      }
    }
    return Take(std::move(candidate));
  }
  // For what takes long: only where it explains half of a first row, then of a few.
  template <typename Predict>
  Candidate* AddIfLikely(CauseText what, const Predict& predict) {
    const std::vector<size_t>& screen = problem_.screen;
    for (const size_t count : {size_t{2}, size_t{6}}) {
      const std::vector<size_t> part(
          screen.begin(),
          screen.begin() + static_cast<std::ptrdiff_t>(std::min(count, screen.size())));
      if (!(Explains(part, predict) > 0.5)) return nullptr;
    }
    return Add(std::move(what), predict);
  }

 private:
  // nullptr: it predicts no numbers, or the right answer.
  Candidate* Take(Candidate candidate);

  const SeenProblem& problem_;
  std::vector<KeySums> sums_;
  std::vector<Candidate> candidates_;
};

// The families of causes, each in a file named so.
void AddCausesOfEdges(Causes* causes);           // of what a query sees: window, causal mask, tiles
void AddCausesOfRanges(Causes* causes);          // of keys: lost, twice, seen though hidden
void AddCausesOfPairs(Causes* causes);           // of query and key
void AddCausesOfMasks(Causes* causes);           // other rows of the mask, or none
void AddCausesOfNumbers(Causes* causes);         // sinks, scale, keys of zeros, shares of ranges
void AddCausesOfHeads(Causes* causes);           // other heads and batch rows
void AddCausesOfValues(Causes* causes);          // other rows of V, V out of K
void AddCausesOfStaleRows(Causes* causes);       // rows of K and V that stand nowhere
void AddCausesOfPages(Causes* causes);           // other pages
void AddCausesOfExchangedPages(Causes* causes);  // pages in each other's place
void AddCausesOfScales(Causes* causes);          // codes that meet scales of another place

// What a row becomes where its scores are computed anew.
struct Rescored {
  double factor = 1;  // of q.k
  double bias_times = 1;
  std::optional<double> cap;               // in place of the case's; 0: none
  const std::vector<double>* k = nullptr;  // rows of K in place of its own
  const std::vector<double>* v = nullptr;
};
Mixture Rescore(const SeenProblem& problem, const SeenRow& row, const Rescored& change);

// Chooses by the rule above; fills what was tried, and the cause. The named one, or nullptr.
const Candidate* NameCause(const Causes& causes, SeenKeys* seen);

// Looks for ranges of K or V whose numbers are in no tensor of the case. Call it where NameCause
// names no cause. A range that explains only a part of the errors sets the text of `seen`, and no
// cause.
const Candidate* NameStaleRanges(Causes* causes, SeenKeys* seen);

// All of it. Where few rows fail by themselves, rows over all of the output are asked first.
SeenKeys FindCauses(const AskedRows& asked, const Arithmetic& arithmetic,
                    const RowsToExplain& rows);

// "one key", "5 keys".
std::string CountText(int64_t n, const std::string& one);

// By how many keys an edge of a range may be off: is_open(from, to): whether those edges are hardly
// worse. Empty: by none.
template <typename IsOpen>
std::string EdgeDoubt(int64_t from, int64_t to, int64_t kv_len, const IsOpen& is_open) {
  int64_t off = 0;
  for (int64_t by = 1; by <= 64; by *= 2) {
    bool any = false;
    for (const auto& [first, last] : {std::pair(from - by, to), std::pair(from + by, to),
                                      std::pair(from, to - by), std::pair(from, to + by)}) {
      if (first < 0 || last > kv_len || first >= last) continue;
      any = any || is_open(first, last);
    }
    if (!any) break;
    off = by;
  }
  return off == 0 ? "" : " (the edges are known to within " + CountText(off, "key") + ")";
}
// "keys 64 to 127 (page 1 of 16 pages of 64)".
std::string KeysText(int64_t from, int64_t to, int64_t kv_len);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_CAUSES_H_
