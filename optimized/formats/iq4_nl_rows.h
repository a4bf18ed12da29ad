// What codes of iq4_nl stand for, for kernels that look it up.

#ifndef OPTIMIZED_FORMATS_IQ4_NL_ROWS_H_
#define OPTIMIZED_FORMATS_IQ4_NL_ROWS_H_

namespace kvcheck::optimized {

// to: 16 numbers, by code.
void CopyIq4NlValues(float* to);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_IQ4_NL_ROWS_H_
