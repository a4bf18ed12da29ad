// What each file of kernels provides, of which kernels.cc makes one table. Every function gives the
// kernels of the target that it is dispatched to; null where the target has none.

#ifndef OPTIMIZED_ATTENTION_KERNEL_TABLE_H_
#define OPTIMIZED_ATTENTION_KERNEL_TABLE_H_

#include <array>

#include "optimized/attention/kernels.h"

namespace kvcheck::optimized {

// dot_kernels.cc, by kind of row.
struct PlainDots {
  std::array<Widths<DotKernel>, kPlainKinds> dot;
  bool fused;  // whether products enter sums unrounded
  int lanes;   // of a dot product
  PrefetchPolicy prefetch;
};
PlainDots PlainDotKernels(bool fused);

// sum_kernels.cc, by kind of row.
struct PlainSums {
  std::array<Widths<SumKernel>, kPlainKinds> sum;
  std::array<WidenKernel, kPlainKinds> widen;
};
PlainSums PlainSumKernels(bool fused);

// transposed_dot_kernels.cc, of f32.
struct PanelKernels {
  int keys = 0;  // of a panel
  TransposeKernel transpose = nullptr;
  DotKernel dot = nullptr;
};
PanelKernels TransposedKernels();

// Factored sums over codes: packed_*_kernels.cc, fixed_*_kernels.cc.
struct FactoredDots {
  struct Codes {
    Widths<DotKernel> dot = {};
    TransposeKernel transpose = nullptr;
  };
  Codes of8, of4;
  Codes of_signed8, of_halves4, of_table4, of_halves5;  // in fixed point alone
  DotKernel transposed_dot = nullptr;
  int lanes = 0;       // of their vectors
  int panel_keys = 0;  // of their transposed codes
};
struct FactoredSums {
  struct Codes {
    Widths<SumKernel> sum = {};
    WidenKernel widen = nullptr;
  };
  Codes of8, of4;
  Codes of_signed8, of_halves4, of_table4, of_halves5;  // in fixed point alone
  Widths<SumKernel> of_widened = {};
};
FactoredDots PackedDotKernels();
FactoredSums PackedSumKernels();
FactoredDots FixedDotKernels();
FactoredSums FixedSumKernels();

// softmax_kernels.cc.
Widths<SoftmaxKernel> SoftmaxKernels(bool fused);

// scale_kernels.cc.
struct ScaleKernels {
  WidenScalesKernel widen = nullptr;
  TransposeScalesKernel transpose = nullptr;
};
ScaleKernels KernelsOfScales();

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_KERNEL_TABLE_H_
