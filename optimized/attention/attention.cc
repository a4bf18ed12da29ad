#include "optimized/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "optimized/attention/kernels.h"
#include "optimized/attention/tile.h"
#include "optimized/attention/worker_pool.h"

namespace kvcheck::optimized {
namespace {

// A tile whose ranges go to different workers has the partial results of all of them in memory.
// Where there are tiles enough for every worker, each is done by one.
constexpr int64_t kTilesPerWorker = 8;

}  // namespace

bool CanAttend(const KvFormat& format) {
  const auto* plain = std::get_if<PlainFormat>(&format);
  return plain == nullptr || plain->dtype != DType::kFloat64;
}

struct Attention::State {
  explicit State(int threads) : pool(threads), workers(static_cast<size_t>(pool.workers())) {}

  // One piece of work: a range of a tile, or (range -1) all of them.
  struct Piece {
    size_t tile;
    int64_t range;
  };

  void AddTiles(const TileShape& shape, std::span<const SequenceQueries> batch) {
    tiles.clear();
    for (const SequenceQueries& sequence : batch) {
      const int64_t rows = shape.group * sequence.queries;
      for (int64_t head = 0; head < shape.shape.kv_heads; ++head) {
        for (int64_t row = 0; row < rows; row += kTileRows) {
          Tile tile;
          tile.sequence = &sequence;
          tile.kv_head = head;
          tile.first_row = row;
          tile.rows = std::min(kTileRows, rows - row);
          FindRanges(shape, &tile);
          tiles.push_back(tile);
        }
      }
    }
  }

  void AddPieces(const TileShape& shape) {
    pieces.clear();
    const bool split =
        static_cast<int64_t>(tiles.size()) < kTilesPerWorker * static_cast<int64_t>(pool.workers());
    int64_t floats = 0;
    for (const Tile& tile : tiles) floats += tile.ranges * shape.PartialFloats(tile.rows);
    if (split && static_cast<int64_t>(partials.size()) < floats + 16) {
      partials.resize(static_cast<size_t>(floats + 16));
    }
    void* start = partials.data();
    size_t room = partials.size() * sizeof(float);
    float* at = split ? static_cast<float*>(std::align(
                            64, static_cast<size_t>(floats) * sizeof(float), start, room))
                      : nullptr;
    if (split && open.size() < tiles.size()) open = std::vector<std::atomic<int64_t>>(tiles.size());
    for (size_t i = 0; i < tiles.size(); ++i) {
      Tile& tile = tiles[i];
      if (!split || tile.ranges <= 1) pieces.push_back({i, -1});
      if (!split) continue;
      tile.partials = at;
      at += tile.ranges * shape.PartialFloats(tile.rows);
      open[i].store(tile.ranges, std::memory_order_relaxed);
    }
    // A range of all heads before the next range: where the heads of a token stand together, what
    // one head leaves of a page the next one takes.
    for (size_t first = 0; split && first < tiles.size();) {
      size_t end = first;
      int64_t ranges = 0;
      for (; end < tiles.size() && tiles[end].sequence == tiles[first].sequence; ++end) {
        ranges = std::max(ranges, tiles[end].ranges);
      }
      for (int64_t range = 0; range < ranges; ++range) {
        for (size_t i = first; i < end; ++i) {
          if (tiles[i].ranges > 1 && range < tiles[i].ranges) pieces.push_back({i, range});
        }
      }
      first = end;
    }
  }

  void Work(int worker) {
    TileWorker& own = workers[static_cast<size_t>(worker)];
    own.Start(shape->shape);
    while (true) {
      const size_t next = next_piece.fetch_add(1, std::memory_order_relaxed);
      if (next >= pieces.size()) return;
      const Piece& piece = pieces[next];
      const Tile& tile = tiles[piece.tile];
      if (piece.range >= 0) {
        own.RunRange(*shape, tile, piece.range);
        if (open[piece.tile].fetch_sub(1, std::memory_order_acq_rel) == 1) {
          TileWorker::Finish(*shape, tile);
        }
        continue;
      }
      Tile whole = tile;
      if (whole.partials == nullptr) {
        whole.partials = own.Partials(tile.ranges * shape->PartialFloats(tile.rows));
      }
      own.RunTile(*shape, whole);
    }
  }

  WorkerPool pool;
  std::vector<TileWorker> workers;
  std::vector<Tile> tiles;
  std::vector<Piece> pieces;
  std::vector<float> partials;
  std::vector<std::atomic<int64_t>> open;  // ranges of a tile that are not done
  std::atomic<size_t> next_piece{0};
  const TileShape* shape = nullptr;
};

Attention::Attention(int threads) : state_(std::make_unique<State>(threads)) {}
Attention::~Attention() = default;

void Attention::Run(const AttentionShape& shape, std::span<const SequenceQueries> batch) {
  const AttentionKernels kernels = KernelsFor(!shape.portable);
  const TileShape tile_shape(shape, kernels);
  State& state = *state_;
  state.shape = &tile_shape;
  state.AddTiles(tile_shape, batch);
  state.AddPieces(tile_shape);
  state.next_piece.store(0, std::memory_order_relaxed);
  state.pool.Run([](void* context, int worker) { static_cast<State*>(context)->Work(worker); },
                 &state);
}

}  // namespace kvcheck::optimized
