#include "tools/agree/measures.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace kvcheck {
namespace {

// With fewer than 1 / 0.05 blocks their resamples say nothing of the tails of 95 %.
constexpr int64_t kFewestBlocks = 20;

// The figures of one text, in the order of Interval members below.
struct Values {
  double top1 = 0, kl_mean = 0, kl_median = 0, kl_99 = 0, ratio = 1;
};

double Quantile(std::vector<double>* values, double q) {
  const auto at = static_cast<ptrdiff_t>(q * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(), values->begin() + at, values->end());
  return (*values)[static_cast<size_t>(at)];
}

Values ValuesOf(std::span<const PositionFigures> positions, std::span<const int64_t> blocks,
                std::vector<double>* kl) {
  Values values;
  double log_ratio = 0;
  double known = 0;
  kl->clear();
  for (const int64_t block : blocks) {
    const auto first = static_cast<size_t>(block * kBootstrapBlock);
    const size_t end = std::min(positions.size(), first + static_cast<size_t>(kBootstrapBlock));
    for (size_t i = first; i < end; ++i) {
      const PositionFigures& p = positions[i];
      values.top1 += p.same_top1 && p.top1_known ? 1 : 0;
      known += p.top1_known ? 1 : 0;
      values.kl_mean += p.kl;
      log_ratio += p.reference_log_p - p.log_p;
      kl->push_back(p.kl);
    }
  }
  const auto n = static_cast<double>(kl->size());
  values.top1 /= known;
  values.kl_mean /= n;
  values.ratio = std::exp(log_ratio / n);
  values.kl_median = Quantile(kl, 0.5);
  values.kl_99 = Quantile(kl, 0.99);
  return values;
}

}  // namespace

double LogSumExp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

int64_t Top1(std::span<const double> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

PositionFigures ComparePosition(std::span<const double> reference, std::span<const double> other,
                                int64_t next) {
  const double reference_sum = LogSumExp(reference);
  const double other_sum = LogSumExp(other);
  PositionFigures figures;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_sum;
    const double p = std::exp(log_p);
    // Where p is 0 in double the term is, whatever the other says.
    if (p > 0) figures.kl += p * (log_p - (other[i] - other_sum));
  }
  // Both are normalized here, so that rounding alone makes it negative. NaN stays: it is no
  // agreement.
  if (figures.kl < 0) figures.kl = 0;
  figures.same_top1 = Top1(reference) == Top1(other);
  figures.reference_log_p = reference[static_cast<size_t>(next)] - reference_sum;
  figures.log_p = other[static_cast<size_t>(next)] - other_sum;
  return figures;
}

AgreementFigures Summarize(std::span<const PositionFigures> positions) {
  AgreementFigures figures;
  figures.positions = static_cast<int64_t>(positions.size());
  if (positions.empty()) return figures;
  const int64_t blocks = (figures.positions + kBootstrapBlock - 1) / kBootstrapBlock;
  std::vector<int64_t> chosen(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < blocks; ++i) chosen[static_cast<size_t>(i)] = i;
  std::vector<double> kl;
  const Values all = ValuesOf(positions, chosen, &kl);
  for (const PositionFigures& p : positions) {
    figures.kl_max = std::max(figures.kl_max, p.kl);
    figures.top1_positions += p.top1_known ? 1 : 0;
    figures.reference_bits -= p.reference_log_p / std::numbers::ln2;
  }
  figures.reference_bits /= static_cast<double>(figures.positions);

  std::vector<Values> samples;
  std::mt19937_64 random(1);
  for (int sample = 0; blocks >= kFewestBlocks && sample < kBootstrapSamples; ++sample) {
    for (int64_t& block : chosen) {
      block = static_cast<int64_t>(random() % static_cast<uint64_t>(blocks));
    }
    samples.push_back(ValuesOf(positions, chosen, &kl));
  }
  const auto interval = [&](double Values::* member) {
    Interval result = {all.*member, all.*member, all.*member};
    std::vector<double> values;
    // A sample without a position that says it has no such figure.
    for (const Values& sample : samples) {
      if (!std::isnan(sample.*member)) values.push_back(sample.*member);
    }
    if (values.empty()) return result;
    result.is_known = true;
    result.low = Quantile(&values, 0.025);
    result.high = Quantile(&values, 0.975);
    return result;
  };
  figures.top1 = interval(&Values::top1);
  figures.kl_mean = interval(&Values::kl_mean);
  figures.kl_median = interval(&Values::kl_median);
  figures.kl_99 = interval(&Values::kl_99);
  figures.perplexity_ratio = interval(&Values::ratio);
  return figures;
}

}  // namespace kvcheck
