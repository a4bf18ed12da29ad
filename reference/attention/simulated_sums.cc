#include "reference/attention/simulated_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention/simulated_arithmetic.h"
#include "reference/numerics/convert.h"
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
double TensorCoreCall(DType dtype, double accumulator, std::span<const double> products,
                      int aligned_bits) {
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
  if (dtype == DType::kFloat32) return RoundTowardZeroToF32(sum * quantum);
  return RoundTo(dtype, sum * quantum, {.rounding = Rounding::kTowardZero});
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
      accumulator = TensorCoreCall(sum.accumulator.dtype, accumulator,
                                   std::span(products).first(count), sum.aligned_bits);
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
          state[c] = TensorCoreCall(sum_.accumulator.dtype, state[c],
                                    std::span(products).first(count), sum_.aligned_bits);
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
    if (flush) return body(Ops<R, true>());
    return body(Ops<R, false>());
  };
  const bool rz = type.toward_zero;
  switch (type.dtype) {
    case DType::kFloat64:
      return with(RoundF64());
    case DType::kFloat32:
      if (rz) return with(RoundNarrow<NarrowF32, true>());
      return with(RoundNarrow<NarrowF32, false>());
    case DType::kBFloat16:
      if (rz) return with(RoundNarrow<NarrowBF16, true>());
      return with(RoundNarrow<NarrowBF16, false>());
    case DType::kFloat16:
      if (rz) return with(RoundNarrow<NarrowF16, true>());
      return with(RoundNarrow<NarrowF16, false>());
    default:
      throw Error(ErrorCode::kUnsupported,
                  "a simulated kernel accumulates in f64, f32, bf16 or f16");
  }
}

// Rows of codes, scales and biases: per group of channels a sum of codes under the weights times
// the scales, and a sum of the weights times the biases.
template <typename O>
class FactoredAccumulator : public RowAccumulator {
 public:
  FactoredAccumulator(const SumPlan& sum, bool flush, double fixed_error, size_t width,
                      size_t group)
      : fixed_error_(fixed_error), width_(width), group_(group) {
    for (size_t g = 0; g < width / group; ++g) {
      codes_.push_back(MakeAccumulator(sum, flush, group));
      biases_.push_back(MakeAccumulator(sum, flush, 1));
    }
  }
  void Rescale(double factor) override {
    for (auto& sum : codes_) sum->Rescale(factor);
    for (auto& sum : biases_) sum->Rescale(factor);
  }
  void AddConstant(double) override { KVCHECK_CHECK(false, "a sink has no value"); }
  void AddBlock(std::span<const double> weights, std::span<const double* const> rows) override {
    static const double kOne = 1;
    const size_t n = weights.size();
    const size_t groups = codes_.size();
    std::vector<double> scaled(n), biased(n);
    std::vector<const double*> codes(n);
    const std::vector<const double*> ones(n, &kOne);
    for (size_t g = 0; g < groups; ++g) {
      for (size_t j = 0; j < n; ++j) {
        codes[j] = rows[j] + g * group_;
        scaled[j] = O::Mul(weights[j], rows[j][width_ + g]);
        biased[j] = O::Mul(weights[j], rows[j][width_ + groups + g]);
      }
      RoundToSteps(fixed_error_, scaled);
      codes_[g]->AddBlock(scaled, codes);
      biases_[g]->AddBlock(biased, ones);
    }
  }
  std::vector<double> Finish() override {
    std::vector<double> out(width_);
    for (size_t g = 0; g < codes_.size(); ++g) {
      const std::vector<double> codes = codes_[g]->Finish();
      const double bias = biases_[g]->Finish()[0];
      for (size_t i = 0; i < group_; ++i) out[g * group_ + i] = O::Add(codes[i], bias);
    }
    return out;
  }

 private:
  double fixed_error_;
  size_t width_;
  size_t group_;
  std::vector<std::unique_ptr<RowAccumulator>> codes_, biases_;
};

}  // namespace

void RoundToSteps(double error, std::span<double> x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::fabs(value));
  if (error == 0 || !(largest > 0) || !std::isfinite(largest)) return;
  const double step = std::exp2(std::floor(std::log2(2 * error * largest)));
  if (!(step > 0)) return;  // so small that no step is
  for (double& value : x) value = std::nearbyint(value / step) * step;
}

double FactoredDot(const SumPlan& sum, const RoundedType& op, bool flush, int64_t group,
                   std::span<const double> a, const double* b) {
  const auto size = static_cast<size_t>(group);
  const size_t groups = a.size() / size;
  const double* scales = b + a.size();
  const double* biases = scales + groups;
  const std::vector<double> ones(size, 1.0);
  return WithOps(op, flush, [&](auto ops) {
    using O = decltype(ops);
    double total = 0;
    for (size_t g = 0; g < groups; ++g) {
      const auto part = a.subspan(g * size, size);
      const double codes = Dot(sum, flush, part, {b + g * size, size});
      total = O::Add(total, O::Mul(codes, scales[g]));
      total = O::Add(total, O::Mul(Dot(sum, flush, part, ones), biases[g]));
    }
    return total;
  });
}

double IntegerDot(const SumPlan& sum, const RoundedType& op, bool flush, size_t d, size_t a_group,
                  const double* a, size_t b_group, const double* b) {
  const size_t run = std::min(a_group, b_group);
  std::vector<double> runs;
  for (size_t first = 0; first < d; first += run) {
    double products = 0, a_codes = 0, b_codes = 0;  // exact, as CodeGrid says
    for (size_t i = first; i < first + run; ++i) {
      products += a[i] * b[i], a_codes += a[i], b_codes += b[i];
    }
    const double a_scale = a[d + first / a_group], a_bias = a[d + d / a_group + first / a_group];
    const double b_scale = b[d + first / b_group], b_bias = b[d + d / b_group + first / b_group];
    runs.push_back(WithOps(op, flush, [&](auto ops) {
      using O = decltype(ops);
      const auto part = [](double x, double y, double codes) {
        return O::Mul(O::Mul(O::Flush(x), O::Flush(y)), codes);
      };
      const double codes = O::Add(part(a_scale, b_scale, products), part(a_scale, b_bias, a_codes));
      return O::Add(O::Add(codes, part(a_bias, b_scale, b_codes)),
                    part(a_bias, b_bias, static_cast<double>(run)));
    }));
  }
  return Dot(sum, flush, runs, std::vector<double>(runs.size(), 1.0));
}

std::unique_ptr<RowAccumulator> MakeFactoredAccumulator(const SumPlan& sum, const RoundedType& op,
                                                        bool flush, double fixed_error,
                                                        size_t width, size_t group) {
  return WithOps(op, flush, [&](auto ops) -> std::unique_ptr<RowAccumulator> {
    return std::make_unique<FactoredAccumulator<decltype(ops)>>(sum, flush, fixed_error, width,
                                                                group);
  });
}

double Dot(const SumPlan& sum, bool flush, std::span<const double> a, std::span<const double> b) {
  return WithOps(sum.accumulator, flush, [&](auto ops) { return DotOf<decltype(ops)>(sum, a, b); });
}

std::unique_ptr<RowAccumulator> MakeAccumulator(const SumPlan& sum, bool flush, size_t width) {
  return WithOps(sum.accumulator, flush, [&](auto ops) -> std::unique_ptr<RowAccumulator> {
    return std::make_unique<Accumulator<decltype(ops)>>(sum, width);
  });
}

}  // namespace kvcheck::simulated
