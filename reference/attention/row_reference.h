// Value, bound and the reference's own error of one query: the definition at one step of the
// precision ladder, with the tolerance that the plan derives (bound.md).

#ifndef REFERENCE_ATTENTION_ROW_REFERENCE_H_
#define REFERENCE_ATTENTION_ROW_REFERENCE_H_

#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "reference/attention/arithmetic.h"
#include "reference/attention/bound.h"
#include "reference/attention/definition.h"
#include "reference/attention/noise.h"
#include "reference/attention/visible.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// Everything that rows of one case share.
struct RowContext {
  const AttentionCase* c = nullptr;
  const Arithmetic* arithmetic = nullptr;
  Profile profile;
  const HeadData* head = nullptr;
  std::span<const double> q;  // (Dk)
  bool has_sink = false;
  double sink = 0;
  double next_sink = 0;     // of the next head
  bool noise = false;       // bounds under the model of independent roundings (noise.h)
  bool statistics = false;  // RowReference::noise is wanted

  // A logit of -inf has no weight: no sink.
  bool SeesSink() const { return has_sink && sink != -std::numeric_limits<double>::infinity(); }
};

// The question of one query, with storage for what it refers to.
struct OwnedQuestion {
  RowQuestion question;
  std::vector<int32_t> keys;
  std::vector<double> bias;
  std::vector<double> forced_score;
  bool all_forced = false;  // every key has the same forced score
  // Every key is hidden by a large finite number in the mask array: the row is fully masked in all
  // but name.
  bool hidden_by_number = false;
  double hidden_score = 0;  // of keys that a finite mask value hides; 0: there are none
  // Where q.k is computed in integers, per channel: bounds of |encoded q - q| and of the sum of the
  // parts |c s| + |z| of the query's code, or of its size. Empty otherwise.
  std::vector<double> q_error, q_parts;
  // Where the query is rotated into the basis of K, per block: bound of the 2-norm of what it is
  // off by, times |scale|. q_parts are then bounds of its coordinates, and q_error stays empty.
  std::vector<double> q_block_error;
  double q_rotation_largest = 0;  // most that a sum of its rotation comes to
  // Keys that take part in the maximum alone (profile maximum=all), and their bias.
  std::vector<int32_t> masked_keys;
  std::vector<double> masked_bias;
};

// How a query is judged before anything is computed.
enum class RowKind {
  kEvaluate,       // softmax over keys
  kZero,           // the result is exactly zero (no key: profile masked_row=zero, or a sink alone)
  kNan,            // profile masked_row=nan
  kUnconstrained,  // padding query, or profile masked_row=any
  kUndefined,      // a sink alone that is not a number
};

// keys and bias of `set`, completed by the profile (hidden keys of a finite mask value, the mean of
// a fully masked row).
RowKind MakeQuestion(const RowContext& context, const VisibleSet& set, OwnedQuestion* out);

struct ChannelReference {
  double value = 0;
  double value_lo = 0;
  double bound = 0;
  double proven_bound = 0;  // where noise made `bound` smaller; otherwise the same
  double before_output = 0;
  double reference_bound = 0;
  double mass = 0;
  double spread = 0;  // max |v - value| over the keys, and the sink's 0
  std::array<double, kBoundTerms> terms{};
  bool undefined = false;  // a value of V here is not finite
};

struct RowReference {
  bool finite = true;      // false: a score is not finite
  bool unbounded = false;  // in all channels the range may overflow, or a gamma is infinite
  std::string_view why;
  bool may_overflow = false;  // what is not finite is the plan's own overflow
  std::vector<ChannelReference> channels;
  double lse = 0;
  double lse_lo = 0;
  double lse_bound = 0;
  double lse_reference_bound = 0;
  // In double, for the statistics.
  std::vector<double> s, e, p;
  std::vector<double> weight_error;  // p_j rho_j: scores and exp, without the rounding of P
  double sink_error = 0;             // the same of the sink
  double sink_p = 0;                 // its weight
  double denominator_error = 0;      // relative
  std::optional<RowNoise> noise;     // where it is asked for
  double max = 0;
  double denominator = 1;
};

RowReference ComputeRow(const RowContext& context, const OwnedQuestion& owned, Precision precision);

// Log-sum-exp of a query that sees its sink alone, and its bound, in the units of the case.
struct SinkLse {
  double value = 0;
  double bound = 0;
  bool unbounded = false;  // the sink's score may overflow, and then nothing is left of the row
};
SinkLse ComputeSinkLse(const RowContext& context);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_ROW_REFERENCE_H_
