#include "reference/attention/sensitivity.h"

#include <algorithm>
#include <cmath>

namespace kvcheck {
namespace {

// Finite channels and their tolerances, twice: two right answers differ by no more.
class Shows {
 public:
  Shows(const RowQuestion& row, const RowReference& reference)
      : v_(row.head->v), channels_(reference.channels) {}

  // Whether an output that is off by factor (v_j - o) would be told from the right one.
  bool Off(size_t key, double factor) const {
    for (size_t c = 0; c < channels_.size(); ++c) {
      const ChannelReference& channel = channels_[c];
      if (!channel.undefined && factor * std::fabs(V(key, c) - channel.value) > 2 * channel.proven_bound) {
        return true;
      }
    }
    return false;
  }

  // max over channels of |v - o| / (2 B): by less than its reciprocal no key moves anything far.
  double LargestReach() const {
    double reach = 0;
    for (const ChannelReference& channel : channels_) {
      if (channel.undefined || channel.spread == 0) continue;
      reach = std::max(reach, channel.spread / (2 * channel.proven_bound));
    }
    return reach;
  }

  // Of a row with one key: whether another key in its place would show, or nothing in its place
  // where there is no other.
  bool Replaced(const RowQuestion& row) const {
    const auto key = static_cast<size_t>(row.keys[0]);
    const auto kv_len = static_cast<size_t>(row.head->kv_len);
    for (size_t other = 0; other < kv_len; ++other) {
      if (other == key && kv_len > 1) continue;
      for (size_t c = 0; c < channels_.size(); ++c) {
        if (channels_[c].undefined) continue;
        const double difference = other == key ? V(key, c) : V(other, c) - V(key, c);
        if (std::fabs(difference) > 2 * channels_[c].proven_bound) return true;
      }
    }
    return false;
  }

 private:
  double V(size_t key, size_t c) const { return v_.hi[key * static_cast<size_t>(v_.dim) + c]; }

  const OperandRows& v_;
  const std::vector<ChannelReference>& channels_;
};

}  // namespace

RowSensitivity SensitivityOf(const RowQuestion& row, const RowReference& reference,
                             bool want_share) {
  RowSensitivity result;
  const size_t n = row.keys.size();
  if (n == 0) return result;
  const Shows shows(row, reference);
  const double reach = shows.LargestReach();
  // Without a second key, and without a sink that takes its place, the weights say nothing.
  if (n == 1 && !(reference.p[0] < 1)) {
    const bool seen = shows.Replaced(row);
    result.kind = seen ? Sensitivity::kShows : Sensitivity::kBlind;
    result.share = seen ? 1 : 0;
    return result;
  }
  result.kind = reach > 1 ? Sensitivity::kDim : Sensitivity::kBlind;
  size_t seen = 0;
  for (size_t j = 0; j < n; ++j) {
    const double rest = 1 - reference.p[j];
    // A key that has all the weight leaves the others.
    const bool seen_here =
        rest > 0 ? reference.p[j] / rest * reach > 1 &&
                       shows.Off(static_cast<size_t>(row.keys[j]), reference.p[j] / rest)
                 : reach > 1;
    if (!seen_here) continue;
    result.kind = Sensitivity::kShows;
    if (!want_share) return result;
    ++seen;
  }
  result.share = static_cast<double>(seen) / static_cast<double>(n);
  return result;
}

}  // namespace kvcheck
