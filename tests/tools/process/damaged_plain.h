// Reads damaged files without the schema (plain HDF5, safetensors) as a comparison does, and counts
// what happened. Such files have no content hash: what an exact comparison with the original would
// say is what counts.

#ifndef TESTS_TOOLS_PROCESS_DAMAGED_PLAIN_H_
#define TESTS_TOOLS_PROCESS_DAMAGED_PLAIN_H_

#include <chrono>
#include <cstdint>

#include "tests/tools/process/damaged_files.h"

namespace kvcheck::golden_damage {

// Damages, in turn and by every kind of damage in turn, small and large files of the format; file i
// has the seed `seed` + i. A silent change is a file that compares equal although a byte of a
// tensor changed, or whose mapped bytes are not what reading gives. Prints what must not happen to
// standard error.
Campaign RunPlainHdf5Campaign(int files, uint64_t seed, std::chrono::milliseconds hang_limit);
Campaign RunSafetensorsCampaign(int files, uint64_t seed, std::chrono::milliseconds hang_limit);

}  // namespace kvcheck::golden_damage

#endif  // TESTS_TOOLS_PROCESS_DAMAGED_PLAIN_H_
