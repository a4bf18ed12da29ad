// The derived tolerance of one query's output: bound.md, section 2, with every variant. Two steps,
// because the sums over V dominate and are shared with the vectorised evaluator: KeyWeights turns a
// row's scores into one weight per key and term; ChannelSums are the sums over keys with those
// weights; ChannelBound assembles the bound of one channel.

#ifndef REFERENCE_ATTENTION_BOUND_H_
#define REFERENCE_ATTENTION_BOUND_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reference/attention/arithmetic.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {

// What the definition says about one query, over its n visible keys (hidden keys of a finite mask
// value included, with S = 0).
struct RowScores {
  std::span<const int32_t> keys;      // columns, for the block structure
  std::span<const double> x;          // score before the softcap and the bias
  std::span<const double> s;          // score
  std::span<const double> bias;       // empty: none
  std::span<const double> magnitude;  // S_j = |scale| sum_i |q_i| |k_ji| (parts for fused codes)
  std::span<const double> k_abs_sum;  // sum_i |k_ji|
  // dS_j: what q.k is off by before it is summed, against originals, of an encoded or rotated
  // query. Empty: none.
  std::span<const double> codec;
  // The score that a finite mask value puts in place of the computed one; NaN: none. Empty: none.
  std::span<const double> forced;
  bool all_forced = false;    // every score is the same forced one: its error is common
  double hidden_score = 0;    // of keys hidden by a finite value, in the sum or not; 0: none
  std::span<const double> e;  // exp(s_j - m)
  std::span<const double> p;  // e_j / L
  double q_abs_sum = 0;       // sum_i |q_i|, of the parts of its code where q.k runs over codes, of
                              // its coordinates where it is rotated
  double q_rotation_largest = 0;  // most that a sum of its rotation comes to; 0: not rotated
  // Where q.k is computed in integers: largest part of the query's code, largest |s|, |z| of K.
  double q_part_largest = 0;
  double k_scale_largest = 0;
  double k_dim = 0;
  double kv_len = 0;
  int32_t first_column = 0;  // after the row's left padding
  // Largest addend of P.V that max |v| over the keys does not show: |v| of all keys where hidden
  // keys enter the sums, |c s| + |z| where codes are summed, sum |y| over a block where rows are
  // summed in their basis; 0: none.
  double v_largest = 0;
  double scale = 0;
  double softcap = 0;  // 0: none
  bool has_sink = false;
  double sink = 0;
  double sink_p = 0;
  double max = 0;          // m
  double denominator = 1;  // L, sink included
  double shift_all = 0;    // maximum of s + E over the masked keys, where the profile's maximum=all
  bool maximum_over_all = false;
  // Where s and the like are those of a few keys in place of all: how many all are, and their
  // largest |s|. 0: s is of all.
  double stands_for = 0;
  double size_largest = 0;
};

struct KeyWeights {
  std::vector<double> c;      // p_j rho+_j
  std::vector<double> x;      // p_j (1 + rho+_j)
  std::vector<double> y;      // p_j (1 + rho+_j) [(1 + u_pj)(1 + kappa_j) - 1]; empty: all zero
  double y_factor = 0;        // where y is empty and u_pj is one constant: Y = y_factor X
  std::vector<double> score;  // like c without the rounding of P; empty: c has none
  double sink_c = 0;          // the sink's part in c
  double sink_share = 0;      // its part in x
  double t = 0;               // T
  double t_plus = 0;          // sum p_j rho+_j, sink included
  // Where weights become integers: most of what all keys weigh if each weighs as much as the
  // heaviest of its block.
  double block_mass = 0;
  double block_keys = 0;           // most keys that share a block
  double largest_rounding = 0;     // of (1 + u_pj)(1 + kappa_j) - 1
  std::vector<double> p_rounding;  // u_pj; empty: P is not rounded
  double largest_kappa = 0;        // of kappa_j
  double shift = 0;                // M* of the derivation
  double overhang = 0;             // M+ - m
  double max_error = 0;            // largest E_j
  double stretch = 1;              // of absolute errors, where the maximum runs over masked keys
  double underflow = 0;            // eta_e and lambda, times that
  double lambda = 0;
  double vanished = 0;      // largest share of L that underflow takes
  double log_l = 0;         // largest |log l| of a split
  double merge_factor = 0;  // e^{u_log l + gamma_2 (M* + l)} - 1 of the division-free merge
  KeyDepths depths;
  double n = 0;
  double summed = 0;          // keys that may enter a running sum: n, or all where some are hidden
  double v_largest = 0;       // as RowScores::v_largest
  bool unbounded = false;     // a gamma is infinite, or the plan's own range may overflow
  std::string_view why;       // the reason, when unbounded
  bool may_overflow = false;  // within the bounds, or no finite number
};

// max (s_j + E_j): the largest maximum that a kernel may find. Reads x, s, bias, magnitude,
// k_abs_sum, codec and the scalars of the question.
double LargestScore(const Arithmetic& a, const RowScores& row);

KeyWeights ComputeKeyWeights(const Arithmetic& a, const RowScores& row);

// Sums over the visible keys for one channel.
struct ChannelSums {
  double o = 0;        // exact output
  double mass = 0;     // A = sum p |v|
  double c = 0;        // sum c_j |v - o|
  double x = 0;        // sum x_j |v|   (parts where the plan factors codes)
  double y = 0;        // sum y_j |v|
  double parts = 0;    // sum x_j (|c s| + |z|): codes dequantized inside; in the basis of V: of
                       // sum |y| over the block / sqrt N
  double codec = 0;    // sum x_j dv_j: against originals
  double fixed = 0;    // most that integers are off by in place of a weight of one times its scale
  double largest = 0;  // V = max |v|
  double spread = 0;   // max |v - o|, the sink's 0 included
};

enum BoundTerm {
  kScoreTerm,
  kProbabilityTerm,
  kSumTerm,
  kDenominatorTerm,
  kNormaliseTerm,
  kUnderflowTerm,
  kOutputTerm,
  kCodecTerm,
  kNoiseTerm,
  kBoundTerms
};
inline constexpr std::array<std::string_view, kBoundTerms> kBoundTermNames = {
    "scores and exp", "rounding of P",   "sum of P.V", "denominator",     "normalisation",
    "underflow",      "output rounding", "codec",      "random roundings"};

struct ChannelBound {
  double bound = 0;
  double before_output = 0;  // F: error before the output's own rounding
  std::array<double, kBoundTerms> terms{};
};

// Relative error of the denominator and of the final normalisation.
double DenominatorError(const Arithmetic& a, const KeyWeights& w);

// Roundings of one term on the way back from the basis of V, the final division among them.
// Precondition: the basis rotates.
double RoundingsBack(const Arithmetic& a, const StoredBasis& basis);

// Of every channel. basis: that in which the kernel sums V; without blocks: channel by channel.
std::vector<ChannelBound> ComputeChannelBounds(const Arithmetic& a, const KeyWeights& w,
                                               std::span<const ChannelSums> sums,
                                               const StoredBasis& basis, DType out);

// |lse error| in the units of the output.
double ComputeLseBound(const Arithmetic& a, const KeyWeights& w, const RowScores& row, double lse,
                       bool base2);

// The rounding of the result: min(u y, half the spacing of the type at y).
double OutputRounding(DType out, double u_o, double y);
// All that is rounded of a result of at most y: to the type that it passes through, and to `out`.
double OutputRoundings(const Arithmetic& a, DType out, double y);
// The same for many results.
class OutputError {
 public:
  // A rounding to one type.
  struct Step {
    double u;
    TypeSpacing spacing;
    double in_spacings;  // the largest error; half a spacing to nearest

    double Of(double y) const { return u == 0 ? 0 : std::min(u * y, in_spacings * spacing.At(y)); }
  };
  static Step StepTo(DType type, double u);

  OutputError(const Arithmetic& a, DType out);

  double At(double y) const {
    const double through = through_.u > 0 ? through_.Of(y) + a_.eta_through : 0;
    return through + out_.Of(y + through) + a_.eta_o;
  }

 private:
  const Arithmetic& a_;
  const Step through_, out_;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_BOUND_H_
