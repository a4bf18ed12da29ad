// From a mask and a profile to what one query sees: its visible keys, and what is added to their
// scores. The masks' meaning is stated in reference/spec/mask.h; here it is computed, per query,
// slowly and obviously.

#ifndef REFERENCE_ATTENTION_VISIBLE_H_
#define REFERENCE_ATTENTION_VISIBLE_H_

#include <cstdint>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// A key whose score lies this far below the maximum weighs less than the smallest double.
inline constexpr double kVanishes = 800;

// One query of a case.
struct QueryIndex {
  int64_t batch = 0;
  int64_t query_head = 0;
  int64_t query = 0;  // of L
};

enum class QueryKind {
  kOrdinary,
  kPadding,      // the query of a padding token: nothing is promised
  kFullyMasked,  // sees no key: the profile's masked_row applies
};

struct VisibleSet {
  QueryKind kind = QueryKind::kOrdinary;
  std::vector<int32_t> keys;  // ascending columns of T
  std::vector<double> bias;   // per visible key: ALiBi plus additive mask; empty when all are zero
  // Keys which a finite mask value hides (profile mask_value): they stay in the sum with that
  // score. Not those whose additive mask is -inf, which is a weight of zero under any profile.
  std::vector<int32_t> hidden_keys;
  // Keys that only the maximum sees (profile maximum=all): masked, but neither by a finite value
  // nor by -inf in an additive mask, which stand in the maximum themselves.
  std::vector<int32_t> masked_keys;
  std::vector<double> masked_bias;  // like bias
  double hidden_score = 0;
  // Of an additive mask over the visible keys.
  double mask_lowest = 0;
  double mask_largest = 0;
  int32_t first_column = 0;  // after the row's left padding
};

// The mask array of the case widened once, so that a query's row of it is contiguous.
class MaskReader {
 public:
  // inputs: checked against the case. Holds a reference to neither.
  MaskReader(const AttentionCase& c, const Profile& profile, const TensorMap& inputs);

  VisibleSet Visible(const QueryIndex& query) const;
  // What is added to the score of every key, or would be if the query saw it: 0 in place of -inf.
  // Shape: (T); empty: nothing is added.
  std::vector<double> BiasOfAll(const QueryIndex& query) const;

 private:
  AttentionCase case_;
  Profile profile_;
  double hidden_score_ = 0;
  std::vector<double> mask_;          // widened additive values, or 0 / 1
  std::vector<double> alibi_slopes_;  // per query head
};

// Position of query l on the axis of keys under the alignment of the mask.
int64_t QueryPosition(const AttentionCase& c, int64_t query);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_VISIBLE_H_
