// Attention of the queries of one row over its stored tokens: a plain loop in f32, with its plan.
// Keys are taken in the order of their positions, one query at a time, so that the result of a row
// is bitwise the same alone, in any batch, at any slots and behind any padding.

#ifndef OPTIMIZED_CACHE_ATTEND_H_
#define OPTIMIZED_CACHE_ATTEND_H_

#include <cstdint>
#include <span>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "reference/spec/cache_layout.h"

namespace kvcheck::optimized {

// Scores: 8 lanes over channels, then a tree; times the scale rounded to f32. One softmax over all
// visible keys (shift, expf, sum term by term), weights in f32, P.V term by term per channel, one
// division. Affine codes are read as fl(fl(c s) + b).
inline constexpr const char* kAttendPlan =
    "qk=f32:lanes:8 pv=f32:sequential l=f32:sequential op=f32 scale_roundings=2 prescale=none "
    "scores=f32 bias_roundings=0 exp=exp exp_error=2^-23 exp_floor=2^-126 lazy_rescale=0 block=all "
    "sink=first p=f32 p_scale=1 p_normalised=no l_from=unrounded merge=none splits=1 "
    "normalise=divide flush=no saturate=no dequantize=inside:2";

struct AttendBuffers {
  RowCodec q_codec;           // the type of the queries
  RowCodec out_codec;         // f32 to the type of the output
  std::vector<float> q;       // (query_heads, queries, k_dim) of one row
  std::vector<float> k;       // (tokens, k_dim) of one head, by position
  std::vector<float> v;       // (tokens, v_dim)
  std::vector<float> scores;  // (tokens)
  std::vector<float> out;     // (v_dim)
};

// Decoded tokens of one row and head, in the order of their positions.
struct RowTokens {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  TokenRange range;  // positions that are there
  // Place of a position of the range.
  int64_t Index(int64_t position) const {
    const int64_t kept = range.keep < range.end ? range.keep : range.end;
    return position < kept || range.from <= kept ? position : kept + position - range.from;
  }
};

// One query over the positions of `visible`, all of which are there.
// Definition: softmax over scale q.k_j (and the sink, whose value is 0) times v_j; zeros where no
// position is visible.
// Shapes: q (Dk), scores (tokens), out (Dv).
void AttendRow(const float* q, const RowTokens& tokens, const TokenRange& visible, float scale,
               const float* sink, float* scores, float* out);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_ATTEND_H_
