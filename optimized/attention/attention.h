// Fused attention over stored K and V of any format: scores, a step of an online softmax and P.V
// for each block of 64 positions. Every row is read once per key/value head and converted in
// registers. Decode runs as split-KV.
//
//   out[h, l, :] = softmax_j(softcap(scale q.k_j) + bias_j) . v_j over the visible positions j
//
// Rows are batch-invariant: the bits of a query's result (but for the payload of a NaN) depend on
// its own visible keys alone, not on other rows of the batch, padding, the place of columns in
// memory, other queries of the call, or the number of threads, since blocks and splits are anchored
// at position 0. With `portable` they do not depend on the instruction set either. What is masked
// is never read: not K, not V, not the bias.
//
// Rows that are stored rotated are not rotated back: q is rotated into the basis of K before the
// first block, the sums of V are rotated back after the merge.
//
// How it computes, as a plan: attention_plan.h.

#ifndef OPTIMIZED_ATTENTION_ATTENTION_H_
#define OPTIMIZED_ATTENTION_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "optimized/attention/visible_keys.h"
#include "reference/spec/kv_format.h"

namespace kvcheck::optimized {

// Positions of a split (split-KV): one online softmax, whose partial result is merged.
inline constexpr int64_t kSplitTokens = 2048;

struct AttentionShape {
  int64_t query_heads = 1;  // a multiple of kv_heads; head h reads h / (query_heads / kv_heads)
  int64_t kv_heads = 1;
  int64_t k_dim = 64;
  int64_t v_dim = 64;
  KvFormat k = PlainFormat{};  // all that CanAttend takes; groups and blocks divide the dimension
  KvFormat v = PlainFormat{};
  double scale = 0.125;
  std::optional<double> softcap;
  bool portable = false;  // the same bits on every instruction set
  bool factors = true;    // false: codes are decoded before they are multiplied
  bool in_basis = true;   // false: rows that are stored rotated are rotated back one by one
  bool operator==(const AttentionShape&) const = default;
};
// Whether K and V of the format can be read: all but f64, and groups of tokens.
bool CanAttend(const KvFormat& format);

// Rows of one sequence: that of column c and head h at codes + h code_head_stride + c code_stride
// (bytes), its scales and biases likewise. Any strides, no alignment.
struct StoredHeads {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;  // of formats that have them in a plane of their own
  const std::byte* biases = nullptr;
  int64_t code_stride = 0;
  int64_t code_head_stride = 0;
  int64_t scale_stride = 0;
  int64_t scale_head_stride = 0;
};

// Positions [position, position + count) are stored at columns [column, column + count).
struct ColumnRun {
  int64_t position = 0;
  int64_t column = 0;
  int64_t count = 0;
};

// The queries of one sequence, a row of the batch.
struct SequenceQueries {
  StoredHeads k, v;
  // By ascending position; every visible position is in one.
  std::span<const ColumnRun> columns;
  int64_t queries = 1;
  // Query l of head h at q + h q_head_stride + l q_stride (floats), k_dim of them.
  const float* q = nullptr;
  int64_t q_head_stride = 0;
  int64_t q_stride = 0;
  // Of query l and head h: visible[h visible_head_stride + l].
  const VisibleKeys* visible = nullptr;
  int64_t visible_head_stride = 0;
  // Added to the score of position p: bias[h bias_head_stride + l bias_stride + p]. Null: none.
  const float* bias = nullptr;
  int64_t bias_head_stride = 0;
  int64_t bias_stride = 0;
  // (query_heads): also added, -slope |position of query l - p|, query l standing at first_position
  // + l. Null: none.
  const float* alibi_slopes = nullptr;
  int64_t first_position = 0;
  const float* sinks = nullptr;  // (query_heads) logits whose value is 0; null: none
  // Zeros where nothing is visible.
  float* out = nullptr;
  int64_t out_head_stride = 0;  // floats
  int64_t out_stride = 0;
  // Log of the sum of exponentials, sinks included; -inf where nothing is visible. Null: none.
  float* lse = nullptr;
  int64_t lse_head_stride = 0;
  int64_t lse_stride = 1;
  bool lse_base2 = false;
};

// Keeps its memory and its threads between calls. One call at a time.
class Attention {
 public:
  // threads: of a call, the caller's own among them; at least 1. Throws std::system_error
  // where the system has no more threads. In a process forked from this one the caller works alone.
  explicit Attention(int threads = 1);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Preconditions: CanAttend of both formats, groups divide the dimensions, pointers hold what the
  // shape says. Allocates nothing where an earlier call was as large, but for what a thread needs
  // that had no part in it. Throws std::bad_alloc where memory runs out, on whichever thread; then
  // the outputs hold anything, and the next call is as good as on a new object.
  void Run(const AttentionShape& shape, std::span<const SequenceQueries> batch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_ATTENTION_H_
