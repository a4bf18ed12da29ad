// A plan resolved into the numbers of bound.md, section 1: unit roundoffs, depths and counts, for
// one case. What the plan leaves unsaid takes the loosest sound value of its kind and is listed.

#ifndef REFERENCE_ATTENTION_ARITHMETIC_H_
#define REFERENCE_ATTENTION_ARITHMETIC_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/attention/head_data.h"
#include "reference/attention/operand_cut.h"
#include "reference/spec/case.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {

// gamma_k(u) = k u / (1 - k u), infinite when k u >= 1.
double Gamma(double k, double u);

// Roundings that a term passes in a Hadamard transform of n elements by butterflies: log2 n sums;
// where sqrt(n) is no power of two, the scale's own and the product with it.
double RotationRoundings(size_t n);

// The roundings that depend on the number of visible keys.
struct KeyDepths {
  double pv = 0;        // h_pv
  double l = 0;         // h_l
  double rescales = 0;  // R
  double splits = 1;    // K
};

struct Arithmetic {
  Plan declared;
  Plan plan;                         // with every field filled
  std::vector<std::string> assumed;  // "field=value" of what was unsaid

  double u_a = 0;
  double u_qk = 0, h_qk = 0;
  double u_pv = 0, u_l = 0;
  double c_s = 0;
  double u_q = 0;               // of pre-scaled q (and k): (1 + u)^count - 1
  double eta_q = 0;             // absolute error of one pre-scaled element
  double prescale_largest = 0;  // largest finite of the type of pre-scaled q; 0 without
  double u_s = 0, eta_s = 0;    // stored scores; zero when they stay in the accumulator's type
  double u_store = 0;           // of storing what bias and softcap make of them
  double c_b = 0;
  double u_tanh = 0;
  double c_m = 0, c_shift = 0;  // c_m and c_M
  bool shift_drifts = false;    // every rescale adds the rounding of a shift
  double lambda_lazy = 0;       // Lambda
  double u_e = 0, eta_e = 0;
  // Operands that are cut. The cut of P to one part is a rounding of P, and not in cut_pv.
  ProductCut cut_qk, cut_pv;
  double u_p = 0, eta_p = 0;
  bool p_toward_zero = false;  // P is truncated
  bool p_normalised = false;   // w_j = p_j, and the division enters g
  bool final_division = true;  // a division after the sum (both when unsaid)
  bool pv_exact = false;       // P times V is exact in the accumulator
  bool l_exact = false;        // a weight enters the denominator's accumulator unrounded
  bool has_sinks = false;
  bool p_in_weights = false;   // rounded P enters numerator and denominator alike
  bool p_in_numerator = true;  // rounded P enters the numerator alone (both when unsaid)
  bool p_cut = false;          // |RN(w) - w| <= |w - 1| may be used
  MergeKind merge = MergeKind::kNone;
  double u_log = 0;
  double u_part = 0, eta_part = 0;
  bool stores_sums = false;             // partial results may be unnormalised sums
  double u_weight = 0, eta_weight = 0;  // type in which the weights of a merge are stored
  double c_d = 1;
  double c_p = 0;  // roundings of a P scale that is no power of two, in numerator and denominator
  double u_o = 0, eta_o = 0;
  double u_through = 0, eta_through = 0;  // type to which outputs are rounded first
  DType through = DType::kFloat32;
  double overflow = 0;  // magnitude from which the output type overflows
  bool saturates = false;
  double lambda = 0;     // underflow of one operation, of the coarsest type in use
  double lambda_op = 0;  // of op's type
  double lse_roundings = 1;
  double c_x = 0;                 // of bringing the shift into the units of lse
  double u_lse = 0, eta_lse = 0;  // of storing lse in a type narrower than op's
  double cap_roundings =
      2;  // of the softcap's result: constant and product; two more in log2 units
  // Affine codes: extra roundings on |c s| + |z|, and a low type after dequantizing.
  bool parts = false;
  bool factored = false;
  struct Parts {
    double c = 0;  // roundings in op's type
    double u = 0, eta = 0;
  } k_parts, v_parts;  // zero for a plain operand
  // Whether the kernel stays in the basis in which K, or V, is stored.
  bool rotates_k = false, rotates_v = false;
  // Integer q.k: roundings in op's type that bring the exact sums of a group's codes to one number;
  // 0: computed on values. Then the number of codes of q and of K.
  double c_group = 0;
  double q_codes = 0, k_codes = 0;
  // Integers in place of the query, and of weights times scales: error relative to the largest of a
  // group; 0: none.
  double fixed_q = 0, fixed_p = 0;
  double largest_code = 0;    // of K, where sums run over codes
  double v_largest_code = 0;  // of V, likewise
  double score_largest = 0;   // largest finite of the types that scores pass through
  double parts_largest = 0;   // of the type into which codes are dequantized
  double lse_largest = 0;
  double shift_units = 1;   // largest factor between a score and the shift as the kernel keeps it
  double sum_largest = 0;   // the same for P.V
  double l_largest = 0;     // and for the denominator
  double part_largest = 0;  // largest finite of stored partial outputs
  double p_largest = 0;     // from where P overflows its type, over its scale

  // What the bound needs of K and V.
  OperandDetail Detail() const { return {parts || c_group > 0, rotates_k || rotates_v}; }

  // keys: the visible ones, ascending columns of kv_len. A masked key adds exactly zero and
  // rescales by exactly one, so that it costs no rounding; but it may keep its place, so that the
  // visible keys need not fall evenly on lanes, or into as few calls of a tensor core as their
  // number says. first_column: after the row's left padding, where a kernel's blocks may begin.
  KeyDepths Depths(std::span<const int32_t> keys, int64_t kv_len, int64_t first_column = 0) const;
};

// How keys fall into the blocks of a plan.
struct KeyPlaces {
  double blocks = 1;   // that hold a key; one more where blocks may not start at column 0
  double longest = 0;  // most keys of one block
  double extent = 0;   // columns of a block
  double fullest = 0;  // most keys of one block on one of `width` lanes
  double calls = 0;    // most runs of `width` columns of one block that hold a key
};
// width: of the sum's lanes or calls. Takes the worst over kernels that leave masked keys out and
// kernels that keep their places, counted from column 0, from the first column after padding, from
// the first key or from the start of a split.
KeyPlaces PlaceKeys(std::span<const int32_t> keys, int64_t kv_len, int64_t block, int64_t range,
                    int64_t width, int64_t first_column = 0);

// Errors: kIllegalCase when the plan contradicts the case.
Arithmetic Resolve(const Plan& plan, const Profile& profile, const AttentionCase& c);

// Roundings which one term of a sum of `terms` terms passes. products_exact: products enter without
// a rounding of their own, fused or not.
double SumDepth(const SumPlan& sum, double terms, bool products_exact);
// The same for a sum over keys in blocks.
double SumDepth(const SumPlan& sum, double terms, const KeyPlaces& places, bool products_exact);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_ARITHMETIC_H_
