// What the plan may say of the exponential of exp-inl.h.

#ifndef OPTIMIZED_ATTENTION_EXP_H_
#define OPTIMIZED_ATTENTION_EXP_H_

namespace kvcheck::optimized {

// Below it the result is 0: the largest f32 whose exp is subnormal has the next number above.
inline constexpr float kExpUnderflow = -0x1.5d589ep+6f;
// Relative, over every f32 from kExpUnderflow to 0: the largest measured is 0x1.86151d74p-24 at
// -0x1.049b82p+4 (fused), 0x1.7b829b52p-24 at -0x1.86ee4ap+5 (not fused).
constexpr double ExpError(bool fused) { return fused ? 0x1.86152p-24 : 0x1.7b82ap-24; }

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_EXP_H_
