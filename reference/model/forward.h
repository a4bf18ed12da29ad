// The forward pass of a decoder in double, chunk by chunk along one sequence: with K and V as it
// computes them, or with those that a cache has stored, which is what a format's right answer is.

#ifndef REFERENCE_MODEL_FORWARD_H_
#define REFERENCE_MODEL_FORWARD_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention/head_data.h"
#include "reference/model/steps.h"

namespace kvcheck {

// K and V of a chunk and one layer. Shapes: (tokens, kv_heads head_dim).
struct LayerRows {
  Matrix k, v;
};

// What entered and left the steps of one layer, one row per token of the last chunk.
struct LayerTrace {
  Matrix x, q, out, mid, inner;
};

// K and V of one head, to which tokens are added, as reference/attention evaluates them.
class GrowingHead {
 public:
  explicit GrowingHead(int64_t head_dim);
  // k, v: head_dim each.
  void Append(const double* k, const double* v);
  const HeadData& data() const { return data_; }

 private:
  HeadData data_;
};

class DecoderSequence {
 public:
  // weights must outlive it. threads: of a call; no result depends on it.
  explicit DecoderSequence(const DecoderWeights& weights, int threads = 1);

  // The next tokens of the sequence. stored: their K and V, by layer, in place of those that are
  // computed; empty: none. Shapes: result (tokens, vocabulary).
  Matrix Forward(std::span<const int64_t> tokens, std::span<const LayerRows> stored = {});

  int64_t length() const { return length_; }
  // Of the last chunk.
  const std::vector<LayerTrace>& trace() const { return trace_; }
  const Matrix& final_x() const { return final_x_; }
  // As computed from the reference's own x, whether stored ones took their place or not.
  const std::vector<LayerRows>& computed() const { return computed_; }
  const GrowingHead& Head(int64_t layer, int64_t kv_head) const {
    return heads_[static_cast<size_t>(layer * weights_.config.kv_heads + kv_head)];
  }
  // Keys [first, position] are seen by the query at a position.
  int64_t FirstKey(int64_t layer, int64_t position) const;

 private:
  void Attend(int64_t layer, const Matrix& q, Matrix* out) const;

  const DecoderWeights& weights_;
  int threads_;
  int64_t length_ = 0;
  std::vector<GrowingHead> heads_;  // layer after layer
  std::vector<LayerTrace> trace_;
  std::vector<LayerRows> computed_;
  Matrix final_x_;
};

}  // namespace kvcheck

#endif  // REFERENCE_MODEL_FORWARD_H_
