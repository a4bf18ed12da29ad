// A plan resolved into the numbers of bound.md, section 1: unit roundoffs, depths and counts, for
// one case. What the plan leaves unsaid takes the loosest sound value of its kind and is listed.

#ifndef REFERENCE_ATTENTION_ARITHMETIC_H_
#define REFERENCE_ATTENTION_ARITHMETIC_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {

// gamma_k(u) = k u / (1 - k u), infinite when k u >= 1.
double Gamma(double k, double u);

// The roundings that depend on the number of visible keys.
struct KeyDepths {
  double pv = 0;         // h_pv
  double l = 0;          // h_l
  double rescales = 0;   // R
  double splits = 1;     // K
};

struct Arithmetic {
  Plan plan;  // with every field filled
  std::vector<std::string> assumed;  // "field=value" of what was unsaid

  double u_a = 0;
  double u_qk = 0, h_qk = 0;
  double u_pv = 0, u_l = 0;
  double c_s = 0;
  double u_q = 0;    // of pre-scaled q (and k): (1 + u)^count - 1
  double eta_q = 0;  // absolute error of one pre-scaled element
  double u_s = 0, eta_s = 0;  // stored scores; zero when they stay in the accumulator's type
  double u_b = 0;             // operations on kept scores: bias, softcap
  double c_b = 0;
  double u_tanh = 0;
  double c_m = 0, c_shift = 0;  // c_m and c_M
  double lambda_lazy = 0;       // Lambda
  double u_e = 0, eta_e = 0;
  double u_p = 0, eta_p = 0;
  bool p_normalised = false;     // w_j = p_j, and the division enters g
  bool final_division = true;    // a division after the sum (both when unsaid)
  bool pv_exact = false;         // P times V is exact in the accumulator
  bool has_sinks = false;
  bool p_in_weights = false;     // rounded P enters numerator and denominator alike
  bool p_in_numerator = true;    // rounded P enters the numerator alone (both when unsaid)
  bool p_cut = false;            // |RN(w) - w| <= |w - 1| may be used
  MergeKind merge = MergeKind::kNone;
  double u_log = 0;
  double u_part = 0, eta_part = 0;
  double c_d = 1;
  double u_o = 0, eta_o = 0;
  double overflow = 0;  // magnitude from which the output type overflows
  bool saturates = false;
  double lambda = 0;    // underflow of one operation
  double lse_roundings = 1;
  // Affine codes: extra roundings on |c s| + |z|, and a low type after dequantizing.
  bool parts = false;
  double c_parts = 0;
  double u_parts = 0, eta_parts = 0;
  bool factored = false;
  double score_largest = 0;  // largest finite of the types that scores pass through
  double sum_largest = 0;    // the same for the sums over keys
  double p_largest = 0;            // largest finite of P's type over its scale

  // visible_keys: of kv_len; touched_blocks: blocks of the plan that hold a visible key (a masked key
  // adds exactly zero and rescales by exactly one, so other blocks cost nothing).
  KeyDepths Depths(int64_t visible_keys, int64_t touched_blocks, int64_t kv_len) const;
  // Blocks of the plan touched by ascending keys; one more where the kernel's blocks may not start
  // at column 0.
  int64_t TouchedBlocks(std::span<const int32_t> keys) const;
};

// Errors: kIllegalCase when the plan contradicts the case.
Arithmetic Resolve(const Plan& plan, const Profile& profile, const AttentionCase& c);

// Roundings which one term of a sum passes: `terms` terms in `blocks` runs of at most `run` terms
// each. products_exact: products enter without a rounding of their own, fused or not.
double SumDepth(const SumPlan& sum, double terms, double run, double blocks, bool products_exact);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_ARITHMETIC_H_
