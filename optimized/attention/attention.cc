#include "optimized/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "optimized/attention/aligned_floats.h"
#include "optimized/attention/kernels.h"
#include "optimized/attention/merge_splits.h"
#include "optimized/attention/thread_pool.h"
#include "optimized/attention/tile_worker.h"
#include "reference/spec/token_groups.h"

namespace kvcheck::optimized {
namespace {

// Split-KV keeps partial results of every split in memory: not where queries make tiles enough for
// every worker.
constexpr int64_t kTilesPerWorker = 4;

}  // namespace

// f32 holds the values of every format of another row type.
bool CanAttend(const KvFormat& format) {
  return RowDType(format) != DType::kFloat64 && !GroupsTokens(format) && !HasResidual(format);
}

struct Attention::State {
  explicit State(int threads) : pool(threads), workers(static_cast<size_t>(pool.workers())) {}

  // One split of the tiles of a head group, or (split -1) all splits of one tile.
  struct WorkItem {
    size_t tile;
    size_t tiles;
    int64_t split;
  };

  // Rows of a tile: the more, the less often K and V are read; but they have to stay in L2, and
  // tiles be enough for every worker.
  int64_t TileRows(const TileShape& shape, std::span<const SequenceQueries> batch) const {
    int64_t count = 0;
    for (const SequenceQueries& sequence : batch) {
      const int64_t rows = shape.group * sequence.queries;
      count += (rows + kMaxTileRows - 1) / kMaxTileRows * shape.shape.kv_heads;
    }
    const bool most = count >= kTilesPerWorker * pool.workers() && shape.FitsL2(kMaxTileRows);
    return most ? kMaxTileRows : kMaxTileRows / 2;
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
          FindSplits(shape, &tile);
          tiles.push_back(tile);
        }
      }
    }
  }

  void AddWork(const TileShape& shape) {
    work.clear();
    bool split_kv =
        static_cast<int64_t>(tiles.size()) < kTilesPerWorker * static_cast<int64_t>(pool.workers());
    int64_t most_rows = 0;
    for (const Tile& tile : tiles) most_rows = std::max(most_rows, tile.rows);
    split_kv = split_kv || most_rows < kWidenFrom;
    largest_head_group = 1;
    int64_t floats = 0;
    for (const Tile& tile : tiles) floats += tile.splits * shape.PartialFloats(tile.rows);
    float* at = split_kv ? AlignedFloats(&partials, floats) : nullptr;
    if (split_kv && open.size() < tiles.size()) {
      open = std::vector<std::atomic<int64_t>>(tiles.size());
    }
    for (size_t i = 0; i < tiles.size(); ++i) {
      Tile& tile = tiles[i];
      if (!split_kv) work.push_back({i, 1, -1});
      if (!split_kv) continue;
      tile.partials = at;
      at += tile.splits * shape.PartialFloats(tile.rows);
      open[i].store(tile.splits, std::memory_order_relaxed);
    }
    for (size_t first = 0; split_kv && first < tiles.size();) {
      size_t end = first;
      while (end < tiles.size() && tiles[end].sequence == tiles[first].sequence) ++end;
      AddSplits(first, end);
      first = end;
    }
  }

  // The splits of the tiles of one sequence: a split of all heads before the next split.
  void AddSplits(size_t first, size_t end) {
    int64_t splits = 0;
    for (size_t i = first; i < end; ++i) splits = std::max(splits, tiles[i].splits);
    const size_t heads = HeadGroupOf(first, end, splits);
    largest_head_group = std::max(largest_head_group, heads);
    const auto whole = [&](size_t i) { return tiles[i].splits <= (heads == 1 ? 1 : 0); };
    for (size_t i = first; i < end; ++i) {
      if (whole(i)) work.push_back({i, 1, -1});
    }
    for (int64_t split = 0; split < splits; ++split) {
      for (size_t i = first; i < end; i += heads) {
        if (split < tiles[i].splits && !whole(i)) {
          work.push_back({i, std::min(heads, end - i), split});
        }
      }
    }
  }

  // Heads of a head group, whose tiles run in lockstep, block by block. Above 1 in token-major
  // layouts: as many as leave work for every worker and stay in L2.
  size_t HeadGroupOf(size_t first, size_t end, int64_t splits) const {
    const SequenceQueries& sequence = *tiles[first].sequence;
    const bool token_major = sequence.k.code_head_stride < sequence.k.code_stride;
    const bool tile_per_head = static_cast<int64_t>(end - first) == shape->shape.kv_heads;
    if (!token_major || !tile_per_head || sequence.visible_head_stride != 0) return 1;
    const int64_t sequences = std::ssize(tiles) / shape->shape.kv_heads;
    size_t heads = end - first;
    const auto wanted = static_cast<int64_t>(pool.workers());
    const auto items_of = [&](size_t size) {
      return sequences * splits * static_cast<int64_t>((end - first + size - 1) / size);
    };
    const int64_t rows = tiles[first].rows;
    while (heads > 1 && !shape->FitsL2(static_cast<int64_t>(heads) * rows)) heads = (heads + 1) / 2;
    while (heads > 1 && pool.workers() > 1 && items_of(heads) < wanted) heads = (heads + 1) / 2;
    return heads;
  }

  // An exception on one worker, as where memory runs out, ends the call: no worker takes another
  // item, and the caller rethrows the first exception.
  void Work(int worker) noexcept {
    try {
      DoItems(worker);
    } catch (...) {
      next_item.store(work.size(), std::memory_order_relaxed);
      const std::lock_guard lock(thrown_mutex);
      if (thrown == nullptr) thrown = std::current_exception();
    }
  }

  void DoItems(int worker) {
    std::vector<TileWorker>& heads = workers[static_cast<size_t>(worker)];
    if (heads.size() < largest_head_group) heads.resize(largest_head_group);
    for (size_t i = 0; i < largest_head_group; ++i) heads[i].Start(*shape);
    while (true) {
      const size_t next = next_item.fetch_add(1, std::memory_order_relaxed);
      if (next >= work.size()) return;
      const WorkItem& item = work[next];
      const Tile& tile = tiles[item.tile];
      if (item.split >= 0) {
        TileWorker::RunSplit(*shape, {&tile, item.tiles}, item.split, heads);
        for (size_t i = item.tile; i < item.tile + item.tiles; ++i) {
          if (open[i].fetch_sub(1, std::memory_order_acq_rel) == 1) {
            MergeSplits(*shape, tiles[i]);
          }
        }
        continue;
      }
      Tile whole = tile;
      if (whole.partials == nullptr) {
        whole.partials = heads[0].Partials(tile.splits * shape->PartialFloats(tile.rows));
      }
      heads[0].RunTile(*shape, whole);
    }
  }

  ThreadPool pool;
  std::vector<std::vector<TileWorker>> workers;  // of each worker one a head of a head group
  std::vector<Tile> tiles;
  std::vector<WorkItem> work;
  std::vector<float> partials;
  std::vector<std::atomic<int64_t>> open;  // splits of a tile that are not done
  std::atomic<size_t> next_item{0};
  size_t largest_head_group = 1;
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
  state.AddWork(tile_shape);
  state.next_item.store(0, std::memory_order_relaxed);
  state.pool.Run([](void* context, int worker) { static_cast<State*>(context)->Work(worker); },
                 &state);
  if (state.thrown != nullptr) std::rethrow_exception(std::exchange(state.thrown, nullptr));
}

}  // namespace kvcheck::optimized
