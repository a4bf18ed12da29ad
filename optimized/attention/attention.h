// Attention over stored K and V, fused: for each block of 64 positions scores, a step of an online
// softmax and P.V, so that every stored vector is read once per key/value head, widened in
// registers and never copied, whatever its format.
//
//   out[h, l, :] = softmax_j(softcap(scale q.k_j) + bias_j) . v_j over the visible positions j
//
// A query's result is a function of its own visible keys alone, bit for bit but for which NaN a NaN
// is: blocks and ranges are anchored at the sequence's position 0, so it does not depend on other
// rows of the batch, padding, the place of columns in memory, the queries it is asked with, or the
// number of threads. With `portable` it is the same on every instruction set, too. What is hidden
// is never read: not K, not V, not the bias.
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

// Positions of one online softmax; the results of ranges are merged.
inline constexpr int64_t kRangeTokens = 2048;

struct AttentionShape {
  int64_t query_heads = 1;  // a multiple of kv_heads; head h reads h / (query_heads / kv_heads)
  int64_t kv_heads = 1;
  int64_t k_dim = 64;
  int64_t v_dim = 64;
  KvFormat k = PlainFormat{};  // all but f64; groups and blocks divide the dimension
  KvFormat v = PlainFormat{};
  double scale = 0.125;
  std::optional<double> softcap;
  bool portable = false;  // the same bits on every instruction set
  bool operator==(const AttentionShape&) const = default;
};
// Whether vectors of the format can be read: all but f64.
bool CanAttend(const KvFormat& format);

// Vectors of one sequence: that of column c and head h at codes + h code_head_stride +
// c code_stride (bytes), and its scales and biases likewise. Any strides, no alignment.
struct StoredHeads {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;  // affine formats alone
  const std::byte* biases = nullptr;
  int64_t code_stride = 0;
  int64_t code_head_stride = 0;
  int64_t scale_stride = 0;
  int64_t scale_head_stride = 0;
};

// Positions [position, position + count) stand at the columns from `column` on.
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
  // threads: that work on a call, the caller's own among them; at least 1. Throws std::system_error
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
