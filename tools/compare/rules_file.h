// Which rule each tensor is held to: --tol, the rule of every tensor, and --rules FILE, which says
// otherwise for some.
//
// A line of the file, "#" at its start for comments:
//   GLOB RULE [nan=fail|equal|equal-bits] [cast=TYPE] [reason="TEXT"]
// GLOB as in glob.h, over GOLD's names; RULE as in reference/spec/tolerance.h; what a line does not
// say of nan and cast is as the options have it. Fields are separated by blanks; a blank in a GLOB
// and a " in a TEXT follow a backslash. The last line that matches decides. Where a line may let
// pass what the line (or --tol) that it overrides would not, because it is not AtLeastAsTight or
// laxer about NaN, it has to say why: reason=.

#ifndef TOOLS_COMPARE_RULES_FILE_H_
#define TOOLS_COMPARE_RULES_FILE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/special_values.h"
#include "reference/spec/dtype.h"
#include "reference/spec/glob.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {

struct TensorRule {
  ToleranceRule tolerance = ExactRule{};
  // Left out: NaN equals the same bits under exact, and fails under every other rule.
  std::optional<NanPolicy> nan;
  std::optional<DType> cast;  // the type in which tensors of two types are compared
  std::string reason;
  std::string where;  // "FILE:LINE", "--tol", or "" for the rule of no option at all

  SpecialPolicy Special() const;
  bool operator==(const TensorRule&) const = default;
};

// "fail", "equal", "equal-bits". Errors: kParse.
NanPolicy ParseNanPolicy(Piece piece);
std::string_view OptionName(NanPolicy policy);

class RuleSet {
 public:
  // default_rule: of tensors that no line matches. Its where is "" when no option gave it: what
  // nobody asked for can be loosened without a reason.
  explicit RuleSet(TensorRule default_rule) : default_(std::move(default_rule)) {}

  // Errors: kParse with FILE:LINE:COLUMN.
  void AddFile(std::string_view content, const std::string& file);

  // Errors: kSelection, for lines that match none of these names.
  void CheckUsed(const std::vector<std::string>& names) const;

  // The rule that decides about this tensor.
  // Errors: kUsage when it loosens an earlier one without a reason.
  const TensorRule& Of(std::string_view name) const;
  // The last codec rule which the deciding rule of another kind replaces for this tensor: it says
  // of what format the tensor is. nullptr when there is none, or nothing is looser than exact.
  const CodecRule* Replaced(std::string_view name) const;

  size_t size() const { return lines_.size(); }

 private:
  struct Line {
    Glob glob;
    TensorRule rule;
  };
  TensorRule default_;
  std::vector<Line> lines_;
};

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_RULES_FILE_H_
