// Causes by which rows of K or V hold what stands in no tensor of the case: stale ones, or never
// written.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

// A row of V that holds something else, per batch row and key/value head; a row of K that does,
// whose weight is then wrong by another factor in each row.
class StaleRows {
 public:
  explicit StaleRows(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      const SeenRow& row = causes_.rows()[r];
      groups_[{row.query.batch, row.kv_head}].push_back(r);
    }
    if (causes_.rows().size() < 2) return;
    AddK();
    AddV();
  }

 private:
  void AddK() {
    const auto n = static_cast<size_t>(problem_.kv_len);
    std::vector<double> gain(n, 0);
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      const KeySums& sums = causes_.sums()[r];
      for (size_t j = 0; j < n; ++j) {
        if (causes_.rows()[r].is_visible[j] != 0 && sums.d[j] > 0) {
          gain[j] += sums.a[j] * sums.a[j] / sums.d[j];
        }
      }
    }
    const auto key = std::max_element(gain.begin(), gain.end()) - gain.begin();
    causes_.Add(
        {"weight of a key wrong",
         fmt::format(
             "the scores of key {} are not those of the case, in each row by another factor: "
             "its row of K is stale, or was never written",
             key),
         4, static_cast<double>(causes_.rows().size()), static_cast<double>(n)},
        [&](const SeenRow& row, size_t r) -> std::optional<Mixture> {
          const auto at = static_cast<size_t>(key);
          const double d = causes_.sums()[r].d[at];
          if (row.is_visible[at] == 0 || !(d > 0)) return std::nullopt;
          const double change = causes_.sums()[r].a[at] / d * row.weight[at];
          Mixture mixture = row.Right();
          const double* v = row.Values(key);
          for (size_t c = 0; c < problem_.channels; ++c) {
            mixture.sum[c] += change * (v[c] - row.o[c]);
          }
          return mixture;
        });
  }

  // What the values of a key would have to differ by, of one group, and the gain of it.
  double Differences(const std::vector<size_t>& group, int64_t key,
                     std::vector<double>* differences) const {
    std::vector<double> square(problem_.channels, 0);
    differences->assign(problem_.channels, 0);
    for (const size_t r : group) {
      const SeenRow& row = causes_.rows()[r];
      const auto at = static_cast<size_t>(key);
      if (row.is_visible[at] == 0) continue;
      const double weight = row.weight[at];
      for (size_t c = 0; c < problem_.channels; ++c) {
        (*differences)[c] += weight * row.precision[c] * row.error[c];
        square[c] += weight * weight * row.precision[c];
      }
    }
    double gain = 0;
    for (size_t c = 0; c < problem_.channels; ++c) {
      if (!(square[c] > 0)) {
        (*differences)[c] = 0;
        continue;
      }
      gain += (*differences)[c] * (*differences)[c] / square[c];
      (*differences)[c] /= square[c];
    }
    return gain;
  }

  // What the first of the heads seems to hold, less what the case has.
  std::string DifferenceText(
      const std::map<std::pair<int64_t, int64_t>, std::vector<double>>& of) const {
    constexpr size_t kShown = 4;
    const auto& [head, differences] = *of.begin();
    double square = 0;
    for (const double difference : differences) square += difference * difference;
    std::vector<std::string> first;
    for (size_t c = 0; c < std::min(kShown, differences.size()); ++c) {
      first.push_back(fmt::format("{:+.3g}", differences[c]));
    }
    return fmt::format("off by {}{} (RMS {:.3g}) in key/value head {} of batch row {}",
                       fmt::join(first, ", "), differences.size() > kShown ? ", ..." : "",
                       std::sqrt(square / static_cast<double>(differences.size())), head.second,
                       head.first);
  }

  void AddV() {
    int64_t best = 0;
    double most = 0, second = 0;
    std::vector<double> differences;
    for (int64_t key = 0; key < problem_.kv_len; ++key) {
      double gain = 0;
      for (const auto& [index, group] : groups_) {
        if (group.size() > 1) gain += Differences(group, key, &differences);
      }
      if (gain > most) {
        second = most, most = gain, best = key;
      } else {
        second = std::max(second, gain);
      }
    }
    // Few rows do not tell keys apart, whose weights need only be in the right proportion.
    if (!(most - second > 0.01 * most)) return;
    if (most == 0) return;
    std::map<std::pair<int64_t, int64_t>, std::vector<double>> of;
    for (const auto& [index, group] : groups_) Differences(group, best, &of[index]);
    causes_.Add(
        {"V row wrong",
         fmt::format("V of key {} is not what the case holds (a stale or never written row): {}",
                     best, DifferenceText(of)),
         4, static_cast<double>(groups_.size() * problem_.channels),
         static_cast<double>(problem_.kv_len)},
        [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
          const auto at = static_cast<size_t>(best);
          if (row.is_visible[at] == 0) return std::nullopt;
          Mixture mixture = row.Right();
          const auto group = of.find({row.query.batch, row.kv_head});
          if (group == of.end()) return std::nullopt;
          const std::vector<double>& change = group->second;
          for (size_t c = 0; c < problem_.channels; ++c) {
            mixture.sum[c] += row.weight[at] * change[c];
          }
          return mixture;
        });
  }

  Causes& causes_;
  const SeenProblem& problem_;
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> groups_;  // batch row, kv head
};

}  // namespace

void AddCausesOfStaleRows(Causes* causes) { StaleRows(causes).Run(); }

}  // namespace kvcheck
