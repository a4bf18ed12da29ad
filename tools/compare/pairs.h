// Pairs of stored tensors from selection to verdict: which rule, part and type each is compared in,
// what already forbids a comparison, and the judge's call. Memory holds some tiles of a pair, never
// a tensor.

#ifndef TOOLS_COMPARE_PAIRS_H_
#define TOOLS_COMPARE_PAIRS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "reference/judge/verdict.h"
#include "tools/compare/rules_file.h"
#include "tools/compare/selection.h"
#include "tools/compare/slice.h"
#include "tools/compare/tensor_view.h"

namespace kvcheck {

// A file and what guards it: sources are read by one thread at a time.
struct LockedFile {
  TensorSource& source;
  std::mutex mutex;
};

enum class PairStanding : uint8_t {
  kComparable,
  kMissing,     // GOT does not have it
  kExtra,       // GOLD does not have it
  kUnreadable,  // in either file
  kUnlike,      // other type or shape
};

struct ComparePair {
  TensorPair names;
  TensorRule rule;
  PairStanding standing = PairStanding::kComparable;
  std::string reason;                 // of every other standing
  std::optional<Shape> part;          // of --slice
  std::optional<DType> cast;          // where the types differ
  std::optional<DType> cast_got;      // of GOT alone, to judge it by a codec rule
  std::optional<CodecRule> replaced;  // by the rule, which may be looser (looser.h)
  std::optional<int64_t> stated;      // what a tensor that GOLD lacks has to hold (triplets.h)
  int64_t elements = 0;               // that are compared
  int64_t bytes = 0;                  // of them, in both files
};

// In the order of the selection, whose pairs are taken. Files are named in reasons.
// Errors: kUsage for a slice that a tensor does not have, a cast that does not hold both types, a
// rule that loosens another without a reason, and `derived` where no case is.
std::vector<ComparePair> PlanPairs(std::vector<TensorPair> selected, const TensorSource& gold,
                                   const TensorSource& got, const RuleSet& rules,
                                   const std::vector<AxisSlice>& slices);

// Both sides of a comparable pair as the judge reads them: cut and cast, under kTensorName, with
// the axes of GOT where GOLD names none.
class PairTensors {
 public:
  // The files must outlive this. Errors: as DatasetRecord.
  PairTensors(const ComparePair& pair, LockedFile& gold, LockedFile& got);
  const TensorView& gold() const { return *gold_.back(); }
  const TensorView& got() const { return *got_.back(); }

 private:
  // Each view reads from the one before it.
  using Views = std::vector<std::unique_ptr<TensorView>>;
  static Views ViewsOf(const ComparePair& pair, LockedFile& file, const std::string& path,
                       const Shape& names, std::optional<DType> cast);
  Views gold_;
  Views got_;
};

// special: of the pair's rule.
using JudgeCall = std::function<Verdict(const ExpectedSource&, const ObservedSource&,
                                        const SpecialPolicy& special)>;

// Says beside the rule which option or line it comes from, and why.
void AddRuleSource(const ComparePair& pair, OutputVerdict* output);

// Two tensors without elements, of one type and shape: nothing in them could differ, and nothing is
// proved by them. They pass beside others that have elements.
enum class EmptyPairs : uint8_t { kPass, kMistrusted };
// kPass when any pair has elements to compare.
EmptyPairs StandingOfEmpty(const std::vector<ComparePair>& pairs);

// The verdict on any pair.
Verdict JudgePair(const ComparePair& pair, LockedFile& gold, LockedFile& got, EmptyPairs empty,
                  const JudgeCall& judge);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_PAIRS_H_
