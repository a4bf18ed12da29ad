#include "reference/attention/simulated_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention/simulated_arithmetic.h"
#include "reference/spec/error.h"

namespace kvcheck::simulated {
namespace {

template <typename O>
double PairwiseSum(std::span<const double> terms) {
  if (terms.size() == 1) return terms[0];
  const size_t half = (terms.size() + 1) / 2;
  return O::Add(PairwiseSum<O>(terms.first(half)), PairwiseSum<O>(terms.subspan(half)));
}

// One step of a tensor core: the accumulator and k products, cut at 2^-f of the largest, added
// exactly, cut again to the accumulator's type.
double TensorCoreCall(double accumulator, std::span<const double> products, int aligned_bits) {
  double largest = std::fabs(accumulator);
  for (double product : products) largest = std::max(largest, std::fabs(product));
  if (largest == 0 || !std::isfinite(largest)) {
    for (double product : products) accumulator += product;
    return accumulator;
  }
  const double quantum = std::ldexp(1.0, std::ilogb(largest) - aligned_bits);
  const double inverse = 1 / quantum;
  double sum = std::trunc(accumulator * inverse);
  for (double product : products) sum += std::trunc(product * inverse);
  return RoundTowardZeroToF32(sum * quantum);
}

template <typename O>
double DotOf(const SumPlan& sum, std::span<const double> a, std::span<const double> b) {
  const size_t n = a.size();
  if (sum.order == SumOrder::kTensorCore) {
    const auto k = static_cast<size_t>(sum.width);
    std::vector<double> products(k);
    double accumulator = 0;
    for (size_t i = 0; i < n; i += k) {
      const size_t count = std::min(k, n - i);
      for (size_t j = 0; j < count; ++j) products[j] = a[i + j] * b[i + j];
      accumulator = TensorCoreCall(accumulator, std::span(products).first(count), sum.aligned_bits);
    }
    return accumulator;
  }
  if (sum.order == SumOrder::kPairwise) {
    std::vector<double> products(n);
    for (size_t i = 0; i < n; ++i) products[i] = O::Mul(a[i], b[i]);
    return PairwiseSum<O>(products);
  }
  const size_t lanes =
      sum.order == SumOrder::kLanes ? std::min<size_t>(static_cast<size_t>(sum.width), n) : 1;
  std::vector<double> partial(lanes, 0.0);
  if (sum.fma) {
    for (size_t i = 0; i < n; ++i) partial[i % lanes] = O::Fma(a[i], b[i], partial[i % lanes]);
  } else {
    for (size_t i = 0; i < n; ++i) {
      partial[i % lanes] = O::Add(partial[i % lanes], O::Mul(a[i], b[i]));
    }
  }
  return PairwiseSum<O>(partial);
}

template <typename O>
class Accumulator : public RowAccumulator {
 public:
  Accumulator(const SumPlan& sum, size_t width)
      : sum_(sum),
        width_(width),
        lanes_(sum.order == SumOrder::kLanes ? static_cast<size_t>(sum.width) : 1),
        state_((sum.chained ? lanes_ : 1) * width, 0.0) {}

  void Rescale(double factor) override {
    if (factor == 1) return;
    for (double& value : state_) value = O::Mul(value, factor);
  }

  void AddConstant(double value) override {
    for (size_t c = 0; c < width_; ++c) state_[c] = O::Add(state_[c], value);
  }

  void AddBlock(std::span<const double> weights, std::span<const double* const> rows) override {
    if (sum_.chained && sum_.order != SumOrder::kPairwise) {
      Run(weights, rows, lanes_, state_.data());
      return;
    }
    const size_t lanes = std::min(lanes_, weights.size());
    std::vector<double> block(lanes * width_, 0.0);
    if (sum_.order == SumOrder::kPairwise) {
      Pairwise(weights, rows, block.data());
    } else {
      Run(weights, rows, lanes, block.data());
    }
    Reduce(&block, lanes);
    for (size_t c = 0; c < width_; ++c) state_[c] = O::Add(state_[c], block[c]);
  }

  std::vector<double> Finish() override {
    if (sum_.chained) Reduce(&state_, lanes_);
    state_.resize(width_);
    return state_;
  }

 private:
  void Run(std::span<const double> weights, std::span<const double* const> rows, size_t lanes,
           double* state) {
    const size_t n = weights.size();
    if (sum_.order == SumOrder::kTensorCore) {
      const auto k = static_cast<size_t>(sum_.width);
      std::vector<double> products(k);
      for (size_t i = 0; i < n; i += k) {
        const size_t count = std::min(k, n - i);
        for (size_t c = 0; c < width_; ++c) {
          for (size_t j = 0; j < count; ++j) products[j] = weights[i + j] * rows[i + j][c];
          state[c] = TensorCoreCall(state[c], std::span(products).first(count), sum_.aligned_bits);
        }
      }
      return;
    }
    for (size_t j = 0; j < n; ++j) {
      double* lane = state + j % lanes * width_;
      const double* row = rows[j];
      const double weight = weights[j];
      if (sum_.fma) {
        for (size_t c = 0; c < width_; ++c) lane[c] = O::Fma(weight, row[c], lane[c]);
      } else {
        for (size_t c = 0; c < width_; ++c) lane[c] = O::Add(lane[c], O::Mul(weight, row[c]));
      }
    }
  }

  void Pairwise(std::span<const double> weights, std::span<const double* const> rows,
                double* block) {
    std::vector<double> products(weights.size());
    for (size_t c = 0; c < width_; ++c) {
      for (size_t j = 0; j < weights.size(); ++j) products[j] = O::Mul(weights[j], rows[j][c]);
      block[c] = PairwiseSum<O>(products);
    }
  }

  // Adds the lanes up as a balanced tree into the first.
  void Reduce(std::vector<double>* state, size_t lanes) {
    std::vector<double> column(lanes);
    for (size_t c = 0; c < width_; ++c) {
      for (size_t lane = 0; lane < lanes; ++lane) column[lane] = (*state)[lane * width_ + c];
      (*state)[c] = PairwiseSum<O>(column);
    }
  }

  SumPlan sum_;
  size_t width_;
  size_t lanes_;
  std::vector<double> state_;
};

// Calls body(Ops type) for the accumulator's type.
template <typename Body>
auto WithOps(const RoundedType& type, bool flush, const Body& body) {
  const auto with = [&](auto round) {
    using R = decltype(round);
    return flush ? body(Ops<R, true>()) : body(Ops<R, false>());
  };
  const bool rz = type.toward_zero;
  switch (type.dtype) {
    case DType::kFloat64: return with(RoundF64());
    case DType::kFloat32:
      return rz ? with(RoundNarrow<NarrowF32, true>()) : with(RoundNarrow<NarrowF32, false>());
    case DType::kBFloat16:
      return rz ? with(RoundNarrow<NarrowBF16, true>()) : with(RoundNarrow<NarrowBF16, false>());
    case DType::kFloat16:
      return rz ? with(RoundNarrow<NarrowF16, true>()) : with(RoundNarrow<NarrowF16, false>());
    default:
      throw Error(ErrorCode::kUnsupported, "a simulated kernel accumulates in f64, f32, bf16 or f16");
  }
}

}  // namespace

double Dot(const SumPlan& sum, bool flush, std::span<const double> a, std::span<const double> b) {
  return WithOps(sum.accumulator, flush,
                 [&](auto ops) { return DotOf<decltype(ops)>(sum, a, b); });
}

std::unique_ptr<RowAccumulator> MakeAccumulator(const SumPlan& sum, bool flush, size_t width) {
  return WithOps(sum.accumulator, flush, [&](auto ops) -> std::unique_ptr<RowAccumulator> {
    return std::make_unique<Accumulator<decltype(ops)>>(sum, width);
  });
}

}  // namespace kvcheck::simulated
