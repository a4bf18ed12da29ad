// The steps of a decoder, each a function of the numbers that enter it: what it gives exactly, and
// how far arithmetic that is declared may be off. A step is judged on the implementation's own
// inputs, so that no bound has to pass through a layer (bound.md).

#ifndef REFERENCE_MODEL_STEPS_H_
#define REFERENCE_MODEL_STEPS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/model/linear.h"
#include "reference/spec/decoder.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// How an implementation computes, as numbers; defaults are those of optimized/model.
struct DecoderArithmetic {
  double u = 0x1p-24;  // unit roundoff of every operation that is not named
  // Sums of products run over so many terms and are then added; 0: over all of them.
  int64_t sum_block = 64;
  double u_norm_sum = 0x1p-53;   // of the sum of squares of RMSNorm
  double exp_error = 0x1p-50;    // relative, of the exponential in silu
  double silu_roundings = 1;     // beside it: 3 where sum, division and product round apart
  double angle_error = 0x1p-49;  // relative, of the angle of RoPE
  std::string name = "f32, sums in blocks of 64";

  // Roundings that one term of a sum of n products passes.
  double Depth(int64_t n) const;
};
// Of the reference itself: double, term by term.
DecoderArithmetic ReferenceArithmetic();

struct LayerWeights {
  std::vector<double> input_norm, post_norm;
  Linear q, k, v, o, gate, up, down;
};

struct DecoderWeights {
  DecoderConfig config;
  Tensor embedding;  // (vocabulary, hidden)
  std::vector<LayerWeights> layers;
  std::vector<double> final_norm;
  Linear head;

  DecoderWeights() = default;
  // Precondition: CheckWeights.
  DecoderWeights(const DecoderConfig& c, const TensorMap& weights);
  // Shapes: result (tokens, hidden). Precondition: every token is in the vocabulary.
  Matrix Embed(std::span<const int64_t> tokens) const;
};

// One row per token.
struct StepValues {
  Matrix value;
  Matrix bound;  // of the declared arithmetic
  Matrix own;    // of value itself
  Matrix mass;   // the sum of the magnitudes that an element is made of
};

struct ProjectedValues {
  StepValues q, k, v;  // (tokens, heads head_dim), q and k rotated
};

// The steps; x, out, mid and inner are exact. `layer` counts from 0.
//   Project      x                -> q, k, v
//   (attention   q, stored K, V   -> out: reference/attention)
//   AddAttention x, out           -> mid = x + Wo out
//   Inner        mid              -> silu(Wgate n) * (Wup n)
//   AddInner     mid, inner       -> x of the next layer
//   Logits       x                -> logits
// declared null: value alone.
ProjectedValues Project(const DecoderWeights& w, int64_t layer, const Matrix& x,
                        std::span<const int64_t> positions, const DecoderArithmetic* declared);
StepValues AddAttention(const DecoderWeights& w, int64_t layer, const Matrix& x, const Matrix& out,
                        const DecoderArithmetic* declared);
StepValues Inner(const DecoderWeights& w, int64_t layer, const Matrix& mid,
                 const DecoderArithmetic* declared);
StepValues AddInner(const DecoderWeights& w, int64_t layer, const Matrix& mid, const Matrix& inner,
                    const DecoderArithmetic* declared);
StepValues Logits(const DecoderWeights& w, const Matrix& x, const DecoderArithmetic* declared);

// Cosines and sines of a position, head_dim / 2 each.
struct RopeAngles {
  std::vector<double> angle, cosine, sine;
  RopeAngles(const DecoderConfig& config, int64_t position);
};

}  // namespace kvcheck

#endif  // REFERENCE_MODEL_STEPS_H_
