// The one family whose codes kernels read as they are stored.

#ifndef OPTIMIZED_ATTENTION_AFFINE_OPERAND_H_
#define OPTIMIZED_ATTENTION_AFFINE_OPERAND_H_

#include "reference/spec/kv_format.h"

namespace kvcheck::optimized {

// Null: kernels read elements, as stored or decoded before.
inline const AffineFormat* AffineCodesOf(const KvFormat& format) {
  return std::get_if<AffineFormat>(&format);
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_AFFINE_OPERAND_H_
