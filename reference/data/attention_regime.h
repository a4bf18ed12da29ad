// Inputs of an attention case, generated from its regime and seed: the situations in which kernels
// and bounds were found to break (reference/attention/bound.md, section 6). K and V are given as
// originals in the type of q; storing them in the case's formats is reference/formats/.
//
// Every value is rounded to nearest even and is finite in the type of q and in the row type of its
// format. N means the generator's N(0, 1), a unit score is the standard deviation of scale q.k for
// q, k from N: |scale| sqrt(Dk). q, k and v are N where nothing else is said.
//
//   gauss       nothing else
//   outlier     one channel in 32 (at least one) of q and k multiplied by 10..30, per K/V head
//   sink        the first key of a K/V head is aligned with its queries: score about log T + 6
//   same_sign   v = |N|
//   huge        q scaled to a unit score of 3000
//   constant    every row of v is the first one
//   equal       every k is the first one; every third has one channel 2^-7 larger
//   duplicated  keys repeat after a quarter of T
//   dominant    one key of a K/V head, at any position, is aligned with its queries: score about
//               log T + 40
//   subnormal   v subnormal in its row type (or that of q where it has the coarser subnormals)
//   large_v     |v| in [0.5, 1] times the smaller of 1e30 and 0.9 of the largest finite value (0.45
//               for affine formats, whose product c S spans the whole range of a group)
//   tiny_p      q scaled to a unit score of 40: most weights underflow a 16-bit type
//   zeros       q = k = v = 0
//   disabled_sinks  sinks of head h, by (h + seed) mod 4: -inf; the lowest finite value of their
//               type; -1e30, or that value; as elsewhere
//
// The other inputs do not depend on the regime. Boolean mask: 60 % true. Additive mask: uniform in
// [-4, 4], 20 % -inf. Every row of a mask lets at least one key be seen, except that an odd seed
// hides all keys from rows 3, 10, 17, ... Sinks: 2 N. ALiBi slopes: 2^(-8 (h+1) / Hq) for Hq a
// power of two, otherwise those of the power P below it, followed by those of even h for 2 P
// (Press, Smith, Lewis, "Train short, test long", 2022).

#ifndef REFERENCE_DATA_ATTENTION_REGIME_H_
#define REFERENCE_DATA_ATTENTION_REGIME_H_

#include <span>
#include <string_view>

#include "reference/spec/case.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

std::span<const std::string_view> AttentionRegimes();
// The first of them are drawn for every case; those after them concern one input alone.
inline constexpr size_t kGeneralRegimes = 13;

// "q", "k_original", "v_original" of type c.q; "mask", "sinks" and "alibi_slopes" where the case
// has them, in its types.
// Errors: kIllegalCase for an unknown regime, listing the regimes.
TensorMap GenerateAttention(const AttentionCase& c);

}  // namespace kvcheck

#endif  // REFERENCE_DATA_ATTENTION_REGIME_H_
