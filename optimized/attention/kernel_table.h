// The parts from which kernels.cc makes one table: what each file of kernels fills in.

#ifndef OPTIMIZED_ATTENTION_KERNEL_TABLE_H_
#define OPTIMIZED_ATTENTION_KERNEL_TABLE_H_

#include "optimized/attention/kernels.h"

namespace kvcheck::optimized {

void FillDotKernels(bool fused, AttentionKernels* kernels);
void FillSumKernels(bool fused, AttentionKernels* kernels);
void FillPlaneDotKernels(bool fused, AttentionKernels* kernels);
void FillPlaneSumKernels(bool fused, AttentionKernels* kernels);
// After those of planes and turned keys, which they replace.
void FillFixedDotKernels(bool fused, AttentionKernels* kernels);
void FillFixedSumKernels(bool fused, AttentionKernels* kernels);
void FillTurnedKernels(bool fused, AttentionKernels* kernels);
void FillSoftmaxKernels(bool fused, AttentionKernels* kernels);
void FillScaleKernels(AttentionKernels* kernels);

// `kernels`: of width 1 and of kQuad.
template <typename Kernel>
void FillWidths(Kernel (&kernels)[2], bool fused, Kernel one, Kernel quad, Kernel fused_one,
                Kernel fused_quad) {
  kernels[0] = fused ? fused_one : one;
  kernels[1] = fused ? fused_quad : quad;
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_KERNEL_TABLE_H_
