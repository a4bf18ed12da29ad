// What a comparison of stored tensors asks, and the four questions that it can mean.

#ifndef TOOLS_COMPARE_COMPARE_QUESTION_H_
#define TOOLS_COMPARE_COMPARE_QUESTION_H_

#include <functional>
#include <string>
#include <vector>

#include "golden/mapped_file.h"
#include "reference/judge/judge.h"
#include "reference/spec/glob.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/tolerance.h"
#include "tools/compare/rules_file.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/result_sink.h"
#include "tools/corridor/stored_tensors.h"

namespace kvcheck {

// Texts as the options of kvcheck compare have them; "" or empty: not said.
struct CompareQuestion {
  JudgeOptions judge;
  Cancel cancel{};
  std::vector<std::string> files;
  std::string cases;  // a file of many, case_list.h
  std::string case_text;
  std::vector<std::string> groups;  // patterns of groups of the files, each of which is a case
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
  std::string bless;
  std::string reason;
};

// What --include and --exclude say about a name. Errors: kUsage for what is no pattern.
class NameFilter {
 public:
  explicit NameFilter(const CompareQuestion& question);
  bool Selects(const std::string& name) const;
  const std::vector<Glob>& include() const { return include_; }
  const std::vector<Glob>& exclude() const { return exclude_; }

 private:
  std::vector<Glob> include_;
  std::vector<Glob> exclude_;
};
// A file of rules or names, whole. Errors: kUnreadableFile; Cancelled.
std::string ReadText(const CompareQuestion& question, const std::string& path);
// True when the pattern matches, or is empty.
bool Matches(const std::string& pattern, const std::string& name);
// The plan and profile of the options, else those stated beside the output.
// Errors: kParse.
Plan PlanOf(const CompareQuestion& question, const std::string& stated);
Profile ProfileOf(const CompareQuestion& question, const std::string& stated);
// The options that change a verdict, as part of the command that repeats it: " --plan '...'".
std::string PlanArguments(const CompareQuestion& question);
// Those of --case that say which tensors are meant: " --map q=/query --axes B,T,H,D".
std::string TensorArguments(const CompareQuestion& question);
// The rule of --tol; exact without it. Errors: kParse.
ToleranceRule RuleOf(const CompareQuestion& question);
// --tol, --nan, --cast and the files of --rules. Errors: kParse, kUsage, kUnreadableFile.
RuleSet RulesOf(const CompareQuestion& question);

// Each judges and gives the results to the sink. Errors: kUsage, kParse, kSelection, ...: before
// the first result, of a question that cannot be put. GOLD has the schema: its cases against the
// outputs that GOT has for them.
void CompareGolden(const CompareQuestion& question, const StoredFile& gold, const StoredFile& got,
                   ResultSink* results);
// GOLD has no schema: tensor by tensor.
// The bytes of the files were opened before the files were read; of a folder there are none.
void CompareStored(const CompareQuestion& question, const StoredFile& gold, const StoredFile& got,
                   const MappedFile* gold_bytes, const MappedFile* got_bytes, ResultSink* results);
// In place of that, with `bless`: tells what changes per tensor, line by line, and writes the new
// file. Errors: kUsage, kUnreadableFile; Cancelled, and then nothing is written.
void BlessStored(const CompareQuestion& question, const StoredFile& gold, const StoredFile& got,
                 const std::function<void(const std::string& line)>& tell);
// Errors: kUnsupported, with the call that judges them, where a file says that its tokens are
// several packed sequences, of which a case of attention is one.
void RefusePackedSequences(const StoredFile& file, const Case& c);
// One file that holds the inputs and the outputs of the case, or one of each.
void CompareCase(const CompareQuestion& question, ResultSink* results);
// Each case of a list (--cases), or the case of --case in each group of the files that the patterns
// select, as a case of its own: what cannot be read is an error of its case alone.
// Errors: kParse with file and line, kUsage, kSelection, kUnreadableFile of the list: before the
// first result.
void CompareCases(const CompareQuestion& question, ResultSink* results);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_COMPARE_QUESTION_H_
