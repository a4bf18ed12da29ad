// A new golden file from what a run gave: GOT's tensors under GOLD's names, with the reason why
// they are right now.

#ifndef TOOLS_COMPARE_BLESS_H_
#define TOOLS_COMPARE_BLESS_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/compare/pairs.h"

namespace kvcheck {

struct BlessOptions {
  std::string path;  // of the new file
  std::string reason;
  std::string command;        // that writes it
  bool is_selection = false;  // tensors were left out by options
};

// Attributes of "/" in a blessed file: the texts, and the content hashes (golden/content_hash.h) of
// the files that were compared.
inline constexpr const char* kBlessReason = "bless_reason";
inline constexpr const char* kBlessCommand = "bless_command";
inline constexpr const char* kBlessGoldHash = "bless_gold_hash";
inline constexpr const char* kBlessGotHash = "bless_got_hash";

// Whether the path may be written: it does not exist, or is GOLD itself, as HDF5, with everything
// selected. Errors: kUsage.
void CheckBlessPath(const BlessOptions& options, const std::string& gold_path);

// What one tensor's change is called, in a line without its end: "changed  /k  3 of 12 elements",
// "added    /x  float32 2x3", "removed  /y"; "" for one that stays as it is, bit for bit.
// judge: any rule's; pairs are compared bit by bit.
std::string DescribeChange(const ComparePair& pair, LockedFile& gold, LockedFile& got,
                           const JudgeCall& judge);

// Writes the file, whole or not at all. between: called before each block.
// Errors: kUsage for a tensor of GOT that cannot be read; kUnreadableFile.
void WriteBlessed(const BlessOptions& options, const std::vector<ComparePair>& pairs,
                  LockedFile& gold, LockedFile& got, const std::function<void()>& between);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_BLESS_H_
