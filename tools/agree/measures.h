// What two distributions over the next token have in common, position by position and over all of
// them, with bootstrap intervals. Nothing is judged here.

#ifndef TOOLS_AGREE_MEASURES_H_
#define TOOLS_AGREE_MEASURES_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace kvcheck {

// log of the sum of exponentials. Precondition: not empty.
double LogSumExp(std::span<const double> logits);
// Index of the largest; the first where several are.
int64_t Top1(std::span<const double> logits);

// One position: a reference and what is compared with it.
struct PositionFigures {
  double kl = 0;  // KL(reference || other), nats, at least 0
  bool same_top1 = false;
  bool top1_known = true;  // both say which token is the most likely
  // Log-probabilities of the token that follows in the text, nats.
  double reference_log_p = 0;
  double log_p = 0;
};
// next: the token that follows. Shapes: both (vocabulary).
PositionFigures ComparePosition(std::span<const double> reference, std::span<const double> other,
                                int64_t next);

// A figure and the 2.5 % and 97.5 % quantiles of it over resampled texts.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
  bool is_known = false;  // else low = high = value
};

struct AgreementFigures {
  int64_t positions = 0;
  int64_t top1_positions = 0;  // where both say which token is the most likely
  Interval top1;               // share of these; NaN of none
  Interval kl_mean;            // nats
  Interval kl_median, kl_99;   // nats
  double kl_max = 0;
  Interval perplexity_ratio;  // other over reference
  double reference_bits = 0;  // per token of the text
};

// Positions that are resampled together: neighbours in a text are no independent draws.
inline constexpr int64_t kBootstrapBlock = 32;
inline constexpr int kBootstrapSamples = 400;

// Definition: quantile q of n sorted values is the one at index floor(q (n - 1)). Intervals:
// percentile bootstrap over blocks of kBootstrapBlock positions, kBootstrapSamples times; fewer
// than 20 blocks give none. The same in every run.
AgreementFigures Summarize(std::span<const PositionFigures> positions);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_MEASURES_H_
