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
  for (double& mass : variance_) mass *= one * mass;
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
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += w[i] * w[i] * variance_[i];
  return sum;
}

BasisSlack SlackOfBasis(const RowContext& context, const RowQuestion& question,
                        const RowReference& row, const std::vector<double>& w) {
  const StoredBasis& basis = context.head->v.basis;
  BasisSlack slack;
  slack.of_channel.assign(row.channels.size(), 0);
  if (!basis.Rotates()) return slack;
  const Arithmetic& a = *context.arithmetic;
  std::vector<double> weights = row.p;
  double rest = 1 - row.sink_error;
  for (size_t j = 0; j < weights.size(); ++j) {
    weights[j] += row.weight_error[j];
    rest -= row.weight_error[j];
  }
  const double decoded = Gamma(a.v_parts.c, a.u_a) / std::max(rest, 0x1p-53);
  const double back = Gamma(RoundingsBack(a, basis), a.u_a);
  const std::vector<double> sums = SumOfCoordinates(context, question, weights);
  const double root = std::sqrt(static_cast<double>(basis.BlockSize()));
  for (const RotatedBlock& block : basis.blocks) {
    const double of_values = decoded * SumOver(block, sums) / root;
    for (const size_t c : block.channels) {
      slack.of_channel[c] = of_values + row.channels[c].terms[kCodecTerm];
    }
  }
  for (size_t d = 0; d < kProjectLanes; ++d) {
    std::vector<double> column = DirectionOf(w, d);
    double& along = slack.along[d];
    for (const RotatedBlock& block : basis.blocks) {
      const double of_w = NormOver(block, [&](size_t c) { return column[c]; });
      if (of_w == 0) continue;
      const double of_o = NormOver(block, [&](size_t c) { return row.channels[c].value; });
      const double of_error =
          NormOver(block, [&](size_t c) { return row.channels[c].before_output; });
      along += of_w * back * (of_o + of_error);
      for (const size_t c : block.channels) {
        if (column[c] != 0) along += std::fabs(column[c]) * row.channels[c].terms[kCodecTerm];
      }
    }
    basis.Rotate(column);
    for (size_t i = 0; i < column.size(); ++i) along += decoded * std::fabs(column[i]) * sums[i];
  }
  return slack;
}

}  // namespace kvcheck
