// The first pass (optimized/compare) over many pairs of stored tensors, on several threads: which
// tensors are proved to pass, and how far the sides differ. What is not proved is for the judge.
//
// Large tensors are cut into windows, small ones are taken together, and threads take these in
// turn. Elements that lie in a file row-major are mapped, some MiB at a time, and given back;
// others are read into memory, block by block. Results do not depend on the number of threads.

#ifndef TOOLS_COMPARE_FIRST_PASS_RUN_H_
#define TOOLS_COMPARE_FIRST_PASS_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "golden/mapped_file.h"
#include "optimized/compare/first_pass.h"
#include "reference/judge/special_values.h"
#include "reference/spec/dtype.h"
#include "reference/spec/tiles.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {

// Where the elements of one side are.
struct PassSide {
  // In a file, from byte `offset` on, as ObjectRecord::data_offset says. The file was opened before
  // its index was read, so that a change since is noticed.
  const MappedFile* file = nullptr;
  int64_t offset = 0;
  // Where `file` is null: in a source, under a name. Several threads read from it.
  const ObservedSource* source = nullptr;
  std::string name;
};

struct PassPair {
  PassSide expected;
  PassSide got;
  DType dtype = DType::kFloat32;  // of both
  int64_t elements = 0;
  PassRule rule;
};

// The rule of the pass; nullopt for codec and derived, which only the judge knows.
std::optional<PassRule> PassRuleOf(const ToleranceRule& tolerance, const SpecialPolicy& special);

// One summary per pair, in their order. progress: called between parts of some MiB, by one thread
// at a time; what it throws ends the pass.
// Errors: those of reading, of the first pair in order that has any; kUnreadableFile when a mapped
// file changed meanwhile.
std::vector<PassSummary> RunFirstPass(std::span<const PassPair> pairs, int threads,
                                      const std::function<void()>& progress = {});

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_FIRST_PASS_RUN_H_
