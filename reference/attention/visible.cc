#include "reference/attention/visible.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

// Lowest finite value of the type in which a kernel keeps its scores, where the profile says
// `mask_value=lowest`: half types keep them in their own type, all others in f32 or f64.
double LowestScore(const AttentionCase& c) { return -FloatTypeOf(c.q).largest_finite; }

// Offset of the mask row of (batch, head, query), with broadcast axes dropped.
int64_t MaskRow(const AttentionCase& c, const QueryIndex& q) {
  switch (c.mask.axes) {
    case MaskAxes::kT:
      return 0;
    case MaskAxes::kLT:
      return q.query;
    case MaskAxes::kB1LT:
      return q.batch * c.query_len + q.query;
    case MaskAxes::kBHLT:
      return (q.batch * c.query_heads + q.query_head) * c.query_len + q.query;
    case MaskAxes::kB11T:
      return q.batch;
  }
  return 0;
}

}  // namespace

int64_t QueryPosition(const AttentionCase& c, int64_t query) {
  return c.mask.causal == CausalAlignment::kTopLeft ? query : c.kv_len - c.query_len + query;
}

MaskReader::MaskReader(const AttentionCase& c, const Profile& profile, const TensorMap& inputs)
    : case_(c), profile_(profile) {
  switch (profile.mask_value) {
    case MaskValueKind::kMinusInfinity:
      hidden_score_ = -std::numeric_limits<double>::infinity();
      break;
    case MaskValueKind::kLowest:
      hidden_score_ = LowestScore(c);
      break;
    case MaskValueKind::kNumber:
      hidden_score_ = profile.mask_number;
      break;
  }
  if (c.mask.array != MaskArrayKind::kNone) {
    const Tensor& mask = Get(inputs, "mask");
    mask_.resize(static_cast<size_t>(mask.ElementCount()));
    DecodeTo(mask, 0, mask_);
  }
  if (c.alibi) {
    const Tensor& slopes = Get(inputs, "alibi_slopes");
    alibi_slopes_.resize(static_cast<size_t>(slopes.ElementCount()));
    DecodeTo(slopes, 0, alibi_slopes_);
  }
}

std::vector<double> MaskReader::BiasOfAll(const QueryIndex& q) const {
  const AttentionCase& c = case_;
  const bool is_additive = c.mask.array == MaskArrayKind::kAdditive;
  if (!c.alibi && !is_additive) return {};
  std::vector<double> bias(static_cast<size_t>(c.kv_len), 0);
  const int64_t position = QueryPosition(c, q.query);
  const double* row = is_additive ? mask_.data() + MaskRow(c, q) * c.kv_len : nullptr;
  for (int64_t j = 0; j < c.kv_len; ++j) {
    double& of_key = bias[static_cast<size_t>(j)];
    if (c.alibi) {
      of_key = -alibi_slopes_[static_cast<size_t>(q.query_head)] *
               std::fabs(static_cast<double>(position - j));
    }
    if (is_additive && std::isfinite(row[j])) of_key += row[j];
  }
  return bias;
}

VisibleSet MaskReader::Visible(const QueryIndex& q) const {
  const AttentionCase& c = case_;
  VisibleSet set;
  set.hidden_score = hidden_score_;
  const int64_t position = QueryPosition(c, q.query);
  const int64_t padding =
      c.mask.left_padding.empty() ? 0 : c.mask.left_padding[static_cast<size_t>(q.batch)];
  const double* row = mask_.empty() ? nullptr : mask_.data() + MaskRow(c, q) * c.kv_len;
  const bool has_bias = c.alibi || c.mask.array == MaskArrayKind::kAdditive;
  set.first_column = static_cast<int32_t>(padding);
  // Without an array the keys are those of a range.
  const int64_t end = c.mask.causal == CausalAlignment::kNone
                          ? c.kv_len
                          : std::clamp<int64_t>(position + 1, 0, c.kv_len);
  // A window longer than what lies before hides nothing: no number is taken from a smaller one.
  const bool reaches = c.mask.window && *c.mask.window <= position;
  const int64_t first = std::max(padding, reaches ? position - *c.mask.window + 1 : 0);
  const bool keeps_hidden = std::isfinite(hidden_score_) || profile_.maximum_over_all;
  if (row == nullptr && !has_bias && !keeps_hidden) {
    set.keys.resize(static_cast<size_t>(std::max<int64_t>(0, end - first)));
    std::iota(set.keys.begin(), set.keys.end(), static_cast<int32_t>(first));
  }
  for (int64_t j = 0; j < c.kv_len && (row != nullptr || has_bias || keeps_hidden); ++j) {
    bool visible = j >= first && j < end;
    bool minus_infinity = false;
    double bias = 0;
    if (c.alibi) {
      bias = -alibi_slopes_[static_cast<size_t>(q.query_head)] *
             std::fabs(static_cast<double>(position - j));
    }
    if (row != nullptr && c.mask.array == MaskArrayKind::kBoolean) visible = visible && row[j] != 0;
    if (row != nullptr && c.mask.array == MaskArrayKind::kAdditive) {
      if (row[j] == -std::numeric_limits<double>::infinity()) {
        visible = false;
        minus_infinity = true;
      } else {
        bias += row[j];
      }
    }
    if (visible) {
      if (row != nullptr && c.mask.array == MaskArrayKind::kAdditive) {
        set.mask_lowest = set.keys.empty() ? row[j] : std::min(set.mask_lowest, row[j]);
        set.mask_largest = set.keys.empty() ? row[j] : std::max(set.mask_largest, row[j]);
      }
      set.keys.push_back(static_cast<int32_t>(j));
      if (has_bias) set.bias.push_back(bias);
    } else if (!minus_infinity) {
      if (std::isfinite(hidden_score_)) {
        set.hidden_keys.push_back(static_cast<int32_t>(j));
      } else if (profile_.maximum_over_all) {
        set.masked_keys.push_back(static_cast<int32_t>(j));
        if (has_bias) set.masked_bias.push_back(bias);
      }
    }
  }
  if (position < padding && position >= 0) {
    set.kind = QueryKind::kPadding;
  } else if (set.keys.empty()) {
    set.kind = QueryKind::kFullyMasked;
  }
  return set;
}

}  // namespace kvcheck
