// What `kvcheck compare` was asked, and the three questions that it can mean.

#ifndef TOOLS_KVCHECK_COMPARE_OPTIONS_H_
#define TOOLS_KVCHECK_COMPARE_OPTIONS_H_

#include <string>
#include <vector>

#include "golden/mapped_file.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/tolerance.h"
#include "tools/compare/glob.h"
#include "tools/compare/rules_file.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/stored_tensors.h"

namespace kvcheck {

struct CompareOptions {
  CommonOptions common;
  std::vector<std::string> files;
  std::string case_text;
  std::string plan;
  std::string gold_plan;
  bool bitwise = false;
  std::string profile;
  std::string implementation;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::string tolerance;
  std::vector<std::string> rules;  // files
  std::vector<std::string> map;
  std::vector<std::string> axes;
  // Of files without the schema.
  std::vector<std::string> map_file;
  std::vector<std::string> allow_missing;
  std::vector<std::string> allow_extra;
  std::string shard;
  std::string slice;
  std::string cast;
  std::string nan;
  bool full_statistics = false;
  bool bisect = false;  // main.cc maps the exit code
  std::string bless;
  std::string reason;
};

// What --include and --exclude say about a name. Errors: kUsage for what is no pattern.
class NameFilter {
 public:
  explicit NameFilter(const CompareOptions& options);
  bool Selects(const std::string& name) const;
  const std::vector<Glob>& include() const { return include_; }
  const std::vector<Glob>& exclude() const { return exclude_; }

 private:
  std::vector<Glob> include_;
  std::vector<Glob> exclude_;
};
// A file of rules or names, whole. Errors: kUnreadableFile.
std::string ReadText(const std::string& path);
// True when the pattern matches, or is empty.
bool Matches(const std::string& pattern, const std::string& name);
// The plan and profile of the options, else those stated beside the output.
// Errors: kParse.
Plan PlanOf(const CompareOptions& options, const std::string& stated);
Profile ProfileOf(const CompareOptions& options, const std::string& stated);
// The options that change a verdict, as part of the command that repeats it: " --plan '...'".
std::string PlanArguments(const CompareOptions& options);
// Those of --case that say which tensors are meant: " --map q=/query --axes B,T,H,D".
std::string TensorArguments(const CompareOptions& options);
// The rule of --tol; exact without it. Errors: kParse.
ToleranceRule RuleOf(const CompareOptions& options);
// --tol, --nan, --cast and the files of --rules. Errors: kParse, kUsage, kUnreadableFile.
RuleSet RulesOf(const CompareOptions& options);

// Each judges and reports, and gives the exit code (tools/report/summary.h).
// GOLD has the schema: its cases against the outputs that GOT has for them.
int CompareGolden(const CompareOptions& options, const StoredFile& gold, const StoredFile& got);
// GOLD has no schema: tensor by tensor.
// The bytes of the files were opened before the files were read.
int CompareStored(const CompareOptions& options, const StoredFile& gold, const StoredFile& got,
                  const MappedFile& gold_bytes, const MappedFile& got_bytes);
// One file that holds the inputs and the outputs of --case, or one of each.
int CompareCase(const CompareOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_COMPARE_OPTIONS_H_
