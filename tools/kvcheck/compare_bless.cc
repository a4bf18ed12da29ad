// compare --bless: GOT becomes the next GOLD. Says per tensor what changes, then writes.

#include <fmt/format.h>

#include <iostream>

#include "reference/spec/error.h"
#include "tools/compare/bless.h"
#include "tools/kvcheck/compare_stored.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/report/number_text.h"
#include "tools/report/shown_text.h"
#include "tools/report/summary.h"

namespace kvcheck {

int BlessStored(const CompareOptions& options, const std::vector<ComparePair>& pairs,
                LockedFile& gold, LockedFile& got, const JudgeCall& judge) {
  BlessOptions bless;
  bless.path = options.bless;
  bless.reason = options.reason;
  bless.is_selection = !options.include.empty() || !options.exclude.empty();
  bless.command = fmt::format("kvcheck compare {} {}{}", ShellWord(gold.source.path()),
                              ShellWord(got.source.path()), SelectionArguments(options));
  bless.command +=
      fmt::format(" --bless {} --reason {}", ShellWord(options.bless), ShellWord(options.reason));
  CheckBlessPath(bless, gold.source.path());
  int64_t kept = 0;
  int64_t written = 0;
  for (const ComparePair& pair : pairs) {
    ThrowIfInterrupted();
    const std::string change = DescribeChange(pair, gold, got, judge);
    if (change.empty()) ++kept;
    if (!change.empty()) std::cout << NameText(change) << "\n";
    if (!pair.names.got.empty()) ++written;
  }
  WriteBlessed(bless, pairs, gold, got, ThrowIfInterrupted);
  std::cout << NameText(fmt::format("{}: {} written, {} as in GOLD bit for bit; reason: {}",
                                    bless.path, Plural(written, "tensor"), kept, bless.reason))
            << "\n";
  return kExitPassed;
}

}  // namespace kvcheck
