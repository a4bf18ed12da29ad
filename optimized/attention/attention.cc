#include "optimized/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "optimized/attention/aligned_floats.h"
#include "optimized/attention/kernels.h"
#include "optimized/attention/merge_ranges.h"
#include "optimized/attention/tile_worker.h"
#include "optimized/attention/worker_pool.h"

namespace kvcheck::optimized {
namespace {

// A tile whose ranges go to different workers has the partial results of all of them in memory.
// Where many queries make tiles enough for every worker, each is done by one.
constexpr int64_t kTilesPerWorker = 4;

}  // namespace

// f32 holds the values of every format of another row type.
bool CanAttend(const KvFormat& format) { return RowDType(format) != DType::kFloat64; }

struct Attention::State {
  explicit State(int threads) : pool(threads), workers(static_cast<size_t>(pool.workers())) {}

  // One piece of work: a range of some tiles, or (range -1) all ranges of one.
  struct Piece {
    size_t tile;
    size_t tiles;
    int64_t range;
  };

  // Queries of a tile: the more of them, the less often keys and values are read; but they have to
  // stay at hand meanwhile, and tiles be enough for every worker.
  int64_t TileRows(const TileShape& shape, std::span<const SequenceQueries> batch) const {
    int64_t count = 0;
    for (const SequenceQueries& sequence : batch) {
      const int64_t rows = shape.group * sequence.queries;
      count += (rows + kMostTileRows - 1) / kMostTileRows * shape.shape.kv_heads;
    }
    const bool most =
        count >= kTilesPerWorker * pool.workers() && shape.FitsSecondCache(kMostTileRows);
    return most ? kMostTileRows : kMostTileRows / 2;
  }

  void AddTiles(const TileShape& shape, std::span<const SequenceQueries> batch) {
    tiles.clear();
    const int64_t tile_rows = TileRows(shape, batch);
    for (const SequenceQueries& sequence : batch) {
      const int64_t rows = shape.group * sequence.queries;
      for (int64_t head = 0; head < shape.shape.kv_heads; ++head) {
        for (int64_t row = 0; row < rows; row += tile_rows) {
          Tile tile;
          tile.sequence = &sequence;
          tile.kv_head = head;
          tile.first_row = row;
          tile.rows = std::min(tile_rows, rows - row);
          FindRanges(shape, &tile);
          tiles.push_back(tile);
        }
      }
    }
  }

  void AddPieces(const TileShape& shape) {
    pieces.clear();
    bool split =
        static_cast<int64_t>(tiles.size()) < kTilesPerWorker * static_cast<int64_t>(pool.workers());
    int64_t most_rows = 0;
    for (const Tile& tile : tiles) most_rows = std::max(most_rows, tile.rows);
    split = split || most_rows < kWidenFrom;
    most_team = 1;
    int64_t floats = 0;
    for (const Tile& tile : tiles) floats += tile.ranges * shape.PartialFloats(tile.rows);
    float* at = split ? AlignedFloats(&partials, floats) : nullptr;
    if (split && open.size() < tiles.size()) open = std::vector<std::atomic<int64_t>>(tiles.size());
    for (size_t i = 0; i < tiles.size(); ++i) {
      Tile& tile = tiles[i];
      if (!split) pieces.push_back({i, 1, -1});
      if (!split) continue;
      tile.partials = at;
      at += tile.ranges * shape.PartialFloats(tile.rows);
      open[i].store(tile.ranges, std::memory_order_relaxed);
    }
    for (size_t first = 0; split && first < tiles.size();) {
      size_t end = first;
      while (end < tiles.size() && tiles[end].sequence == tiles[first].sequence) ++end;
      AddRanges(first, end);
      first = end;
    }
  }

  // The ranges of the tiles of one sequence: a range of all heads before the next range.
  void AddRanges(size_t first, size_t end) {
    int64_t ranges = 0;
    for (size_t i = first; i < end; ++i) ranges = std::max(ranges, tiles[i].ranges);
    const size_t team = TeamOf(first, end, ranges);
    most_team = std::max(most_team, team);
    const auto whole = [&](size_t i) { return tiles[i].ranges <= (team == 1 ? 1 : 0); };
    for (size_t i = first; i < end; ++i) {
      if (whole(i)) pieces.push_back({i, 1, -1});
    }
    for (int64_t range = 0; range < ranges; ++range) {
      for (size_t i = first; i < end; i += team) {
        if (range < tiles[i].ranges && !whole(i)) {
          pieces.push_back({i, std::min(team, end - i), range});
        }
      }
    }
  }

  // How many tiles go together, block by block: those of heads that stand together, as many as
  // leave work for every worker and stay at hand; otherwise one.
  size_t TeamOf(size_t first, size_t end, int64_t ranges) const {
    const SequenceQueries& sequence = *tiles[first].sequence;
    const bool by_token = sequence.k.code_head_stride < sequence.k.code_stride;
    const bool tile_per_head = static_cast<int64_t>(end - first) == shape->shape.kv_heads;
    if (!by_token || !tile_per_head || sequence.visible_head_stride != 0) return 1;
    const int64_t sequences = std::ssize(tiles) / shape->shape.kv_heads;
    size_t team = end - first;
    const auto wanted = static_cast<int64_t>(pool.workers());
    const auto pieces_of = [&](size_t size) {
      return sequences * ranges * static_cast<int64_t>((end - first + size - 1) / size);
    };
    const int64_t rows = tiles[first].rows;
    while (team > 1 && !shape->FitsSecondCache(static_cast<int64_t>(team) * rows))
      team = (team + 1) / 2;
    while (team > 1 && pool.workers() > 1 && pieces_of(team) < wanted) team = (team + 1) / 2;
    return team;
  }

  // What one worker throws, as where memory runs out, ends the call: the others take no more
  // pieces, and the caller throws the first of it.
  void Work(int worker) noexcept {
    try {
      DoPieces(worker);
    } catch (...) {
      next_piece.store(pieces.size(), std::memory_order_relaxed);
      const std::lock_guard lock(thrown_mutex);
      if (thrown == nullptr) thrown = std::current_exception();
    }
  }

  void DoPieces(int worker) {
    std::vector<TileWorker>& team = workers[static_cast<size_t>(worker)];
    if (team.size() < most_team) team.resize(most_team);
    for (size_t i = 0; i < most_team; ++i) team[i].Start(*shape);
    while (true) {
      const size_t next = next_piece.fetch_add(1, std::memory_order_relaxed);
      if (next >= pieces.size()) return;
      const Piece& piece = pieces[next];
      const Tile& tile = tiles[piece.tile];
      if (piece.range >= 0) {
        TileWorker::RunRanges(*shape, {&tile, piece.tiles}, piece.range, team);
        for (size_t i = piece.tile; i < piece.tile + piece.tiles; ++i) {
          if (open[i].fetch_sub(1, std::memory_order_acq_rel) == 1) {
            MergeRanges(*shape, tiles[i]);
          }
        }
        continue;
      }
      Tile whole = tile;
      if (whole.partials == nullptr) {
        whole.partials = team[0].Partials(tile.ranges * shape->PartialFloats(tile.rows));
      }
      team[0].RunTile(*shape, whole);
    }
  }

  WorkerPool pool;
  std::vector<std::vector<TileWorker>> workers;  // of each one as many as tiles go together
  std::vector<Tile> tiles;
  std::vector<Piece> pieces;
  std::vector<float> partials;
  std::vector<std::atomic<int64_t>> open;  // ranges of a tile that are not done
  std::atomic<size_t> next_piece{0};
  size_t most_team = 1;
  const TileShape* shape = nullptr;
  std::mutex thrown_mutex;
  std::exception_ptr thrown;
};

Attention::Attention(int threads) : state_(std::make_unique<State>(threads)) {}
Attention::~Attention() = default;

void Attention::Run(const AttentionShape& shape, std::span<const SequenceQueries> batch) {
  const AttentionKernels kernels = KernelsFor(!shape.portable);
  const TileShape tile_shape(shape, kernels);
  State& state = *state_;
  if (batch.empty()) return;
  state.shape = &tile_shape;
  state.AddTiles(tile_shape, batch);
  state.AddPieces(tile_shape);
  state.next_piece.store(0, std::memory_order_relaxed);
  state.pool.Run([](void* context, int worker) { static_cast<State*>(context)->Work(worker); },
                 &state);
  if (state.thrown != nullptr) std::rethrow_exception(std::exchange(state.thrown, nullptr));
}

}  // namespace kvcheck::optimized
