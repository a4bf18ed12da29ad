// Draws attention cases and plans from a seed: every structure that a plan can name, every mask and
// data regime, at sizes that keep a case small. What is drawn is a pure function of the seed.

#ifndef FUZZ_DRAW_ATTENTION_H_
#define FUZZ_DRAW_ATTENTION_H_

#include <cstdint>
#include <string>

#include "reference/spec/attention_space.h"
#include "reference/spec/case.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {

struct DrawLimits {
  int64_t kv_len = 128;
  int64_t head_dim = 64;
  int64_t query_len = 8;
};

struct DrawnAttention {
  AttentionCase c;
  Plan plan;  // complete: nothing is assumed
  Profile profile;
  std::string structure;  // "online exp2_fma p=bf16 merge=lse ..." for tables
};

// A case of the space; without one, of everything. What the space leaves open is drawn as it is
// without it.
// Errors: kUsage where nothing that is drawn is in the space, naming it.
DrawnAttention DrawAttention(uint64_t seed, const DrawLimits& limits,
                             const AttentionSpace& space = {});

}  // namespace kvcheck

#endif  // FUZZ_DRAW_ATTENTION_H_
