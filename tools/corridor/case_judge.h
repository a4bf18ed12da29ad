// How one case is judged, and what of it is counted: what campaigns call millions of times.

#ifndef TOOLS_CORRIDOR_CASE_JUDGE_H_
#define TOOLS_CORRIDOR_CASE_JUDGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/explanation.h"
#include "reference/judge/verdict.h"
#include "tools/corridor/cases_file.h"
#include "tools/process/item_mark.h"

namespace kvcheck {

// What was looked at, added up.
struct CaseCounts {
  int64_t operations = 0;  // of traces
  int64_t states = 0;
  int64_t elements = 0;         // of tensors
  std::vector<int64_t> probes;  // times reached, in the order of Subject::ProbeNames
  // Operations that the implementation does not have, in the order of Subject::StepKinds.
  std::vector<int64_t> declined;

  void Add(const CaseCounts& other);
  bool operator==(const CaseCounts&) const = default;
};

// How signatures of what proves nothing whoever answers end.
inline constexpr std::string_view kByItsOwnData = ", by its own data";

struct JudgedCase {
  Outcome outcome = Outcome::kPass;
  // What broke, the same for failures with one cause: "append visible_missing"; "" of PASS.
  std::string signature;
  std::string reason;  // one line; "" of PASS
  int64_t step = -1;   // of a trace that fails: the operation that decided it; -1: not known
  // Set by a campaign that shrinks several cases of a signature: which of them are alike.
  std::string group{};
  // MISTRUSTED whoever answers: it is the data of the case that prove nothing.
  bool by_data = false;
  // Of a failure that was asked for it (CaseJudge::JudgeLike).
  Explanation explanation{};
};

// Judges cases of one kind on one implementation; keeps its memory from case to case.
class CaseJudge {
 public:
  virtual ~CaseJudge() = default;
  // Adds to *counts. Errors: those of an implementation under test pass through and are its crash.
  virtual JudgedCase Judge(const CaseEntry& entry, ItemMark& mark, CaseCounts* counts) = 0;
  // The same, with the explanation of a failure, which costs many times its judgement: only where
  // the case fails with this signature. explains: also where the signature is known without.
  virtual JudgedCase JudgeLike(const CaseEntry& entry, ItemMark& mark, const std::string& signature,
                               bool explains) {
    static_cast<void>(signature), static_cast<void>(explains);
    CaseCounts counts;
    return Judge(entry, mark, &counts);
  }
  // The same with all that a report shows.
  virtual Verdict Explain(const CaseEntry& entry, ItemMark& mark, std::string* signature) = 0;
};

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_CASE_JUDGE_H_
