// Draws prefix cases: histories of requests of a server, steered into the rare states of
// reference/prefix/history_probes.h. What found things in real engines, in order: alphabets of two
// or three tokens; prompts that are cuts of earlier ones and a few tokens more; blocks of 1, 2 and
// 4; pools of 3 to 20 blocks; a third of the requests left open; identities that differ in one
// field, or have two fields swapped, and nasty texts; writes that cut blocks; kills at a write; the
// same folder with another type. What is drawn is a pure function of (seed, index) and the options.

#ifndef FUZZ_DRAW_PREFIX_H_
#define FUZZ_DRAW_PREFIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/prefix_case.h"
#include "reference/spec/prefix_space.h"

namespace kvcheck {

struct PrefixDrawOptions {
  // What the implementation has; each case is drawn from one of them, by turns. Empty: everything.
  std::vector<PrefixSpace> spaces{};
  // Patterns over the texts of formats of codes that k and v may have; empty: all that are drawn.
  std::vector<std::string> formats{};
  int64_t max_operations = 50;  // a case has 8 to max_operations, equally often
};

class PrefixDrawer {
 public:
  // Errors: kUsage for a pattern that matches no format.
  explicit PrefixDrawer(const PrefixDrawOptions& options = {});
  PrefixCase Draw(uint64_t seed, uint64_t index) const;

 private:
  PrefixDrawOptions options_;
  std::vector<KvFormat> formats_;
};

}  // namespace kvcheck

#endif  // FUZZ_DRAW_PREFIX_H_
