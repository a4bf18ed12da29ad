// Which keys a query may attend to, as the case states it. The visible set itself is computed in
// reference/attention/visible.h.
//
// Positions: key j (0-based column of T) and query l (of L) are aligned by the causal alignment:
//   bottom right: query l stands at position T - L + l (the last query sees the last key);
//   top left:     query l stands at position l (PyTorch's is_causal).
// Without causality, window and ALiBi use the bottom-right alignment.
//
// Text: "none", or terms joined by '+', each at most once, in this order:
//   causal_bottom_right | causal_top_left
//   window:W              keys newer than position - W (the newest W, the query itself included)
//   left_pad:P0,P1,...    one count per batch row: its first P columns are padding
//   bool:AXES             input `mask`: true = may attend
//   additive:AXES:TYPE    input `mask`: added to the score (-inf hides)
// with AXES one of T, LT, B1LT, BHLT, B11T.

#ifndef REFERENCE_SPEC_MASK_H_
#define REFERENCE_SPEC_MASK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/shape.h"
#include "reference/spec/text.h"

namespace kvcheck {

enum class CausalAlignment { kNone, kBottomRight, kTopLeft };
enum class MaskArrayKind { kNone, kBoolean, kAdditive };
enum class MaskAxes { kT, kLT, kB1LT, kBHLT, kB11T };

struct MaskSpec {
  CausalAlignment causal = CausalAlignment::kNone;
  std::optional<int64_t> window;      // tokens, >= 1
  std::vector<int64_t> left_padding;  // tokens per batch row; empty: no padding
  MaskArrayKind array = MaskArrayKind::kNone;
  MaskAxes axes = MaskAxes::kLT;           // when there is an array
  DType additive_dtype = DType::kFloat32;  // when the array is additive

  bool operator==(const MaskSpec&) const = default;
};

std::string Print(const MaskSpec& mask);
MaskSpec ParseMask(Piece piece);

std::string_view Name(MaskAxes axes);
// The shape of the input `mask`, with named axes; broadcast axes have extent 1.
Shape MaskShape(MaskAxes axes, int64_t batch, int64_t query_heads, int64_t query_len,
                int64_t kv_len);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_MASK_H_
