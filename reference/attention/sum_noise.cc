#include "reference/attention/sum_noise.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "reference/attention/bound.h"

namespace kvcheck {
namespace {

// Roundings of a sum that are not of its n terms: of rescales and of merges.
constexpr double kSumRoundings = 20;

// out[i] = sum_j weights_j |y_ji| over the coordinates of V in its basis.
std::vector<double> SumOfCoordinates(const RowContext& context, const RowQuestion& question,
                                     std::span<const double> weights) {
  const OperandRows& v = context.head->v;
  const auto dv = static_cast<size_t>(v.dim);
  std::vector<double> sums(dv, 0);
  for (size_t j = 0; j < weights.size(); ++j) {
    const double* y = &v.in_basis[static_cast<size_t>(question.keys[j]) * dv];
    for (size_t i = 0; i < dv; ++i) sums[i] += weights[j] * y[i];
  }
  return sums;
}

// In an accumulator that cuts, or whose grid is coarse beside its addends, they are not.
bool SumsAreRandom(const Arithmetic& a) {
  const SumPlan& pv = *a.plan.pv;
  const bool cuts = pv.order == SumOrder::kTensorCore || pv.accumulator.toward_zero;
  return !cuts && a.u_pv <= UnitRoundoff(DType::kFloat32);
}

double SumOver(const RotatedBlock& block, const std::vector<double>& of) {
  double sum = 0;
  for (const size_t c : block.channels) sum += of[c];
  return sum;
}

// |a|_2 of a block.
template <typename Element>
double NormOver(const RotatedBlock& block, Element element) {
  double square = 0;
  for (const size_t c : block.channels) square += element(c) * element(c);
  return std::sqrt(square);
}

}  // namespace

bool AreAlike(std::span<const double> masses, size_t terms, double u) {
  if (masses.empty()) return false;
  const auto [least, largest] = std::minmax_element(masses.begin(), masses.end());
  return *largest - *least <= (static_cast<double>(terms) + kSumRoundings) * u * *largest;
}

double VarianceAlong(std::span<const double> w, std::span<const double> variances, bool alike) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    sum += alike ? std::fabs(w[i]) * std::sqrt(variances[i]) : w[i] * w[i] * variances[i];
  }
  return alike ? sum * sum : sum;
}

std::vector<double> DirectionOf(const std::vector<double>& w, size_t direction) {
  std::vector<double> of(w.size() / kProjectLanes);
  for (size_t c = 0; c < of.size(); ++c) of[c] = w[c * kProjectLanes + direction];
  return of;
}

SumNoise::SumNoise(const RowContext& context, const RowQuestion& question, const RowReference& row)
    : basis_(context.head->v.basis) {
  const double u = context.arithmetic->u_pv;
  const double one = (static_cast<double>(question.keys.size()) + kSumRoundings) * u * u / 3;
  if (basis_.Rotates()) {
    variance_ = SumOfCoordinates(context, question, row.p);
  } else {
    for (const ChannelReference& channel : row.channels) variance_.push_back(channel.mass);
  }
  alike_ = AreAlike(variance_, question.keys.size(), u);
  const bool is_random = !basis_.Rotates() || SumsAreRandom(*context.arithmetic);
  for (double& mass : variance_) mass *= is_random ? one * mass : 0;
}

std::vector<double> SumNoise::OfChannels() const {
  std::vector<double> of = variance_;
  for (const RotatedBlock& block : basis_.blocks) {
    // All elements of R are +-1 / sqrt N.
    const double mean = SumOver(block, variance_) / static_cast<double>(block.channels.size());
    for (const size_t c : block.channels) of[c] = mean;
  }
  return of;
}

double SumNoise::Along(std::vector<double> w) const {
  if (basis_.Rotates()) basis_.Rotate(w);
  return VarianceAlong(w, variance_, alike_);
}

BasisSlack::BasisSlack(const RowContext& context, const RowQuestion& question,
                       const RowReference& row)
    : basis_(context.head->v.basis), row_(row) {
  of_channel_.assign(row.channels.size(), 0);
  if (!basis_.Rotates()) return;
  const Arithmetic& a = *context.arithmetic;
  std::vector<double> weights = row.p;
  double rest = 1 - row.sink_error;
  for (size_t j = 0; j < weights.size(); ++j) {
    weights[j] += row.weight_error[j];
    rest -= row.weight_error[j];
  }
  double each = Gamma(a.v_parts.c, a.u_a);
  if (!SumsAreRandom(a)) each += Gamma(row.noise->truncations + kSumRoundings, a.u_pv);
  each_ = each / std::max(rest, 0x1p-53);
  back_ = Gamma(RoundingsBack(a, basis_), a.u_a);
  sums_ = SumOfCoordinates(context, question, weights);
  const double root = std::sqrt(static_cast<double>(basis_.BlockSize()));
  for (const RotatedBlock& block : basis_.blocks) {
    const double of_values = each_ * SumOver(block, sums_) / root;
    for (const size_t c : block.channels) {
      of_channel_[c] = of_values + row.channels[c].terms[kCodecTerm];
    }
  }
}

double BasisSlack::Along(std::vector<double> w) const {
  if (!basis_.Rotates()) return 0;
  double along = 0;
  for (const RotatedBlock& block : basis_.blocks) {
    const double of_w = NormOver(block, [&](size_t c) { return w[c]; });
    if (of_w == 0) continue;
    const double of_o = NormOver(block, [&](size_t c) { return row_.channels[c].value; });
    const double of_error =
        NormOver(block, [&](size_t c) { return row_.channels[c].before_output; });
    along += of_w * back_ * (of_o + of_error);
    for (const size_t c : block.channels) {
      if (w[c] != 0) along += std::fabs(w[c]) * row_.channels[c].terms[kCodecTerm];
    }
  }
  basis_.Rotate(w);
  for (size_t i = 0; i < w.size(); ++i) along += each_ * std::fabs(w[i]) * sums_[i];
  return along;
}

}  // namespace kvcheck
