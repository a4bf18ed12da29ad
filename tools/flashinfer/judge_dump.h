// kvcheck flashinfer: the calls of a dump, each judged as a case of its own.

#ifndef TOOLS_FLASHINFER_JUDGE_DUMP_H_
#define TOOLS_FLASHINFER_JUDGE_DUMP_H_

#include <string>
#include <vector>

#include "tools/corridor/kvcheck.h"
#include "tools/corridor/result_sink.h"

namespace kvcheck {

struct FlashInferQuestion {
  std::string folder;
  std::vector<std::string> include;  // globs of functions or of folders of calls; none: all
  std::string plan;                  // "": what is known of the function's kernel
  std::string profile;
  Settings settings;      // plan and profile are set here
  std::string arguments;  // what else a command that repeats a verdict says: " --rows 64"
};

// Of every call its verdict: UNSUPPORTED with the reason where something of it is not understood,
// CRASHED where it did not finish. Functions that are no attention are a result each, with their
// number. Errors: as ReadDump; kUnsupported for a dump by torch.save; kSelection: no call matches;
// kParse for a plan or a profile; kUsage for a pattern.
void JudgeDump(const FlashInferQuestion& question, ResultSink* results);

}  // namespace kvcheck

#endif  // TOOLS_FLASHINFER_JUDGE_DUMP_H_
