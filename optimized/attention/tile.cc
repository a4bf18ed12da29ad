#include "optimized/attention/tile.h"

#include <algorithm>
#include <limits>

#include "optimized/attention/affine_operand.h"
#include "optimized/attention/cache_sizes.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/attention/packed_codes.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck::optimized {

RowPlace PlaceOf(const TileShape& shape, const Tile& tile, int64_t row) {
  const int64_t r = tile.first_row + row;
  return {tile.kv_head * shape.group + r % shape.group, r / shape.group};
}

const VisibleKeys& VisibleOf(const Tile& tile, const RowPlace& place) {
  return tile.sequence->visible[place.head * tile.sequence->visible_head_stride + place.query];
}

bool IsDecoded(const KvFormat& format) {
  return !IsPlain(format) && AffineCodesOf(format) == nullptr;
}

bool IsFactored(const AttentionShape& shape, const AttentionKernels& kernels) {
  if (!shape.factors || !kernels.Factors()) return false;
  if (IsPlain(shape.k) && IsPlain(shape.v)) return false;
  const auto fits = [&](const KvFormat& format) {
    if (IsPlain(format)) return true;
    if (kernels.IsFixedPoint()) return FixedOperandOf(format).has_value();
    const AffineFormat* affine = AffineCodesOf(format);
    return affine != nullptr && CanFactor(*affine);
  };
  return fits(shape.k) && fits(shape.v);
}

TileShape::TileShape(const AttentionShape& s, const AttentionKernels& k)
    : shape(s),
      kernels(k),
      group(s.query_heads / s.kv_heads),
      k_in_basis(s.in_basis && RotatesRows(s.k)),
      v_in_basis(s.in_basis && RotatesRows(s.v)),
      k_padded(PaddedDim(s.k_dim)),
      v_padded(PaddedDim(s.v_dim)),
      scale(static_cast<float>(s.scale)),
      softcap(s.softcap ? static_cast<float>(*s.softcap) : 0) {
  if (!IsFactored(s, k)) return;
  k_factored = !IsPlain(s.k);
  v_factored = !IsPlain(s.v);
  if (!k_factored) return;
  if (k.IsFixedPoint()) {
    k_fixed = FixedOperandOf(s.k);
    k_padded = FixedQuadFloats(s.k_dim, k_fixed->group) / kQuad;
  } else {
    k_padded = PackedQuadFloats(s.k_dim, AffineCodesOf(s.k)->group_size) / kQuad;
  }
}

bool TileShape::FitsL2(int64_t rows) const {
  const bool transposes = kernels.CanTranspose() && !k_factored;
  const int64_t floats = (transposes ? 2 : 1) * k_padded + v_padded + kBlockTokens;
  return 2 * rows * floats * static_cast<int64_t>(sizeof(float)) <= L2Bytes();
}

void FindSplits(const TileShape& shape, Tile* tile) {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  for (int64_t row = 0; row < tile->rows; ++row) {
    const VisibleKeys& keys = VisibleOf(*tile, PlaceOf(shape, *tile, row));
    const int64_t from = keys.keep > 0 ? 0 : std::max<int64_t>(keys.from, 0);
    if (keys.end <= from) continue;
    first = std::min(first, from);
    end = std::max(end, keys.end);
  }
  tile->first_split = end == 0 ? 0 : first / kSplitTokens;
  tile->splits = (end + kSplitTokens - 1) / kSplitTokens - tile->first_split;
}

}  // namespace kvcheck::optimized
