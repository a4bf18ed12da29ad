// Attention over stored K and V as the benchmarks measure it: 32 query heads, 8 key/value heads,
// 128 channels, every vector drawn and encoded once. What is drawn is the same for every format.

#ifndef BENCH_ATTENTION_STORED_PROBLEM_H_
#define BENCH_ATTENTION_STORED_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/cache/stored_memory.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck {

// K or V of every sequence, head-major or token-major.
class ProblemVectors {
 public:
  ProblemVectors(const KvFormat& format, int64_t tokens, int64_t batch, bool by_token,
                 uint32_t seed);

  optimized::StoredHeads Heads(int64_t sequence) const;
  // Decoded values of one vector. Shapes: values (head_dim).
  void Decode(int64_t sequence, int64_t head, int64_t token, float* values) const;
  int64_t Bytes() const;  // of all sequences

 private:
  optimized::RowBytes bytes_;
  optimized::RowCodec codec_;
  int64_t tokens_, batch_;
  bool by_token_;
  optimized::StoredMemory codes_, scales_, biases_;  // as caches have it
};

class StoredProblem {
 public:
  static constexpr int64_t kQueryHeads = 32;
  static constexpr int64_t kKvHeads = 8;
  static constexpr int64_t kDim = 128;

  struct Size {
    std::string format;  // text of a KvFormat, of K and V; or of K/V
    int64_t tokens = 1;
    int64_t batch = 1;
    int64_t queries = 1;  // the last of the tokens where causal
    bool by_token = false;
    bool causal = false;
    bool portable = false;
  };
  // Errors: kvcheck::Error for a text that is no format, or one whose vectors cannot be read.
  explicit StoredProblem(const Size& size);
  // Batches hold addresses of this object.
  StoredProblem(const StoredProblem&) = delete;
  StoredProblem& operator=(const StoredProblem&) = delete;

  const optimized::AttentionShape& shape() const { return shape_; }
  std::span<const optimized::SequenceQueries> batch() const { return batch_; }
  int64_t Bytes() const { return k_.Bytes() + v_.Bytes(); }
  // An FMA counts two; pairs that a causal mask hides count none.
  double Flops() const;
  // Root mean square of the error of `out` against attention in doubles of the decoded K and V,
  // over that of the values themselves. Precondition: attention has been run. For small problems.
  double RelativeError() const;

 private:
  Size size_;
  ProblemVectors k_, v_;
  optimized::ColumnRun run_;
  optimized::AttentionShape shape_;
  std::vector<optimized::VisibleKeys> visible_;
  std::vector<float> q_, out_;
  std::vector<optimized::SequenceQueries> batch_;
};

}  // namespace kvcheck

#endif  // BENCH_ATTENTION_STORED_PROBLEM_H_
