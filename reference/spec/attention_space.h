// What an implementation of attention has, as far as drawing cases needs to know it. One space
// describes cases any part of which goes with any other; an implementation may state several. What
// a space does not say is there.

#ifndef REFERENCE_SPEC_ATTENTION_SPACE_H_
#define REFERENCE_SPEC_ATTENTION_SPACE_H_

#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

struct AttentionSpace {
  std::vector<DType> q;        // empty: every type
  std::vector<DType> out;      // empty: every type
  bool out_as_q = false;       // the output has the type of the queries
  std::vector<std::string> k;  // patterns (glob.h) over texts of formats; empty: every one
  std::vector<std::string> v;
  bool same_format = false;        // K and V are stored in one format
  std::vector<std::string> masks;  // patterns over texts of masks; empty: every one
  bool same_dims = false;          // k_dim = v_dim
  bool grouped = true;             // more query heads than key/value heads
  bool lse = true;
  bool sinks = true;
  bool softcap = true;
  bool alibi = true;
  bool against_original = true;

  // Whether the case is one of them.
  bool Has(const AttentionCase& c) const;
  bool operator==(const AttentionSpace&) const = default;
};

// For messages: "q f16, bf16; out as q; masks none; without lse". "everything" where nothing is
// left out.
std::string Describe(const AttentionSpace& space);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_ATTENTION_SPACE_H_
