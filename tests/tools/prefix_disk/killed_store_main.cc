// killed_store [KILLS] [SEED] [FOLDER]: the crash test with as many kills. Exit 1: something was
// lost or wrong.

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <filesystem>

#include "killed_store.h"

int main(int argc, char** argv) {
  kvcheck::KillOptions options;
  if (argc > 1) options.kills = std::strtoll(argv[1], nullptr, 10);
  if (argc > 2) options.seed = std::strtoull(argv[2], nullptr, 10);
  std::string folder =
      argc > 3 ? argv[3]
               : (std::filesystem::temp_directory_path() / "killed-store-XXXXXX").string();
  if (argc <= 3 && mkdtemp(folder.data()) == nullptr) {
    fmt::print(stderr, "killed_store: no temporary folder\n");
    return 2;
  }
  kvcheck::KillCounts counts;
  std::string wrong;
  try {
    wrong = kvcheck::KillStores(folder, options, &counts);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  fmt::print("{} kills, {} of which left unfinished files ({} files), {} operations had returned\n",
             counts.kills, counts.unfinished, counts.leftovers, counts.operations);
  fmt::print("prompts that had to be there: {} found, each with the right rows\n",
             counts.prompts_found);
  fmt::print("prompts of calls that had not returned, and of loaded stores: {} found\n",
             counts.perhaps);
  if (wrong.empty()) {
    std::error_code ignored;
    if (argc <= 3) std::filesystem::remove_all(folder, ignored);
    return 0;
  }
  fmt::print(stderr, "killed_store: {}; the folder is {}\n", wrong, folder);
  return 1;
}
