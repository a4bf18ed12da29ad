#include "reference/model/steps.h"

#include <algorithm>
#include <cmath>

#include "reference/numerics/convert.h"
#include "reference/numerics/exp.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr double kU = 0x1p-53;
// The slope of silu is largest at 2.3994: 1.09984.
constexpr double kSiluSlope = 1.1;

double Gamma(double k, double u) {
  const double product = k * u;
  return product < 1 ? product / (1 - product) : HUGE_VAL;
}

// Relative error of a product of factors 1 + a and 1 + b.
double Both(double a, double b) { return a + b + a * b; }

std::vector<double> Vector(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

// A matrix with its error, element by element.
struct Inexact {
  Matrix value, error;
};

// bound.md, section 2: relative error of RMSNorm of exact inputs.
double NormError(const DecoderArithmetic& a, int64_t n) {
  const double sum = Gamma(static_cast<double>(n) + 3, a.u_norm_sum);
  return Both(sum / 2 / (1 - sum), Gamma(4, a.u));
}

Inexact Norm(const Matrix& x, const std::vector<double>& weight, double eps,
             const DecoderArithmetic* declared) {
  Inexact y{Matrix(x.rows, x.columns), {}};
  const double relative = declared == nullptr ? 0 : NormError(*declared, x.columns);
  if (declared != nullptr) y.error = Matrix(x.rows, x.columns);
  for (int64_t r = 0; r < x.rows; ++r) {
    const double* from = x.Row(r);
    double sum = 0;
    for (int64_t i = 0; i < x.columns; ++i) sum += from[i] * from[i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.columns) + eps);
    for (int64_t i = 0; i < x.columns; ++i) {
      const double value = from[i] * scale * weight[static_cast<size_t>(i)];
      y.value.Row(r)[i] = value;
      if (declared != nullptr) y.error.Row(r)[i] = relative * std::fabs(value);
    }
  }
  return y;
}

// W (x + error): value, error, and the sum of magnitudes.
struct Product {
  Matrix value, error, mass;
};

// bound.md, section 2: |W| (e + gamma_h (|x| + e)).
Product Apply(const Matrix& x, const Matrix* error, const Linear& linear,
              const DecoderArithmetic* declared) {
  Product y;
  y.value = Multiply(x, linear);
  if (declared == nullptr) return y;
  const double gamma = Gamma(declared->Depth(linear.in), declared->u);
  Matrix magnitude = x;
  for (double& value : magnitude.values) value = std::fabs(value);
  y.mass = MultiplyMagnitudes(magnitude, linear);
  if (error == nullptr) {
    y.error = y.mass;
    for (double& value : y.error.values) value *= gamma;
    return y;
  }
  for (size_t i = 0; i < magnitude.values.size(); ++i) {
    const double e = error->values[i];
    magnitude.values[i] = e + gamma * (magnitude.values[i] + e);
  }
  y.error = MultiplyMagnitudes(magnitude, linear);
  return y;
}

// How much smaller every rounding error of the reference is than the declared one of the same
// place: bounds are sums of products with at least one such factor each, so they shrink as much.
double OwnShare(const DecoderArithmetic& declared, int64_t longest_sum) {
  const DecoderArithmetic own = ReferenceArithmetic();
  const double sums =
      Gamma(own.Depth(longest_sum), own.u) / Gamma(declared.Depth(longest_sum), declared.u);
  const double norm = NormError(own, longest_sum) / NormError(declared, longest_sum);
  const double roundings =
      own.u * (own.silu_roundings + own.exp_error / own.u) / (declared.u * declared.silu_roundings);
  return std::max({sums, norm, roundings, own.u / declared.u});
}

void SetOwn(StepValues* step, double share) {
  step->own = step->bound;
  for (double& value : step->own.values) value *= share;
}

StepValues ValueAlone(Matrix value) { return {std::move(value), {}, {}, {}}; }

// Rotates the halves of every head; bound.md, section 2.
StepValues Rotate(Product x, int64_t head_dim, std::span<const RopeAngles> rows,
                  const DecoderArithmetic* declared) {
  const int64_t half = head_dim / 2;
  StepValues y{Matrix(x.value.rows, x.value.columns), {}, {}, {}};
  const bool bounds = declared != nullptr;
  if (bounds) y.bound = y.own = y.mass = y.value;
  // The factor rounds once, the products and their sum twice more.
  const double gamma = bounds ? Gamma(3, declared->u) : 0;
  for (int64_t r = 0; r < x.value.rows; ++r) {
    const RopeAngles& angles = rows[static_cast<size_t>(r)];
    for (int64_t c = 0; c < x.value.columns; ++c) {
      const int64_t channel = c % head_dim;
      const bool low = channel < half;
      const int64_t other = low ? c + half : c - half;
      const auto i = static_cast<size_t>(low ? channel : channel - half);
      const double cosine = angles.cosine[i];
      const double sine = low ? -angles.sine[i] : angles.sine[i];
      const double* from = x.value.Row(r);
      y.value.Row(r)[c] = from[c] * cosine + from[other] * sine;
      if (!bounds) continue;
      const double* error = x.error.Row(r);
      const double incoming = error[c] * std::fabs(cosine) + error[other] * std::fabs(sine);
      const double size =
          std::fabs(from[c]) * std::fabs(cosine) + std::fabs(from[other]) * std::fabs(sine);
      // Both parts turn by the error of the angle.
      const double turned = std::fabs(from[c]) + std::fabs(from[other]) + error[c] + error[other];
      const double turn = turned * angles.angle[i];
      y.bound.Row(r)[c] = incoming + gamma * (size + incoming) + turn * declared->angle_error;
      y.own.Row(r)[c] = turn * ReferenceArithmetic().angle_error;
      const double* mass = x.mass.Row(r);
      y.mass.Row(r)[c] = mass[c] * std::fabs(cosine) + mass[other] * std::fabs(sine);
    }
  }
  return y;
}

// x + W y, of exact x and y.
StepValues AddProduct(const Matrix& x, const Matrix& y, const Linear& linear,
                      const DecoderArithmetic* declared) {
  Product product = Apply(y, nullptr, linear, declared);
  StepValues sum = ValueAlone(std::move(product.value));
  for (size_t i = 0; i < sum.value.values.size(); ++i) sum.value.values[i] += x.values[i];
  if (declared == nullptr) return sum;
  sum.bound = std::move(product.error);
  sum.mass = std::move(product.mass);
  for (size_t i = 0; i < sum.value.values.size(); ++i) {
    const double error = sum.bound.values[i];
    sum.bound.values[i] = error + declared->u * (std::fabs(sum.value.values[i]) + error);
    sum.mass.values[i] += std::fabs(x.values[i]);
  }
  SetOwn(&sum, OwnShare(*declared, linear.in));
  return sum;
}

double Silu(double a) { return a / (1 + ExpDouble(-a)); }

}  // namespace

double DecoderArithmetic::Depth(int64_t n) const {
  if (sum_block == 0 || n <= sum_block) return static_cast<double>(n);
  const int64_t blocks = (n + sum_block - 1) / sum_block;
  return static_cast<double>(sum_block + blocks);
}

DecoderArithmetic ReferenceArithmetic() {
  DecoderArithmetic a;
  a.u = a.u_norm_sum = kU;
  a.sum_block = 0;
  a.exp_error = 2 * kU;
  a.silu_roundings = 3;
  // pow, its exponent and the product with the position; sine and cosine of it.
  a.angle_error = 0x1p-49;
  a.name = "f64, term by term";
  return a;
}

DecoderWeights::DecoderWeights(const DecoderConfig& c, const TensorMap& weights)
    : config(c),
      embedding(Get(weights, kEmbedding)),
      final_norm(Vector(Get(weights, kFinalNorm))),
      head(Get(weights, c.tied_embeddings ? kEmbedding : kHead)) {
  for (int64_t layer = 0; layer < c.layers(); ++layer) {
    const auto get = [&](const char* name) -> const Tensor& {
      return Get(weights, LayerTensor(layer, name));
    };
    layers.push_back({Vector(get(kInputNorm)), Vector(get(kPostNorm)), Linear(get(kQProj)),
                      Linear(get(kKProj)), Linear(get(kVProj)), Linear(get(kOProj)),
                      Linear(get(kGateProj)), Linear(get(kUpProj)), Linear(get(kDownProj))});
  }
}

Matrix DecoderWeights::Embed(std::span<const int64_t> tokens) const {
  Matrix x(static_cast<int64_t>(tokens.size()), config.hidden);
  for (size_t t = 0; t < tokens.size(); ++t) {
    KVCHECK_CHECK(tokens[t] >= 0 && tokens[t] < config.vocabulary, "a token out of range");
    DecodeTo(embedding, tokens[t] * config.hidden,
             {x.Row(static_cast<int64_t>(t)), static_cast<size_t>(config.hidden)});
  }
  return x;
}

RopeAngles::RopeAngles(const DecoderConfig& config, int64_t position) {
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent = -2 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double turn = static_cast<double>(position) * std::pow(config.rope_theta, exponent);
    angle.push_back(turn);
    cosine.push_back(std::cos(turn));
    sine.push_back(std::sin(turn));
  }
}

ProjectedValues Project(const DecoderWeights& w, int64_t layer, const Matrix& x,
                        std::span<const int64_t> positions, const DecoderArithmetic* declared) {
  const LayerWeights& l = w.layers[static_cast<size_t>(layer)];
  const Inexact n = Norm(x, l.input_norm, w.config.rms_norm_eps, declared);
  const Matrix* error = declared == nullptr ? nullptr : &n.error;
  std::vector<RopeAngles> angles;
  for (const int64_t position : positions) angles.emplace_back(w.config, position);
  ProjectedValues result;
  result.q = Rotate(Apply(n.value, error, l.q, declared), w.config.head_dim, angles, declared);
  result.k = Rotate(Apply(n.value, error, l.k, declared), w.config.head_dim, angles, declared);
  Product v = Apply(n.value, error, l.v, declared);
  result.v = {std::move(v.value), std::move(v.error), {}, std::move(v.mass)};
  if (declared == nullptr) return result;
  const double share = OwnShare(*declared, w.config.hidden);
  SetOwn(&result.v, share);
  for (StepValues* step : {&result.q, &result.k}) {
    for (size_t i = 0; i < step->own.values.size(); ++i) {
      step->own.values[i] += share * step->bound.values[i];
    }
  }
  return result;
}

StepValues AddAttention(const DecoderWeights& w, int64_t layer, const Matrix& x, const Matrix& out,
                        const DecoderArithmetic* declared) {
  return AddProduct(x, out, w.layers[static_cast<size_t>(layer)].o, declared);
}

StepValues Inner(const DecoderWeights& w, int64_t layer, const Matrix& mid,
                 const DecoderArithmetic* declared) {
  const LayerWeights& l = w.layers[static_cast<size_t>(layer)];
  const Inexact n = Norm(mid, l.post_norm, w.config.rms_norm_eps, declared);
  const Matrix* error = declared == nullptr ? nullptr : &n.error;
  const Product gate = Apply(n.value, error, l.gate, declared);
  const Product up = Apply(n.value, error, l.up, declared);
  StepValues m = ValueAlone(Matrix(mid.rows, l.gate.out));
  if (declared != nullptr) m.bound = m.mass = m.value;
  const double relative =
      declared == nullptr ? 0
                          : Both(declared->exp_error, Gamma(declared->silu_roundings, declared->u));
  for (size_t i = 0; i < m.value.values.size(); ++i) {
    const double a = gate.value.values[i];
    const double b = up.value.values[i];
    const double s = Silu(a);
    m.value.values[i] = s * b;
    if (declared == nullptr) continue;
    const double moved = kSiluSlope * gate.error.values[i];
    // exp overflows below -88 in f32, where silu is less than 2^-119.
    const double of_silu = moved + relative * (std::fabs(s) + moved) + 0x1p-119;
    const double of_up = up.error.values[i];
    const double product = of_silu * std::fabs(b) + of_up * std::fabs(s) + of_silu * of_up;
    m.bound.values[i] = product + declared->u * (std::fabs(s * b) + product);
    m.mass.values[i] = kSiluSlope * gate.mass.values[i] * up.mass.values[i];
  }
  if (declared != nullptr) SetOwn(&m, OwnShare(*declared, w.config.hidden));
  return m;
}

StepValues AddInner(const DecoderWeights& w, int64_t layer, const Matrix& mid, const Matrix& inner,
                    const DecoderArithmetic* declared) {
  return AddProduct(mid, inner, w.layers[static_cast<size_t>(layer)].down, declared);
}

StepValues Logits(const DecoderWeights& w, const Matrix& x, const DecoderArithmetic* declared) {
  const Inexact n = Norm(x, w.final_norm, w.config.rms_norm_eps, declared);
  Product y = Apply(n.value, declared == nullptr ? nullptr : &n.error, w.head, declared);
  StepValues logits{std::move(y.value), std::move(y.error), {}, std::move(y.mass)};
  if (declared != nullptr) SetOwn(&logits, OwnShare(*declared, w.config.hidden));
  return logits;
}

}  // namespace kvcheck
