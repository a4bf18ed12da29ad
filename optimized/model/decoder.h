// A decoder of Llama's architecture (reference/spec/decoder.h) in f32 over any caches: prefill in
// chunks, decode, batches of rows that begin with padding. Matrices are read as f32; sums of
// products run over blocks of 64 inputs, which are then added; everything that is not a sum of
// products is computed in double and rounded once. A row's bits depend on its own tokens alone.

#ifndef OPTIMIZED_MODEL_DECODER_H_
#define OPTIMIZED_MODEL_DECODER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "optimized/attention/thread_pool.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/decoder.h"

namespace kvcheck::optimized {

// A position of a padding column.
inline constexpr int64_t kPadding = -1;

// The next columns of a batch. Shapes: tokens, positions (rows, columns).
struct DecoderColumns {
  int64_t rows = 1;
  int64_t columns = 1;
  std::span<const int64_t> tokens;
  std::span<const int64_t> positions;  // kPadding: the column is padding of this row
  std::span<Cache* const> caches;      // one per layer
  // The window of a sliding layer is asked of attention, for caches whose layout keeps everything.
  bool ask_windows = true;
};

// What one layer computed, valid during the call. Shapes: one row per (row, column), as tokens.
struct DecoderLayerView {
  int64_t layer = 0;
  const float* x = nullptr;      // (hidden) what entered
  const float* q = nullptr;      // (query_heads, head_dim), rotated
  const float* k = nullptr;      // (kv_heads, head_dim), rotated
  const float* v = nullptr;      // (kv_heads, head_dim)
  const float* out = nullptr;    // (query_heads, head_dim)
  const float* mid = nullptr;    // (hidden)
  const float* inner = nullptr;  // (intermediate)
  const float* next = nullptr;   // (hidden) what leaves
  Cache* cache = nullptr;        // after its append
  const Plan* plan = nullptr;    // of this attention, where the cache states it of every answer
};

class DecoderWatcher {
 public:
  virtual ~DecoderWatcher() = default;
  virtual void Layer(const DecoderLayerView& view) = 0;
};

class Decoder {
 public:
  // weights: checked by CheckWeights. threads: of the products, at least 1.
  Decoder(const DecoderConfig& config, const TensorMap& weights, int threads);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const DecoderConfig& config() const { return config_; }
  // K and V go to the caches. logits: (rows, columns, vocabulary); of padding columns anything.
  // watcher may be null. What a cache refuses or does not have is returned, and the rest undone.
  OpResult Forward(const DecoderColumns& columns, DecoderWatcher* watcher,
                   std::vector<float>* logits);

 private:
  struct Layer;
  struct Buffers;
  void Rotate(int64_t heads, std::span<const int64_t> positions, float* x);
  OpResult Attend(int64_t layer, const DecoderColumns& columns, const Plan** plan);
  void Multiply(const std::vector<float>& x, const std::vector<float>& w, int64_t rows, int64_t in,
                int64_t out, std::vector<float>* y);
  void Turn(int64_t position, float* cosine, float* sine) const;

  DecoderConfig config_;
  ThreadPool pool_;
  std::vector<float> embedding_;  // (vocabulary, hidden)
  std::vector<float> head_;       // [hidden][vocabulary]
  std::vector<float> final_norm_;
  std::vector<Layer> layers_;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_MODEL_DECODER_H_
