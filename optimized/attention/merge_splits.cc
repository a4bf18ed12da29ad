#include "optimized/attention/merge_splits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "optimized/attention/affine_operand.h"
#include "optimized/attention/kernels.h"
#include "optimized/attention/packed_codes.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck::optimized {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// exp(from - to), 0 for an empty split.
float WeightOf(bool fused, float from, float to) {
  if (from == kNothing) return 0;
  const float x = from - to;
  if (x == 0) return 1;  // what ExpOf gives; always so with a single split
  float y = 0;
  ExpOf(fused, &x, 1, &y);
  return y;
}

}  // namespace

void MergeSplits(const TileShape& shape, const Tile& tile) {
  const SequenceQueries& to = *tile.sequence;
  const bool fused = !shape.shape.portable;
  const int64_t padded = TileShape::PaddedRows(tile.rows);
  const int64_t stride = shape.PartialFloats(tile.rows);
  const int64_t dv = shape.shape.v_dim;
  const bool in_field_order = shape.v_factored && !tile.Widens() && !shape.kernels.IsFixedPoint();
  for (int64_t row = 0; row < tile.rows; ++row) {
    const RowPlace at = PlaceOf(shape, tile, row);
    float* out = to.out + at.head * to.out_head_stride + at.query * to.out_stride;
    const float* shifts = tile.partials + padded * shape.v_padded + row;
    const float* totals = shifts + PaddedDim(padded);
    float top = kNothing;
    for (int64_t i = 0; i < tile.splits; ++i) top = std::max(top, shifts[i * stride]);
    float total = 0;
    std::fill(out, out + dv, 0.0f);
    for (int64_t i = 0; i < tile.splits; ++i) {
      if (shifts[i * stride] == kNothing && totals[i * stride] == 0) continue;  // sees nothing
      const float weight = WeightOf(fused, shifts[i * stride], top);
      total = total + totals[i * stride] * weight;
      const float* sums = tile.partials + i * stride + row * shape.v_padded;
      for (int64_t c = 0; c < dv; ++c) out[c] = out[c] + sums[c] * weight;
    }
    if (to.sinks != nullptr) {
      const float sink = to.sinks[at.head];
      const float before = top;
      top = std::max(top, sink);
      const float weight = WeightOf(fused, before, top);
      total = total * weight + WeightOf(fused, sink, top);
      for (int64_t c = 0; c < dv; ++c) out[c] = out[c] * weight;
    }
    if (in_field_order) {
      RestoreChannelOrder(AffineCodesOf(shape.shape.v)->bits, shape.kernels.packed_lanes, dv, out);
    }
    if (total != 0) {  // NaN too
      for (int64_t c = 0; c < dv; ++c) out[c] = out[c] / total;
      if (shape.v_in_basis) RotateFromBasis(shape.shape.v, dv, out);
    }
    if (to.lse == nullptr) continue;
    double lse = -std::numeric_limits<double>::infinity();
    if (total != 0) {
      lse = static_cast<double>(top) + std::log(static_cast<double>(total));
      if (to.lse_base2) lse *= 0x1.71547652b82fep+0;
    }
    to.lse[at.head * to.lse_head_stride + at.query * to.lse_stride] = static_cast<float>(lse);
  }
}

}  // namespace kvcheck::optimized
