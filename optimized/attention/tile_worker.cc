#include "optimized/attention/tile_worker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/attention/aligned_floats.h"
#include "optimized/attention/prefetcher.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/attention/merge_splits.h"
#include "optimized/attention/packed_codes.h"
#include "optimized/attention/cache_sizes.h"
#include "optimized/attention/transposed_keys.h"

namespace kvcheck::optimized {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kBlocksPerRange = kRangeTokens / kBlockTokens;
// Vectors of keys that stay in the first cache with four queries.
constexpr int64_t kPlainTogether = 16;

// Keys turned about, of so many floats each: all of a block where they stay in the first cache with
// four queries and their scores, otherwise `least`.
int64_t TurnedTogether(int64_t key_floats, int64_t query_floats, int64_t least) {
  const int64_t all = kBlockTokens * key_floats + kQuad * (query_floats + kBlockTokens);
  const int64_t bytes = all * static_cast<int64_t>(sizeof(float));
  return bytes <= FirstCacheBytes() ? kBlockTokens : least;
}

}  // namespace

void TileWorker::Start(const TileShape& shape) {
  k_.Start(shape.shape.k, shape.shape.k_dim, shape.k_planes != nullptr);
  v_.Start(shape.shape.v, shape.shape.v_dim, shape.v_planes != nullptr);
  tile_ = nullptr;
}

float* TileWorker::Partials(int64_t floats) { return AlignedFloats(&partials_, floats); }

void TileWorker::TakeRows(const TileShape& shape, const Tile& tile) {
  tile_ = &tile;
  const int64_t rows = TileShape::PaddedRows(tile.rows);
  const int64_t queries = (rows + kQuad - 1) / kQuad * kQuad * shape.k_padded;
  const int64_t scores = rows * kBlockTokens;
  const int64_t rescale = PaddedDim(rows);
  turns_ = shape.kernels.CanTurn() && tile.Widens();
  const int64_t turned = turns_ && shape.k_planes == nullptr ? queries : 0;
  queries_ = AlignedFloats(&memory_, queries + turned + scores + rescale + kBlockTokens * kQuad);
  turned_ = queries_ + queries;
  scores_ = turned_ + turned;
  rescale_ = scores_ + scores;
  bias_ = rescale_ + rescale;
  if (tile.Widens()) {
    k_.MakeRoom(shape.k_planes == nullptr, turns_);
    v_.MakeRoom(true, false);
  }
  selected_.MakeRoom(std::max(k_.groups(), v_.groups()));
  // Queries that fill up fours are zeros, and channels that fill up vectors.
  const bool fills_up = shape.k_planes == nullptr && shape.k_padded != shape.shape.k_dim;
  if (fills_up || tile.rows % kQuad != 0) std::fill(queries_, queries_ + queries, 0.0f);
  rows_.resize(static_cast<size_t>(tile.rows));
  const SequenceQueries& from = *tile.sequence;
  const auto query = [&](const RowPlace& at) {
    return from.q + at.head * from.q_head_stride + at.query * from.q_stride;
  };
  const int64_t dim = shape.shape.k_dim;
  // The bits are the same either way.
  in_place_ = shape.k_planes != nullptr && !tile.Widens() && !shape.kernels.fixed;
  for (int64_t row = 0; row < tile.rows && in_place_; ++row) {
    in_place_ = FitPlanes(query(PlaceOf(shape, tile, row)), dim);
  }
  for (int64_t row = 0; row < tile.rows; ++row) {
    const RowPlace at = PlaceOf(shape, tile, row);
    if (shape.k_planes != nullptr && shape.kernels.fixed) {
      ArrangeFixedQuery(*shape.k_planes, query(at), dim, row % kQuad,
                        queries_ + row / kQuad * kQuad * shape.k_padded);
    } else if (shape.k_planes != nullptr) {
      ArrangeQuery(*shape.k_planes, query(at), dim, in_place_, row % kQuad,
                   queries_ + row / kQuad * kQuad * shape.k_padded);
    } else {
      std::memcpy(queries_ + row * shape.k_padded, query(at),
                  static_cast<size_t>(dim) * sizeof(float));
    }
    Row& to = rows_[static_cast<size_t>(row)];
    to.visible = &VisibleOf(tile, at);
    to.bias = from.bias == nullptr
                  ? nullptr
                  : from.bias + at.head * from.bias_head_stride + at.query * from.bias_stride;
    to.slope = from.alibi_slopes == nullptr ? 0.0f : from.alibi_slopes[at.head];
    to.position = from.first_position + at.query;
  }
  for (int64_t row = 0; turned > 0 && row < tile.rows; row += kQuad) {
    TurnQueries(queries_ + row * shape.k_padded, shape.k_padded, shape.k_padded,
                shape.kernels.dot_lanes, turned_ + row * shape.k_padded);
  }
  span_ = {};
  whole_ = {};
  for (const Row& row : rows_) {
    span_.Add(*row.visible);
    whole_.Add(*row.visible);
  }
  seen_.whole = false;
}

void TileWorker::BeginRange(const TileShape& shape, const Tile& tile, int64_t range,
                            const Share& share) {
  share_ = share;
  if (tile_ != &tile) TakeRows(shape, tile);
  const int64_t padded = TileShape::PaddedRows(tile.rows);
  partial_.sums = tile.partials + range * shape.PartialFloats(tile.rows);
  partial_.shifts = partial_.sums + padded * shape.v_padded;
  partial_.totals = partial_.shifts + PaddedDim(padded);
  std::fill(partial_.sums, partial_.shifts, 0.0f);
  std::fill(partial_.shifts, partial_.totals, -kInfinity);
  std::fill(partial_.totals, partial_.totals + PaddedDim(padded), 0.0f);
}

void TileWorker::RunRanges(const TileShape& shape, std::span<const Tile> tiles, int64_t range,
                           std::span<TileWorker> workers) {
  const auto parts = std::ssize(tiles);
  TileWorker& front = workers.front();
  for (int64_t i = 0; i < parts; ++i) {
    const auto at = static_cast<size_t>(i);
    const Share share = {i, parts, kBlockTokens * i / parts, kBlockTokens * (i + 1) / parts,
                         parts > 1 ? &front.head_scales_ : nullptr};
    workers[at].BeginRange(shape, tiles[at], range, share);
  }
  if (parts > 1) front.head_scales_.MakeRoom(parts);
  const int64_t first = (tiles[0].first_range + range) * kBlocksPerRange;
  const std::span<TileWorker> team = workers.first(tiles.size());
  for (int64_t block = first; block < first + kBlocksPerRange; ++block) {
    for (TileWorker& worker : team) worker.SeeBlock(block);
    const bool turns = parts > 1 && front.seen_.any != 0;
    if (turns && front.seen_.reads_keys) front.TurnScales(shape, tiles[0].sequence->k, front.k_);
    for (TileWorker& worker : team) worker.ScoreBlock(shape, block);
    if (turns) front.TurnScales(shape, tiles[0].sequence->v, front.v_);
    for (TileWorker& worker : team) worker.SumBlock(shape);
  }
}

void TileWorker::RunTile(const TileShape& shape, const Tile& tile) {
  tile_ = nullptr;  // its address is that of an earlier one
  for (int64_t range = 0; range < tile.ranges; ++range) {
    RunRanges(shape, {&tile, 1}, range, {this, 1});
  }
  tile_ = nullptr;
  MergeRanges(shape, tile);
}

// Groups of four rows that see the same go together; otherwise each row alone.
template <class Visit>
void TileWorker::ForEachGroup(Visit visit) {
  const uint64_t* words = seen_.words;
  for (int64_t row = 0; row < tile_->rows; row += kQuad) {
    const int64_t end = std::min(row + kQuad, tile_->rows);
    bool same = tile_->rows > 1;
    for (int64_t r = row + 1; !seen_.whole && r < end; ++r) {
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

void TileWorker::TurnScales(const TileShape& shape, const StoredHeads& from,
                            const BlockStage& stage) {
  const bool whole = seen_.together && seen_.count == kBlockTokens;
  if (!whole) return head_scales_.Drop();
  head_scales_.Take(from, tile_->kv_head, share_.parts, stage.scale_bytes(), seen_.columns[0],
                    shape.kernels);
}

void TileWorker::ScoreBlock(const TileShape& shape, int64_t block) {
  if (seen_.any == 0) return;
  const SequenceQueries& from = *tile_->sequence;
  if (seen_.reads_keys) {
    const bool widen = tile_->Widens() && shape.k_planes == nullptr;
    const auto as = seen_.by_parts && turns_ ? BlockStage::As::kTurned
                    : widen                  ? BlockStage::As::kFloats
                                             : BlockStage::As::kStored;
    k_.Take(from.k, tile_->kv_head, seen_.columns, seen_.count, seen_.together, as, shape.kernels,
            Scales());
    if (!tile_->Widens()) NameAheadOfScores(shape);
  }
  if (tile_->Widens()) return ScoreMany(shape, block);
  ForEachGroup([&](int64_t row, int width) {
    Dot(shape, row, width, seen_.any, seen_.words[row]);
    Soften(shape, row, width, block, seen_.words[row]);
    k_.StopFetching();
  });
}

void TileWorker::ScoreMany(const TileShape& shape, int64_t block) {
  AheadRows ahead[2];
  NameValuesOfThis(ahead);
  if (seen_.by_parts) {
    DotByTokens(shape, ahead);
    ForEachGroup(
        [&](int64_t row, int width) { Soften(shape, row, width, block, seen_.words[row]); });
    return;
  }
  FetchInOrder fetch(ahead, Quads());
  ForEachGroup([&](int64_t row, int width) {
    fetch.Step();
    Dot(shape, row, width, seen_.any, seen_.words[row]);
    Soften(shape, row, width, block, seen_.words[row]);
  });
}

void TileWorker::SumBlock(const TileShape& shape) {
  if (seen_.any == 0) return;
  const SequenceQueries& from = *tile_->sequence;
  // Of rows that are joined none can be left out.
  const bool joins = shape.v_planes != nullptr && shape.kernels.fixed;
  const bool widen = tile_->Widens() && (seen_.by_parts || !joins);
  v_.Take(from.v, tile_->kv_head, seen_.columns, seen_.count, seen_.together,
          widen ? BlockStage::As::kFloats : BlockStage::As::kStored, shape.kernels, Scales());
  if (tile_->Widens()) return SumMany(shape);
  if (seen_.reads_keys) NameAheadOfSums(shape);
  ForEachGroup([&](int64_t row, int width) {
    Sum(shape, row, width, seen_.any, seen_.words[row]);
    v_.StopFetching();
  });
}

void TileWorker::SumMany(const TileShape& shape) {
  AheadRows ahead[2];
  if (seen_.reads_keys) NameKeysOfNext(ahead);
  if (seen_.by_parts) return SumByChannels(shape, ahead);
  FetchInOrder fetch(ahead, Quads());
  ForEachGroup([&](int64_t row, int width) {
    fetch.Step();
    Sum(shape, row, width, seen_.any, seen_.words[row]);
  });
}

// As many vectors as stay in the first cache with four queries, for all queries before the next
// ones. Of the vectors some may see a part: what is computed of the others is never looked at.
void TileWorker::DotByTokens(const TileShape& shape, const AheadRows (&ahead)[2]) {
  BlockRows some = k_.rows();
  const bool in_words = HasScales(some.kind) && shape.kernels.fixed;
  const int64_t floats = in_words ? some.dim / kFixedCodes : some.dim;  // of a key turned about
  const int64_t together = some.turned == nullptr
                               ? kPlainTogether
                               : TurnedTogether(floats, shape.k_padded, shape.kernels.turned_keys);
  const int64_t count = some.count;
  const DotKernel dot = some.turned == nullptr
                            ? shape.kernels.dot[static_cast<int>(some.kind)][1]
                            : shape.kernels.turned_dot[HasScales(some.kind) ? 1 : 0];
  int64_t steps = 0;
  for (int64_t quad = 0; quad < Quads(); ++quad) {
    steps += (std::min(seen_.most[quad], count) + together - 1) / together;
  }
  FetchInOrder fetch(ahead, steps);
  for (int64_t first = 0; first < count; first += together) {
    some.count = std::min(together, count - first);
    if (some.turned != nullptr) {
      some.turned = k_.rows().turned + first * floats;
    } else {
      std::copy_n(k_.rows().rows + first, some.count, some.rows);
    }
    if (HasScales(some.kind)) {
      some.scales = k_.rows().scales + first;
      some.biases = k_.rows().biases + first;
    }
    for (int64_t row = 0; row < tile_->rows; row += kQuad) {
      if (seen_.most[row / kQuad] <= first) continue;
      fetch.Step();
      dot(some, QueriesOf(shape, row), scores_ + row * kBlockTokens + first);
    }
  }
}

// Channels of all vectors, likewise.
void TileWorker::SumByChannels(const TileShape& shape, const AheadRows (&ahead)[2]) {
  BlockRows some = v_.rows();
  const int64_t dim = some.dim;
  const int64_t count = some.count;
  const bool planes = some.kind == RowKind::kPlaneFloats;
  const int64_t channels = planes ? some.group : 64;
  FetchInOrder fetch(ahead, (dim + channels - 1) / channels * Quads());
  for (int64_t first = 0; first < dim; first += channels) {
    some.dim = std::min(channels, dim - first);  // of 16 at least, or all there are
    ForEachGroup([&](int64_t row, int width) {
      some.count = seen_.counts[row];
      fetch.Step();
      SumRows(shape, row, width, some, first);
    });
    for (int64_t i = 0; i < count; ++i) some.rows[i] += 4 * channels;
    if (planes) some.scales += kBlockTokens, some.biases += kBlockTokens;
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
  if (shape.k_planes == nullptr) {
    return {queries_ + row * shape.k_padded, shape.k_padded, nullptr, false,
            turns_ ? turned_ + row * shape.k_padded : nullptr};
  }
  const float* quad = queries_ + row / kQuad * kQuad * shape.k_padded;
  const int64_t k_dim = shape.shape.k_dim;
  if (shape.kernels.fixed) {
    return {quad + row % kQuad * kFixedParts, 0, quad + FixedSums(k_dim) + row % kQuad, false,
            nullptr};
  }
  return {quad + row % kQuad, 0, quad + kQuad * k_dim + row % kQuad, in_place_, nullptr};
}

void TileWorker::DotRows(const TileShape& shape, int64_t row, int64_t width, const BlockRows& keys,
                         float* scores) {
  shape.kernels.dot[static_cast<int>(keys.kind)][width == 1 ? 0 : 1](keys, QueriesOf(shape, row),
                                                                     scores);
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

void TileWorker::Soften(const TileShape& shape, int64_t row, int width, int64_t block,
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
  shape.kernels.sum[static_cast<int>(values.kind)][width == 1 ? 0 : 1](
      values, scores_ + row * kBlockTokens, rescale_ + row,
      partial_.sums + row * shape.v_padded + channel, shape.v_padded);
}

void TileWorker::Sum(const TileShape& shape, int64_t row, int width, uint64_t any,
                     uint64_t places) {
  const BlockRows& values = places == any ? v_.rows() : selected_.Select(v_.rows(), any, places);
  SumRows(shape, row, width, values, 0);
}

}  // namespace kvcheck::optimized
