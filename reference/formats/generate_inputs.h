// The tensors that a case with data=REGIME:SEED stands for: generated rows (reference/data/),
// stored in the formats of the case.

#ifndef REFERENCE_FORMATS_GENERATE_INPUTS_H_
#define REFERENCE_FORMATS_GENERATE_INPUTS_H_

#include "reference/spec/case.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// Exactly the tensors of InputSpecs(c), the same bits on every machine. The profile chooses the
// encoder of affine K and V. Plain K and V saturate, so that no generated value is infinite or NaN.
//
// Codec cases have the regimes of reference/data/row_regime.h; decoding has one more, `codes`:
// every bit pattern equally likely in a plain format, and in an affine one every code, with scales
// N(0, 1) / 16 and biases N(0, 1). Tensor cases take `expected` from the same regimes, integers
// from uniform bits.
// Errors: kIllegalCase for an unknown regime, listing the regimes; kMissingData for data=file.
TensorMap GenerateInputs(const Case& c, const Profile& profile);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_GENERATE_INPUTS_H_
