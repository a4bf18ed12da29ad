#include "optimized/attention/tile_worker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/attention/affine_operand.h"
#include "optimized/attention/aligned_floats.h"
#include "optimized/attention/cache_sizes.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/attention/merge_splits.h"
#include "optimized/attention/packed_codes.h"
#include "optimized/attention/prefetcher.h"
#include "optimized/attention/transposed_keys.h"

namespace kvcheck::optimized {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kBlocksPerSplit = kSplitTokens / kBlockTokens;
// Row-major keys that stay in L1 with four queries.
constexpr int64_t kPlainKeysInL1 = 16;

// Transposed keys of so many floats each that stay in L1 with four queries and their scores: all of
// a block, or `panel`.
int64_t TransposedKeysInL1(int64_t key_floats, int64_t query_floats, int64_t panel) {
  const int64_t all = kBlockTokens * key_floats + kQuad * (query_floats + kBlockTokens);
  const int64_t bytes = all * static_cast<int64_t>(sizeof(float));
  return bytes <= L1Bytes() ? kBlockTokens : panel;
}

}  // namespace

void TileWorker::Start(const TileShape& shape) {
  k_.Start(shape.shape.k, shape.shape.k_dim, {shape.k_factored, shape.k_in_basis});
  v_.Start(shape.shape.v, shape.shape.v_dim, {shape.v_factored, shape.v_in_basis});
  tile_ = nullptr;
}

float* TileWorker::Partials(int64_t floats) { return AlignedFloats(&partials_, floats); }

void TileWorker::LoadQueries(const TileShape& shape, const Tile& tile) {
  tile_ = &tile;
  const int64_t rows = TileShape::PaddedRows(tile.rows);
  const int64_t queries = (rows + kQuad - 1) / kQuad * kQuad * shape.k_padded;
  const int64_t scores = rows * kBlockTokens;
  const int64_t rescale = PaddedDim(rows);
  transposes_k_ = shape.kernels.CanTranspose() && tile.Widens();
  const int64_t transposed = transposes_k_ && !shape.k_factored ? queries : 0;
  queries_ =
      AlignedFloats(&memory_, queries + transposed + scores + rescale + kBlockTokens * kQuad);
  q_transposed_ = queries_ + queries;
  scores_ = q_transposed_ + transposed;
  rescale_ = scores_ + scores;
  bias_ = rescale_ + rescale;
  if (tile.Widens()) {
    k_.MakeRoom(!shape.k_factored, transposes_k_);
    v_.MakeRoom(true, false);
  }
  selected_.MakeRoom(std::max(k_.groups(), v_.groups()));
  // Padding of quads and of vectors is zeros.
  const bool pads = !shape.k_factored && shape.k_padded != shape.shape.k_dim;
  if (pads || tile.rows % kQuad != 0) std::fill(queries_, queries_ + queries, 0.0f);
  rows_.resize(static_cast<size_t>(tile.rows));
  const SequenceQueries& from = *tile.sequence;
  const auto query = [&](const RowPlace& at) {
    return from.q + at.head * from.q_head_stride + at.query * from.q_stride;
  };
  const int64_t dim = shape.shape.k_dim;
  // The bits are the same in place and shifted.
  in_place_ = shape.k_factored && !tile.Widens() && !shape.kernels.IsFixedPoint();
  for (int64_t row = 0; row < tile.rows && in_place_; ++row) {
    in_place_ = CanPrescale(query(PlaceOf(shape, tile, row)), dim);
  }
  for (int64_t row = 0; row < tile.rows; ++row) {
    const RowPlace at = PlaceOf(shape, tile, row);
    if (shape.k_fixed) {
      PackFixedQuery(*shape.k_fixed, query(at), dim, row % kQuad,
                     queries_ + row / kQuad * kQuad * shape.k_padded);
    } else if (shape.k_factored) {
      PackQuery(*AffineCodesOf(shape.shape.k), query(at), dim, in_place_, row % kQuad,
                queries_ + row / kQuad * kQuad * shape.k_padded);
    } else {
      float* to = queries_ + row * shape.k_padded;
      std::memcpy(to, query(at), static_cast<size_t>(dim) * sizeof(float));
      if (shape.k_in_basis) RotateToBasis(shape.shape.k, dim, to);
    }
    Row& to = rows_[static_cast<size_t>(row)];
    to.visible = &VisibleOf(tile, at);
    to.bias = from.bias == nullptr
                  ? nullptr
                  : from.bias + at.head * from.bias_head_stride + at.query * from.bias_stride;
    to.slope = from.alibi_slopes == nullptr ? 0.0f : from.alibi_slopes[at.head];
    to.position = from.first_position + at.query;
  }
  for (int64_t row = 0; transposed > 0 && row < tile.rows; row += kQuad) {
    TransposeQueries(queries_ + row * shape.k_padded, shape.k_padded, shape.k_padded,
                     shape.kernels.dot_lanes, q_transposed_ + row * shape.k_padded);
  }
  span_ = {};
  whole_ = {};
  for (const Row& row : rows_) {
    span_.Add(*row.visible);
    whole_.Add(*row.visible);
  }
  mask_.whole = false;
}

void TileWorker::BeginSplit(const TileShape& shape, const Tile& tile, int64_t split,
                            const GroupPlace& place) {
  head_group_ = place;
  if (tile_ != &tile) LoadQueries(shape, tile);
  const int64_t padded = TileShape::PaddedRows(tile.rows);
  partial_.sums = tile.partials + split * shape.PartialFloats(tile.rows);
  partial_.shifts = partial_.sums + padded * shape.v_padded;
  partial_.totals = partial_.shifts + PaddedDim(padded);
  std::fill(partial_.sums, partial_.shifts, 0.0f);
  std::fill(partial_.shifts, partial_.totals, -kInfinity);
  std::fill(partial_.totals, partial_.totals + PaddedDim(padded), 0.0f);
}

void TileWorker::RunSplit(const TileShape& shape, std::span<const Tile> tiles, int64_t split,
                          std::span<TileWorker> workers) {
  const auto heads = std::ssize(tiles);
  TileWorker& front = workers.front();
  for (int64_t i = 0; i < heads; ++i) {
    const auto at = static_cast<size_t>(i);
    const GroupPlace place = {i, heads, kBlockTokens * i / heads, kBlockTokens * (i + 1) / heads,
                              heads > 1 ? &front.head_group_scales_ : nullptr};
    workers[at].BeginSplit(shape, tiles[at], split, place);
  }
  if (heads > 1) front.head_group_scales_.MakeRoom(heads);
  const int64_t first = (tiles[0].first_split + split) * kBlocksPerSplit;
  const std::span<TileWorker> group = workers.first(tiles.size());
  for (int64_t block = first; block < first + kBlocksPerSplit; ++block) {
    for (TileWorker& worker : group) worker.MaskBlock(block);
    const bool transposes = heads > 1 && front.mask_.any != 0;
    if (transposes && front.mask_.reads_keys) {
      front.TransposeScales(shape, tiles[0].sequence->k, front.k_);
    }
    for (TileWorker& worker : group) worker.ScoreBlock(shape, block);
    if (transposes) front.TransposeScales(shape, tiles[0].sequence->v, front.v_);
    for (TileWorker& worker : group) worker.SumBlock(shape);
  }
}

void TileWorker::RunTile(const TileShape& shape, const Tile& tile) {
  tile_ = nullptr;  // an earlier tile may have had the same address
  for (int64_t split = 0; split < tile.splits; ++split) {
    RunSplit(shape, {&tile, 1}, split, {this, 1});
  }
  tile_ = nullptr;
  MergeSplits(shape, tile);
}

template <class Visit>
void TileWorker::ForEachQuad(Visit visit) {
  const uint64_t* words = mask_.words;
  for (int64_t row = 0; row < tile_->rows; row += kQuad) {
    const int64_t end = std::min(row + kQuad, tile_->rows);
    bool same = tile_->rows > 1;
    for (int64_t r = row + 1; !mask_.whole && r < end; ++r) {
      same = same && words[r] == words[row] && IsUniform(r) == IsUniform(row);
    }
    if (same) {
      if (words[row] != 0) visit(row, static_cast<int>(kQuad));
      continue;
    }
    for (int64_t r = row; r < end; ++r) {
      if (words[r] != 0) visit(r, 1);
    }
  }
}

void TileWorker::TransposeScales(const TileShape& shape, const StoredHeads& from,
                                 const BlockStage& stage) {
  const bool whole = mask_.contiguous && mask_.count == kBlockTokens;
  if (!whole) return head_group_scales_.Drop();
  head_group_scales_.Take(from, tile_->kv_head, head_group_.size, stage.scale_bytes(),
                          mask_.columns[0], shape.kernels);
}

void TileWorker::ScoreBlock(const TileShape& shape, int64_t block) {
  if (mask_.any == 0) return;
  const SequenceQueries& from = *tile_->sequence;
  if (mask_.reads_keys) {
    const bool widen = tile_->Widens() && !shape.k_factored;
    const auto as = mask_.prefixes && transposes_k_ ? BlockStage::As::kTransposed
                    : widen                         ? BlockStage::As::kFloats
                                                    : BlockStage::As::kStored;
    k_.Take(from.k, tile_->kv_head, mask_.columns, mask_.count, mask_.contiguous, as, shape.kernels,
            Scales());
    if (!tile_->Widens()) PrefetchDuringScores(shape);
  }
  if (tile_->Widens()) return ScoreWidened(shape, block);
  ForEachQuad([&](int64_t row, int width) {
    Dot(shape, row, width, mask_.any, mask_.words[row]);
    Softmax(shape, row, width, block, mask_.words[row]);
    k_.StopPrefetch();
  });
}

void TileWorker::ScoreWidened(const TileShape& shape, int64_t block) {
  PrefetchRows prefetch[2];
  PrefetchValues(prefetch);
  if (mask_.prefixes) {
    DotKeysInL1(shape, prefetch);
    ForEachQuad(
        [&](int64_t row, int width) { Softmax(shape, row, width, block, mask_.words[row]); });
    return;
  }
  Prefetcher prefetcher(prefetch, Quads());
  ForEachQuad([&](int64_t row, int width) {
    prefetcher.Step();
    Dot(shape, row, width, mask_.any, mask_.words[row]);
    Softmax(shape, row, width, block, mask_.words[row]);
  });
}

void TileWorker::SumBlock(const TileShape& shape) {
  if (mask_.any == 0) return;
  const SequenceQueries& from = *tile_->sequence;
  // Of four interleaved rows none can be left out.
  const bool interleaved = shape.v_factored && shape.kernels.IsFixedPoint();
  const bool widen = tile_->Widens() && (mask_.prefixes || !interleaved);
  v_.Take(from.v, tile_->kv_head, mask_.columns, mask_.count, mask_.contiguous,
          widen ? BlockStage::As::kFloats : BlockStage::As::kStored, shape.kernels, Scales());
  if (tile_->Widens()) return SumWidened(shape);
  if (mask_.reads_keys) PrefetchDuringSums(shape);
  ForEachQuad([&](int64_t row, int width) {
    Sum(shape, row, width, mask_.any, mask_.words[row]);
    v_.StopPrefetch();
  });
}

void TileWorker::SumWidened(const TileShape& shape) {
  PrefetchRows prefetch[2];
  if (mask_.reads_keys) PrefetchNextKeys(prefetch);
  if (mask_.prefixes) return SumChannelSlices(shape, prefetch);
  Prefetcher prefetcher(prefetch, Quads());
  ForEachQuad([&](int64_t row, int width) {
    prefetcher.Step();
    Sum(shape, row, width, mask_.any, mask_.words[row]);
  });
}

// Keys that stay in L1, for all queries before the next keys. Rows of a quad that see fewer compute
// scores past their prefix, which nobody reads.
void TileWorker::DotKeysInL1(const TileShape& shape, const PrefetchRows (&prefetch)[2]) {
  BlockRows some = k_.rows();
  const bool packed_words = HasScales(some.kind) && shape.kernels.IsFixedPoint();
  const int64_t floats = packed_words ? some.dim / kFixedCodes : some.dim;  // of a transposed key
  const RowKernels& kernels = shape.kernels.Of(some.kind);
  const int64_t keys = some.transposed == nullptr
                           ? kPlainKeysInL1
                           : TransposedKeysInL1(floats, shape.k_padded, kernels.panel_keys);
  const int64_t count = some.count;
  const DotKernel dot = some.transposed == nullptr ? kernels.dot[1] : kernels.transposed_dot;
  int64_t steps = 0;
  for (int64_t quad = 0; quad < Quads(); ++quad) {
    steps += (std::min(mask_.most[quad], count) + keys - 1) / keys;
  }
  Prefetcher prefetcher(prefetch, steps);
  for (int64_t first = 0; first < count; first += keys) {
    some.count = std::min(keys, count - first);
    if (some.transposed != nullptr) {
      some.transposed = k_.rows().transposed + first * floats;
    } else {
      std::copy_n(k_.rows().rows + first, some.count, some.rows);
    }
    if (HasScales(some.kind)) {
      some.scales = k_.rows().scales + first;
      some.biases = k_.rows().biases + first;
    }
    for (int64_t row = 0; row < tile_->rows; row += kQuad) {
      if (mask_.most[row / kQuad] <= first) continue;
      prefetcher.Step();
      dot(some, QueriesOf(shape, row), scores_ + row * kBlockTokens + first);
    }
  }
}

// Channels of all rows of V that stay in L1, for all queries before the next channels.
void TileWorker::SumChannelSlices(const TileShape& shape, const PrefetchRows (&prefetch)[2]) {
  BlockRows some = v_.rows();
  const int64_t dim = some.dim;
  const int64_t count = some.count;
  const bool factored = some.kind == RowKind::kFactoredWidened;
  const int64_t channels = factored ? some.group : 64;
  Prefetcher prefetcher(prefetch, (dim + channels - 1) / channels * Quads());
  for (int64_t first = 0; first < dim; first += channels) {
    some.dim = std::min(channels, dim - first);
    ForEachQuad([&](int64_t row, int width) {
      some.count = mask_.counts[row];
      prefetcher.Step();
      SumRows(shape, row, width, some, first);
    });
    for (int64_t i = 0; i < count; ++i) some.rows[i] += 4 * channels;
    if (factored) some.scales += kBlockTokens, some.biases += kBlockTokens;
  }
}

const float* TileWorker::Bias(int64_t row, int width, int64_t block, uint64_t places) {
  const Row& first = rows_[static_cast<size_t>(row)];
  const bool alibi = tile_->sequence->alibi_slopes != nullptr;
  if (first.bias == nullptr && !alibi) return nullptr;
  const auto rows = std::min<int64_t>(width, std::ssize(rows_) - row);
  std::fill(bias_, bias_ + width * kBlockTokens, 0.0f);
  for (int64_t h = 0; h < rows; ++h) {
    const Row& of = rows_[static_cast<size_t>(row + h)];
    float* to = bias_ + h * kBlockTokens;
    for (uint64_t rest = places; rest != 0; rest &= rest - 1, ++to) {
      const int64_t position = block * kBlockTokens + std::countr_zero(rest);
      double value = of.bias == nullptr ? 0 : static_cast<double>(of.bias[position]);
      // The product is exact in double: one rounding of the whole, however much of it cancels.
      if (alibi) {
        value -=
            static_cast<double>(of.slope) * static_cast<double>(std::abs(of.position - position));
      }
      *to = static_cast<float>(value);
    }
  }
  return bias_;
}

Queries TileWorker::QueriesOf(const TileShape& shape, int64_t row) const {
  if (!shape.k_factored) {
    return {queries_ + row * shape.k_padded, shape.k_padded, nullptr, false,
            transposes_k_ ? q_transposed_ + row * shape.k_padded : nullptr};
  }
  const float* quad = queries_ + row / kQuad * kQuad * shape.k_padded;
  const int64_t k_dim = shape.shape.k_dim;
  if (shape.k_fixed) {
    return {quad + row % kQuad * kFixedParts, 0,
            quad + FixedSums(k_dim, shape.k_fixed->group) + row % kQuad, false, nullptr};
  }
  return {quad + row % kQuad, 0, quad + kQuad * k_dim + row % kQuad, in_place_, nullptr};
}

void TileWorker::DotRows(const TileShape& shape, int64_t row, int64_t width, const BlockRows& keys,
                         float* scores) {
  shape.kernels.Of(keys.kind).dot[width == 1 ? 0 : 1](keys, QueriesOf(shape, row), scores);
}

void TileWorker::Dot(const TileShape& shape, int64_t row, int width, uint64_t any,
                     uint64_t places) {
  float* scores = scores_ + row * kBlockTokens;
  if (IsUniform(row)) {
    std::fill(scores, scores + width * kBlockTokens, 0.0f);
    return;
  }
  const BlockRows& keys = places == any ? k_.rows() : selected_.Select(k_.rows(), any, places);
  DotRows(shape, row, width, keys, scores);
}

void TileWorker::Softmax(const TileShape& shape, int64_t row, int width, int64_t block,
                         uint64_t places) {
  SoftmaxStep step;
  step.count = CountOf(places);
  step.scale = shape.scale;
  step.softcap = shape.softcap;
  step.bias = Bias(row, width, block, places);
  step.scores = scores_ + row * kBlockTokens;
  step.shift = partial_.shifts + row;
  step.total = partial_.totals + row;
  step.rescale = rescale_ + row;
  shape.kernels.softmax[width == 1 ? 0 : 1](step);
}

void TileWorker::SumRows(const TileShape& shape, int64_t row, int64_t width,
                         const BlockRows& values, int64_t channel) {
  shape.kernels.Of(values.kind)
      .sum[width == 1 ? 0 : 1](values, scores_ + row * kBlockTokens, rescale_ + row,
                               partial_.sums + row * shape.v_padded + channel, shape.v_padded);
}

void TileWorker::Sum(const TileShape& shape, int64_t row, int width, uint64_t any,
                     uint64_t places) {
  const BlockRows& values = places == any ? v_.rows() : selected_.Select(v_.rows(), any, places);
  SumRows(shape, row, width, values, 0);
}

}  // namespace kvcheck::optimized
