// compare --bless: GOT becomes the next GOLD. Says per tensor what changes, then writes.

#include <fmt/format.h>

#include "reference/spec/error.h"
#include "tools/compare/bless.h"
#include "tools/compare/compare_stored.h"
#include "tools/report/number_text.h"

namespace kvcheck {

void BlessPairs(const CompareQuestion& asked, const std::vector<ComparePair>& pairs,
                LockedFile& gold, LockedFile& got, const JudgeCall& judge,
                const std::function<void(const std::string& line)>& tell) {
  BlessOptions bless;
  bless.path = asked.bless;
  bless.reason = asked.reason;
  bless.is_selection = !asked.include.empty() || !asked.exclude.empty();
  bless.command = fmt::format("kvcheck compare {} {}{}", ShellWord(gold.source.path()),
                              ShellWord(got.source.path()), SelectionArguments(asked));
  bless.command +=
      fmt::format(" --bless {} --reason {}", ShellWord(asked.bless), ShellWord(asked.reason));
  CheckBlessPath(bless, gold.source.path());
  int64_t kept = 0;
  int64_t written = 0;
  for (const ComparePair& pair : pairs) {
    asked.cancel.ThrowIfRequested();
    const std::string change = DescribeChange(pair, gold, got, judge);
    if (change.empty()) ++kept;
    if (!change.empty()) tell(change);
    if (!pair.names.got.empty()) ++written;
  }
  WriteBlessed(bless, pairs, gold, got, asked.cancel);
  tell(fmt::format("{}: {} written, {} as in GOLD bit for bit; reason: {}", bless.path,
                   Plural(written, "tensor"), kept, bless.reason));
}

}  // namespace kvcheck
