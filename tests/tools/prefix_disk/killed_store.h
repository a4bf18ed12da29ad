// A process that stores, evicts, saves and forgets on a folder is killed at any moment, again and
// again; after each kill another one has to find everything that was stored before, and nothing
// that is wrong.

#ifndef TESTS_TOOLS_PREFIX_DISK_KILLED_STORE_H_
#define TESTS_TOOLS_PREFIX_DISK_KILLED_STORE_H_

#include <cstdint>
#include <string>

namespace kvcheck {

struct KillOptions {
  uint64_t seed = 1;
  int64_t kills = 500;
  bool sync = true;
};

struct KillCounts {
  int64_t kills = 0;
  int64_t unfinished = 0;     // of these, which left files that nobody named
  int64_t operations = 0;     // that had returned
  int64_t prompts_found = 0;  // that had to be there, and were, with the right rows
  int64_t perhaps = 0;        // of calls that had not returned and of loaded stores: there
  int64_t leftovers = 0;      // such files
};

// "" where every folder was right; else the first that was not, with kill and seed. folder: empty.
std::string KillStores(const std::string& folder, const KillOptions& options, KillCounts* counts);

}  // namespace kvcheck

#endif  // TESTS_TOOLS_PREFIX_DISK_KILLED_STORE_H_
