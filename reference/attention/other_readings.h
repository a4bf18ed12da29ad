// Mistakes that are made about a whole question (a mask left out, K transposed, axes exchanged) and
// declarations that fall short, each as the source that a wrong answer would pass under.

#ifndef REFERENCE_ATTENTION_OTHER_READINGS_H_
#define REFERENCE_ATTENTION_OTHER_READINGS_H_

#include <vector>

#include "reference/attention/arithmetic.h"
#include "reference/spec/case.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

class AttentionSource;

// What an AttentionSource is made of; inputs must outlive the readings and their sources.
struct AskedAttention {
  const AttentionCase& c;
  const Profile& profile;
  const Arithmetic& arithmetic;
  const TensorMap& inputs;
  const AttentionSource& source;  // whose decoded K and V serve other questions about them
};

// Those that apply to the case and could change this output, mistakes before declarations.
std::vector<OtherReading> ReadingsOf(const AskedAttention& asked, const OutputInfo& output);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_OTHER_READINGS_H_
